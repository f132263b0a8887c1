"""What one sample consists of: how many calls, on which data, in a graph or not, and behind which hold."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perfmodel.kernels.device import HOLD_S, Device

Call = Callable[[], Any]

#: what a time means, in the words of measurement tables: on the device alone, in a replayed graph, or with the host's
#: dispatch in it
KERNEL, GRAPH, EVENT = "kernel", "graph", "event"
#: calls before the first sample: one compiles and chooses, one finds its memory again
WARM_UP_CALLS = 2
#: below this a call is replayed in a graph where that is left to choose [s]
GRAPH_BELOW_S = 50e-6
#: share of a sample that the clock's resolution may be
_RESOLUTION = 0.01
#: a graph starts once a sample, inside the interval, which is this many times longer for it
_GRAPH_INTERVALS = 2
_MOST_CALLS = 100
#: a hold lasts twice the host's time and this [s], and no longer than the second [s]
_HOLD_MARGIN_S, LONGEST_HOLD_S = 5e-5, 0.1


class Copies(Protocol):
    """Calls on copies of the inputs; see `perfmodel.measure.timing.input_copies.InputCopies`."""

    def calls(self, count: int) -> Sequence[Call]:
        """Return so many calls, each on inputs of its own, the first on the original ones; fewer if memory is short."""
        ...

    def beyond_cache(self) -> Sequence[Call]:
        """Return calls whose inputs together are larger than the cache."""
        ...


@dataclass(frozen=True)
class Sample:
    """What one sample consists of: ``run`` enqueues ``calls`` calls and returns what may be freed afterwards."""

    run: Call
    calls: int
    timing: str
    flush: bool
    hold_s: float
    remark: str = ""


@dataclass(frozen=True)
class Interval:
    """One interval: its length, the host's time to enqueue it [s], and whether the host was late."""

    length_s: float
    host_s: float
    late: bool


def interval(run: Call, device: Device, hold_s: float, *, flush: bool = False) -> Interval:
    """Run something once between start and stop, behind a hold [s], after a flush where one is asked for."""
    if flush:
        device.flush_cache()
    watch = device.stopwatch()
    device.hold(hold_s)
    begin = time.perf_counter()
    watch.start()
    # The output is dropped after the clock has stopped, so that freeing it is not timed.
    output = run()
    watch.stop()
    host_s = time.perf_counter() - begin
    late = watch.has_begun()
    length_s = watch.elapsed_s()
    del output
    return Interval(length_s, host_s, late)


def warm_up(call: Call, device: Device, clock: Callable[[], float]) -> tuple[float, float]:
    """Call until compilation is done and the clocks are up; return the time of a call and of enqueueing it [s]."""
    call()
    device.synchronize()
    begin = clock() if device.warm_up_s else 0.0
    last = interval(call, device, HOLD_S)
    shortest = last
    done = 2
    while done < WARM_UP_CALLS or (device.warm_up_s and clock() - begin < device.warm_up_s):
        last = interval(call, device, HOLD_S)
        shortest = min(shortest, last, key=lambda one: one.length_s)
        done += 1
    device.synchronize()
    return shortest.length_s, min(last.host_s, shortest.host_s)


def planned(
    call: Call, device: Device, cache: str, timing: str, copies: Copies | None, call_s: float, host_s: float
) -> Sample:
    """Return what a sample is, for a call of some length that takes the host some time to enqueue [s]."""
    remark = ""
    wanted = _calls(device, call_s, _GRAPH_INTERVALS)
    if timing == GRAPH or (timing == "auto" and device.has_graphs and call_s < GRAPH_BELOW_S):
        group = _graphed(_group(call, cache, copies, wanted), wanted, cache)
        try:
            replay = device.capture(group, keep_outputs=cache != "warm")
        except Exception as error:  # a kernel may do anything that a graph cannot hold
            device.synchronize()
            if timing == GRAPH:
                raise
            remark = f"it cannot be captured in a graph ({next(iter(str(error).splitlines()), '')[:120]})"
        else:
            first = interval(replay, device, HOLD_S)  # brings the graph to the device
            device.synchronize()
            return Sample(_holding(replay, group), len(group), GRAPH, cache == "flushed", _hold_s(first.host_s))
    wanted = _calls(device, call_s, 1)
    group = _group(call, cache, copies, wanted)
    count = len(group) if cache == "flushed" else wanted
    run = group[0] if count == 1 == len(group) else _in_turn(group, count, keep=cache != "warm")
    return Sample(run, count, KERNEL, cache == "flushed", _hold_s(count * host_s), remark)


def _calls(device: Device, call_s: float, intervals: int) -> int:
    """Return how many calls make a sample of which the stopwatch's resolution is below 1 %."""
    shortest_s = intervals * device.tick_s / _RESOLUTION
    return min(_MOST_CALLS, max(1, math.ceil(shortest_s / max(call_s, 1e-9))))


def _hold_s(host_s: float) -> float:
    return min(2 * host_s + _HOLD_MARGIN_S, LONGEST_HOLD_S)


def _group(call: Call, cache: str, copies: Copies | None, count: int) -> list[Call]:
    """Return the calls that take turns, each of them run once before."""
    if cache == "warm" or copies is None:
        return [call]
    group = list(copies.beyond_cache() if cache == "rotating" else copies.calls(count))
    for other in group[1:]:
        other()
    return group


def _graphed(group: list[Call], count: int, cache: str) -> list[Call]:
    """Return the calls of a graph: flushed, each on inputs of its own once; else whole turns of the group."""
    return group if cache == "flushed" else group * max(1, round(count / len(group)))


def _in_turn(group: Sequence[Call], count: int, *, keep: bool) -> Call:
    """Return what makes ``count`` calls of a group in turn, going on where it was; ``keep`` holds all outputs."""
    turns = itertools.cycle(group)
    if keep:
        return lambda: [next(turns)() for _ in range(count)]

    def run() -> Any:
        output = None
        for _ in range(count):
            output = next(turns)()
        return output

    return run


def _holding(replay: Call, group: Sequence[Call]) -> Call:
    """Return the replay of a graph, with the calls whose inputs it reads kept alive."""

    def run() -> Any:
        replay()
        return group

    return run
