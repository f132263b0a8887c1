"""Timing one call: warm-up, a cache flush outside the timed interval, samples until a rule says stop."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.kernels.device import Device
from perfmodel.measure.stopping import StoppingRule

CACHE_MODES = ("flushed", "warm")
#: calls before the first sample: one compiles and chooses, one finds its memory again
WARM_UP_CALLS = 2


@dataclass(frozen=True)
class Timing:
    """The samples of one call [s], and why there are no more."""

    samples_s: tuple[float, ...]
    stop_reason: str

    @property
    def median_s(self) -> float:
        """The median [s]."""
        return float(np.median(self.samples_s))

    def statistics(self) -> dict[str, float]:
        """Return the statistics of a record [s]: median, mean, stdev, min, max, p05, p95, and the number of samples.

        The standard deviation is the sample's (n - 1); quantiles interpolate linearly (numpy's default).
        """
        values = np.asarray(self.samples_s)
        p05, median, p95 = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95)))
        return {
            "median": median,
            "mean": float(values.mean()),
            "stdev": float(values.std(ddof=1)) if values.size > 1 else 0.0,
            "min": float(values.min()),
            "max": float(values.max()),
            "p05": p05,
            "p95": p95,
            "samples": int(values.size),
        }


def time_call(
    call: Callable[[], Any],
    device: Device,
    rule: StoppingRule,
    *,
    cache: str = "flushed",
    clock: Callable[[], float] = time.monotonic,
) -> Timing:
    """Return the times of a call on a device.

    Each sample is one call between the start and the stop of the device's stopwatch. With ``cache="flushed"`` the
    device's caches are flushed before each sample, outside that interval; with "warm" the data of the sample
    before is left where it lies. A GPU is held busy until the host has enqueued all of it. Python's garbage
    collector rests meanwhile.

    Parameters
    ----------
    call : what is timed; its result is dropped.
    device : where it runs.
    rule : when to stop.
    cache : "flushed" or "warm".
    clock : monotonic clock for the rule's time limit [s].
    """
    for _ in range(WARM_UP_CALLS):
        call()
    device.synchronize()
    samples: list[float] = []
    begin = clock()
    reason = ""
    with _no_garbage_collection():
        while not reason:
            samples.append(_sample(call, device, flush=cache == "flushed"))
            reason = rule.reason(samples, clock() - begin)
    return Timing(tuple(samples), reason)


def time_queue(call: Callable[[], Any], device: Device, calls: int) -> float:
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


def _sample(call: Callable[[], Any], device: Device, *, flush: bool) -> float:
    if flush:
        device.flush_cache()
    watch = device.stopwatch()
    device.hold()
    watch.start()
    # The output is dropped after the clock has stopped, so that freeing it is not timed.
    output = call()
    watch.stop()
    elapsed = watch.elapsed_s()
    del output
    return elapsed


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
