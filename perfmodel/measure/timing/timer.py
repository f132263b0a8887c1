"""Timing one call: warm-up, a cache flush outside the timed interval, samples until a rule stops them."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import UsageError
from perfmodel.kernels.device import Device
from perfmodel.measure.timing.sample import (
    AUTO,
    LONGEST_HOLD_S,
    Call,
    Copies,
    Sample,
    interval,
    plan_sample,
    warm_up,
)
from perfmodel.measure.timing.statistics import summary
from perfmodel.measure.timing.stopping_rule import StoppingRule

#: what a caller may ask for
TIMINGS = (AUTO, *Timing)
#: reason for discarding a sample: the GPU waited for the host during it
LATE = "host late"
#: discards in a row, the hold doubled each time, until the host's time is taken as part of the call
_MOST_LATE = 10


class Guard(Protocol):
    """Judges which samples count; see `perfmodel.measure.telemetry.clock_guard.ClockGuard`."""

    given_up: str

    def fault(self) -> str:
        """Return why the latest sample does not count, or an empty string."""
        ...


@dataclass(frozen=True)
class TimedCall:
    """The samples of one call.

    Attributes
    ----------
    samples_s : the time of one call in each sample [s].
    stop_reason : why sampling stopped.
    timing : the interval that was measured. On a CPU it is "kernel" and covers the whole call.
    calls_per_sample : number of calls in one sample, whose mean it is.
    discarded : reason -> number of samples discarded for it.
    remark : what else to know, a phrase or an empty string; ``flag`` is a word for it.
    """

    samples_s: tuple[float, ...]
    stop_reason: str
    timing: Timing = Timing.KERNEL
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
    cache: CacheState = CacheState.COLD,
    timing: str = Timing.KERNEL,
    copies: Copies | None = None,
    guard: Guard | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TimedCall:
    """Return the times of a call on a device.

    Each sample lies between the start and the stop of the device's stopwatch, and has enough calls that the
    stopwatch's resolution is below 1 % of it. A GPU is held busy until the host has enqueued the whole sample; a
    sample that starts earlier is discarded, and the next hold is longer. Python's garbage collector is off meanwhile.

    Parameters
    ----------
    call : what is timed; its result is dropped.
    device : where it runs.
    rule : when to stop.
    cache : "cold": the caches are flushed before each sample, outside the interval; the calls of one sample have
        inputs and outputs of their own, so that none finds its data in a cache. "warm": each call uses the data of the
        one before. "rotating": copies of the inputs, together larger than the cache, take turns.
    timing : "kernel" times calls behind a hold; "graph" times the replay of several calls in one CUDA graph; "do_bench"
        times single calls behind a hold; "event" times single calls without one, so that the host's dispatch is
        included; "auto" takes the graph for calls below 50 us that can be captured, else "kernel".
    copies : calls on copies of the inputs. Without them a cold sample is one call, and nothing rotates.
    guard : judges which samples count; None counts all.
    clock : monotonic clock for the rule's time limit [s].

    Raises
    ------
    UsageError
        When a graph is asked for and the device has none.
    """
    if timing == Timing.GRAPH and not device.has_graphs:
        raise no_graphs(device.kind)
    call_s, host_s = warm_up(call, device, clock)
    sample = plan_sample(call, device, cache, timing, copies, call_s, host_s)
    with _no_garbage_collection():
        return _sampled(sample, device, rule, guard, clock)


def no_graphs(kind: str) -> UsageError:
    """Return the error for a graph on a device that has none."""
    return UsageError(
        f"a {kind} device cannot replay CUDA graphs.", place="--timing", remedy="Use --timing auto, or --device cuda."
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
) -> TimedCall:
    """Take samples until the rule stops them; count the discarded ones."""
    samples: list[float] = []
    discarded: Counter[str] = Counter()
    remarks = dict.fromkeys([sample.remark] if sample.remark else ())
    hold_s, timing, flag, reason = sample.hold_s, sample.timing, "", ""
    late = _MOST_LATE if timing == Timing.EVENT else 0  # from there on a late host is part of the call
    begin = clock()
    while not reason:
        latest = interval(sample.run, device, hold_s, flush=sample.flush)
        if latest.late and late < _MOST_LATE:
            discarded[LATE] += 1
            late += 1
            hold_s = min(2 * hold_s, LONGEST_HOLD_S)
            if late == _MOST_LATE:
                hold_s, timing, samples = 0.0, Timing.EVENT if timing != Timing.GRAPH else timing, []
                remarks["the host was late each time, so that the time includes its dispatch"] = None
            continue
        late = late if late == _MOST_LATE else 0
        fault = guard.fault() if guard else ""
        if fault:
            discarded[fault] += 1
            continue
        if guard and guard.given_up:
            flag = "throttled"
            remarks[f"samples were kept although the GPU did not recover: {guard.given_up}"] = None
        samples.append(latest.length_s / sample.calls)
        reason = rule.reason(samples, clock() - begin)
    return TimedCall(tuple(samples), reason, timing, sample.calls, dict(discarded), "; ".join(remarks), flag)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def best_median_s(timed: Sequence[TimedCall]) -> float:
    """Return the smallest of several medians [s]: what the machine sustains when nothing else disturbs it."""
    return min(one.median_s for one in timed)
