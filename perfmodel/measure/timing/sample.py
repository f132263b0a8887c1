"""One sample: how many calls it has, on which data, in a graph or not, and behind which hold."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.kernels.device import HOLD_S, Device

Call = Callable[[], Any]

#: leaves the choice between calls and a graph to the timer
AUTO = "auto"
#: calls before the first sample: the first compiles and chooses, the second finds its memory allocated
WARM_UP_CALLS = 2
#: with `AUTO`, calls below this are replayed in a graph [s]
GRAPH_BELOW_S = 50e-6
#: largest share of a sample that the stopwatch's resolution may be
_RESOLUTION = 0.01
#: the start of a graph lies inside the interval, once per sample, which is made longer by this factor for it
_GRAPH_INTERVALS = 2
_MOST_CALLS = 100
#: a hold lasts twice the host's time plus the first [s], and at most the second [s]
_HOLD_MARGIN_S, LONGEST_HOLD_S = 5e-5, 0.1


class Copies(Protocol):
    """Calls on copies of the inputs; see `perfmodel.measure.timing.input_copies.InputCopies`."""

    def calls(self, count: int) -> Sequence[Call]:
        """Return ``count`` calls, each on its own inputs, the first on the original ones; fewer if memory is short."""
        ...

    def beyond_cache(self) -> Sequence[Call]:
        """Return calls whose inputs together are larger than the cache."""
        ...


@dataclass(frozen=True)
class Sample:
    """What one sample consists of.

    Attributes
    ----------
    run : enqueues the calls of one sample; returns what may be freed when the sample is over.
    calls : how many calls ``run`` makes.
    timing : the interval that the sample measures.
    flush : whether the caches are flushed first.
    hold_s : how long the device is held busy before the interval [s]; 0 for not at all.
    remark : what else to know, a phrase or an empty string.
    """

    run: Call
    calls: int
    timing: Timing
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
    """Run something once between start and stop, behind a hold [s] and, if asked for, a flush."""
    if flush:
        device.flush_cache()
    watch = device.stopwatch()
    if hold_s > 0:
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
    calls = 2
    while calls < WARM_UP_CALLS or (device.warm_up_s and clock() - begin < device.warm_up_s):
        last = interval(call, device, HOLD_S)
        shortest = min(shortest, last, key=lambda one: one.length_s)
        calls += 1
    device.synchronize()
    return shortest.length_s, min(last.host_s, shortest.host_s)


def plan_sample(
    call: Call, device: Device, cache: CacheState, timing: str, copies: Copies | None, call_s: float, host_s: float
) -> Sample:
    """Return what a sample consists of.

    Parameters
    ----------
    call, device, cache, copies : as of `perfmodel.measure.timing.timer.time_call`.
    timing : a `Timing`, or "auto".
    call_s, host_s : about how long the call takes, and how long the host takes to enqueue it [s].
    """
    flush = cache == CacheState.COLD
    if timing in (Timing.EVENT, Timing.DO_BENCH):
        hold_s = 0.0 if timing == Timing.EVENT else _hold_s(host_s)
        return Sample(_in_turn(_group(call, cache, copies, 1), 1, keep=False), 1, Timing(timing), flush, hold_s)
    remark = ""
    if timing == Timing.GRAPH or (timing == AUTO and device.has_graphs and call_s < GRAPH_BELOW_S):
        try:
            return _graph_sample(call, device, cache, copies, call_s)
        except Exception as error:  # a kernel may do anything that a graph cannot hold
            device.synchronize()
            if timing == Timing.GRAPH:
                raise
            remark = f"it cannot be captured in a graph ({next(iter(str(error).splitlines()), '')[:120]})"
    wanted = _calls(device, call_s, 1)
    group = _group(call, cache, copies, wanted)
    count = len(group) if flush else wanted
    run = group[0] if count == 1 == len(group) else _in_turn(group, count, keep=cache != CacheState.WARM)
    return Sample(run, count, Timing.KERNEL, flush, _hold_s(count * host_s), remark)


def _graph_sample(call: Call, device: Device, cache: CacheState, copies: Copies | None, call_s: float) -> Sample:
    """Return the replay of a graph of several calls; raises what the capture raises."""
    wanted = _calls(device, call_s, _GRAPH_INTERVALS)
    group = _graphed(_group(call, cache, copies, wanted), wanted, cache)
    replay = device.capture(group, keep_outputs=cache != CacheState.WARM)
    first = interval(replay, device, HOLD_S)  # brings the graph to the device
    device.synchronize()
    return Sample(_holding(replay, group), len(group), Timing.GRAPH, cache == CacheState.COLD, _hold_s(first.host_s))


def _calls(device: Device, call_s: float, intervals: int) -> int:
    """Return how many calls make a sample of which the stopwatch's resolution is below 1 %."""
    shortest_s = intervals * device.tick_s / _RESOLUTION
    return min(_MOST_CALLS, max(1, math.ceil(shortest_s / max(call_s, 1e-9))))


def _hold_s(host_s: float) -> float:
    return min(2 * host_s + _HOLD_MARGIN_S, LONGEST_HOLD_S)


def _group(call: Call, cache: CacheState, copies: Copies | None, count: int) -> list[Call]:
    """Return the calls that take turns; all but the first have run once, to warm up."""
    if cache == CacheState.WARM or copies is None:
        return [call]
    group = list(copies.beyond_cache() if cache == CacheState.ROTATING else copies.calls(count))
    for other in group[1:]:
        other()
    return group


def _graphed(group: list[Call], count: int, cache: CacheState) -> list[Call]:
    """Return the calls of a graph: each of the group once if cold, else whole turns of the group."""
    return group if cache == CacheState.COLD else group * max(1, round(count / len(group)))


def _in_turn(group: Sequence[Call], count: int, *, keep: bool) -> Call:
    """Return what makes ``count`` calls of a group in turn, each time from where it was; ``keep`` holds all outputs."""
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
    """Return the replay of a graph; it keeps the calls alive, whose inputs the graph reads."""

    def run() -> Any:
        replay()
        return group

    return run
