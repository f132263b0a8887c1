"""What starting a kernel costs: one of a queue, one of a graph, and a small call on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import Effort
from perfmodel.measure.calibration.products import library_call
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import time_call, time_queue
from perfmodel.operators.elementwise import Elementwise

#: calls in a queue of tiny kernels, and kernels in a graph of them
QUEUED_CALLS, GRAPH_CALLS = 2000, 500
#: replays of a graph in a row, so that what starts the first hardly counts
_REPLAYS = 4


def call_overhead_s(device: Device) -> float:
    """Return the time of an addition of one element [s]: alone and cold on a CPU, one of a queue on a GPU."""
    op = Elementwise(numel=1, kind="add")
    with device.precision(op.dtype):
        call = library_call(op, device)
        if device.kind == "cuda":
            return time_queue(call, device, QUEUED_CALLS)
        rule = StandardErrorRule(0.0, 15, 15, time_limit_s=2.0)
        return time_call(call, device, rule, cache="flushed").median_s


def empty_kernel_s(device: Device, effort: Effort) -> dict[str, float]:
    """Return what an empty kernel of a GPU takes [s]: as one of a queue ("stream"), and as one of a graph ("graph").

    The shortest of several rounds. In a queue the host has to keep up: where it cannot, this is its time.
    """
    stream = [
        time_queue(call, device, QUEUED_CALLS) for call in _empty_launches(device, queue=True) for _ in _rounds(effort)
    ]
    graph = []
    for call in _empty_launches(device, queue=False):
        replay = device.capture([call] * GRAPH_CALLS, keep_outputs=False)
        graph += [time_queue(replay, device, _REPLAYS) / GRAPH_CALLS for _ in _rounds(effort)]
    return {"stream": min(stream), "graph": min(graph)}


def _rounds(effort: Effort) -> range:
    return range(effort.rounds * effort.samples)


def _empty_launches(device: Device, *, queue: bool) -> list[Callable[[], Any]]:
    """Return launches of empty kernels: torch's spin of one cycle, and in a graph Triton's, whose host side is slow."""
    from perfmodel.kernels.torch._bandwidth import empty_launch
    from perfmodel.kernels.triton._base import unavailable

    made = [empty_launch()]
    if not queue and not unavailable(device, ("fp32",), "fp32"):
        from perfmodel.kernels.triton import _bandwidth

        made.append(_bandwidth.empty_launch())
    for call in made:
        call()
    return made
