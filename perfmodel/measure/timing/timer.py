"""Timing one call: warm-up, a cache flush outside the timed interval, samples until a rule says stop."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from perfmodel.errors import UsageError
from perfmodel.kernels.device import Device
from perfmodel.measure.timing.sample import (
    EVENT,
    GRAPH,
    KERNEL,
    LONGEST_HOLD_S,
    Call,
    Copies,
    Sample,
    interval,
    planned,
    warm_up,
)
from perfmodel.measure.timing.statistics import summary
from perfmodel.measure.timing.stopping_rule import StoppingRule

CACHE_MODES = ("flushed", "warm", "rotating")
TIMING_MODES = ("auto", "event", "graph")
#: the discard of a sample during which the GPU waited for the host
LATE = "host late"
#: discards in a row, the hold doubled each time, until the host is taken to belong to the call
_MOST_LATE = 10


class Guard(Protocol):
    """Says which samples count; see `perfmodel.measure.telemetry.clock_guard.ClockGuard`."""

    given_up: str

    def fault(self) -> str:
        """Return why the sample that was just taken does not count, or an empty string."""
        ...


@dataclass(frozen=True)
class Timing:
    """The samples of one call [s], and why there are no more.

    Attributes
    ----------
    samples_s : the time of one call, of each sample [s].
    stop_reason : why there are no more samples.
    timing : "kernel" (on the device alone; on a CPU the whole call), "graph", or "event" (with the host's dispatch).
    calls_per_sample : calls that one sample is the mean of.
    discarded : reason -> how many samples did not count.
    remark : what else to know, a sentence or an empty string; ``flag`` is a word for it.
    """

    samples_s: tuple[float, ...]
    stop_reason: str
    timing: str = KERNEL
    calls_per_sample: int = 1
    discarded: Mapping[str, int] = field(default_factory=dict)
    remark: str = ""
    flag: str = ""

    @property
    def median_s(self) -> float:
        """The median [s]."""
        return float(np.median(self.samples_s))

    def statistics(self) -> dict[str, float | int | None]:
        """Return the statistics of a record [s]; see `perfmodel.measure.timing.statistics.summary`."""
        return summary(self.samples_s)


def time_call(
    call: Call,
    device: Device,
    rule: StoppingRule,
    *,
    cache: str = "flushed",
    timing: str = "event",
    copies: Copies | None = None,
    guard: Guard | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Timing:
    """Return the times of a call on a device.

    Each sample lies between the start and the stop of the device's stopwatch, and has so many calls that the
    stopwatch's resolution is below 1 % of it. A GPU is held busy until the host has enqueued all of it; a sample
    that it began before does not count, and the next hold is longer. Python's garbage collector rests meanwhile.

    - ``cache="flushed"``: the device's caches are flushed before each sample, outside the interval. Where a sample
      has several calls, each has inputs and output of its own, so that all of them find nothing in a cache.
    - "warm": the data of the call before is left where it lies.
    - "rotating": copies of the inputs, together larger than the cache, take turns.

    Parameters
    ----------
    call : what is timed; its result is dropped.
    device : where it runs.
    rule : when to stop.
    cache : "flushed", "warm" or "rotating".
    timing : "event" times calls; "graph" the replay of several in one CUDA graph; "auto" takes the graph for calls
        below 50 us that can be captured.
    copies : calls on copies of the inputs. Without them a flushed sample is one call, and nothing rotates.
    guard : says which samples count; None counts all that were in time.
    clock : monotonic clock for the rule's time limit [s].

    Raises
    ------
    UsageError
        When the device has no graphs, and one is asked for.
    """
    if timing == GRAPH and not device.has_graphs:
        raise no_graphs(device.kind)
    call_s, host_s = warm_up(call, device, clock)
    sample = planned(call, device, cache, timing, copies, call_s, host_s)
    with _no_garbage_collection():
        return _sampled(sample, device, rule, guard, clock)


def no_graphs(kind: str) -> UsageError:
    """Return the error for a graph on a device that has none."""
    return UsageError(
        f"a {kind} device replays no CUDA graphs.", place="--timing", remedy="Use --timing auto, or --device cuda."
    )


def time_queue(call: Call, device: Device, calls: int) -> float:
    """Return the time per call of many calls queued one after another [s]."""
    call()
    device.synchronize()
    watch = device.stopwatch()
    with _no_garbage_collection():
        watch.start()
        for _ in range(calls):
            call()
        watch.stop()
    return watch.elapsed_s() / calls


def _sampled(
    sample: Sample, device: Device, rule: StoppingRule, guard: Guard | None, clock: Callable[[], float]
) -> Timing:
    """Take samples until the rule says stop; those that do not count are counted."""
    samples: list[float] = []
    discarded: Counter[str] = Counter()
    remarks = dict.fromkeys([sample.remark] if sample.remark else ())
    hold_s, timing, late, flag, reason = sample.hold_s, sample.timing, 0, "", ""
    begin = clock()
    while not reason:
        found = interval(sample.run, device, hold_s, flush=sample.flush)
        if found.late and late < _MOST_LATE:
            discarded[LATE] += 1
            late += 1
            hold_s = min(2 * hold_s, LONGEST_HOLD_S)
            if late == _MOST_LATE:
                hold_s, timing, samples = 0.0, EVENT if timing == KERNEL else timing, []
                remarks["the host was late each time, so that its dispatch is in the time"] = None
            continue
        late = late if late == _MOST_LATE else 0
        fault = guard.fault() if guard else ""
        if fault:
            discarded[fault] += 1
            continue
        if guard and guard.given_up:
            flag = "throttled"
            remarks[f"samples were kept although the GPU did not recover: {guard.given_up}"] = None
        samples.append(found.length_s / sample.calls)
        reason = rule.reason(samples, clock() - begin)
    return Timing(tuple(samples), reason, timing, sample.calls, dict(discarded), "; ".join(remarks), flag)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def best_median_s(timings: Sequence[Timing]) -> float:
    """Return the smallest of several medians [s]: what the machine sustains when nothing else disturbs it."""
    return min(timing.median_s for timing in timings)
