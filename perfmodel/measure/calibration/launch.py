"""What starting a kernel costs: one of a queue, one of a graph, and a small call on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.core.vocabulary import CacheState
from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.products import library_call
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import time_call, time_queue
from perfmodel.operators.elementwise import Elementwise

#: calls in a queue of tiny kernels, and kernels in a graph of them
QUEUED_CALLS, GRAPH_CALLS = 2000, 500
#: replays of a graph in a row, so that the start of the first hardly counts
_REPLAYS = 4


def call_overhead_s(device: Device) -> float:
    """Return the time of an addition of one element [s]: alone and cold on a CPU, one of a queue on a GPU."""
    op = Elementwise(numel=1, kind="add")
    with device.precision(op.dtype):
        call = library_call(op, device)
        if device.kind == "cuda":
            return time_queue(call, device, QUEUED_CALLS)
        rule = StandardErrorRule(0.0, 15, 15, time_limit_s=2.0)
        return time_call(call, device, rule, cache=CacheState.COLD).median_s


def empty_kernel_s(device: Device, plan: CalibrationPlan) -> dict[str, float]:
    """Return what an empty kernel of a GPU takes [s]: as one of a queue ("stream"), and as one of a graph ("graph").

    The shortest of several rounds counts. A queue runs at the speed of the host where that is slower than the GPU.
    """
    stream = [
        time_queue(call, device, QUEUED_CALLS) for call in _empty_launches(device, queue=True) for _ in _rounds(plan)
    ]
    graph = []
    for call in _empty_launches(device, queue=False):
        replay = device.capture([call] * GRAPH_CALLS, keep_outputs=False)
        graph += [time_queue(replay, device, _REPLAYS) / GRAPH_CALLS for _ in _rounds(plan)]
    return {"stream": min(stream), "graph": min(graph)}


def _rounds(plan: CalibrationPlan) -> range:
    return range(plan.rounds * plan.samples)


def _empty_launches(device: Device, *, queue: bool) -> list[Callable[[], Any]]:
    """Return launches of empty kernels: torch's spin of one cycle, and in a graph Triton's, whose host side is slow."""
    from perfmodel.kernels.torch._bandwidth import empty_launch
    from perfmodel.kernels.triton._base import unavailable

    launches = [empty_launch()]
    if not queue and not unavailable(device, ("fp32",), "fp32"):
        from perfmodel.kernels.triton import _bandwidth

        launches.append(_bandwidth.empty_launch())
    for launch in launches:
        launch()
    return launches
