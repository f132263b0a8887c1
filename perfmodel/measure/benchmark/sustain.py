"""Sustained rate against burst rate: one kernel runs back to back while the device heats up."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.kernels.device import Device, Stopwatch
from perfmodel.kernels.registry import Call
from perfmodel.measure.telemetry.sampler import Sampler

#: time between two points of the series [s]
INTERVAL_S = 0.5
#: length of one batch between two events [s]; the next one is always enqueued behind it
_BATCH_S = 0.05
#: calls of one batch: fewer than the thousand launches or so that a stream accepts before the host has to wait
_MOST_CALLS = 500
_KEYS = ("sm_clock_hz", "power_w", "temperature_c")


def sustain(
    calls: Sequence[Call],
    device: Device,
    call_s: float,
    work: float,
    rate_unit: str,
    seconds: float,
    sampler: Sampler,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Run calls in turn, back to back; return the series of their rate and of the device's state.

    Two batches are always enqueued, so that the device never waits. The rate of an interval (`INTERVAL_S`; the last one
    may be shorter) is the work of the batches that ended in it over the time that the device spent on them; the state
    is the last reading in it.

    Parameters
    ----------
    calls : the calls that take turns.
    device : where they run.
    call_s : about how long one call takes [s].
    work : FLOP or bytes of one call, as ``rate_unit`` counts them per second.
    rate_unit : "FLOP/s" or "B/s".
    seconds : how long [s].
    sampler : the source of the readings.
    clock : monotonic clock [s].

    Returns
    -------
    dict : time_s, the end of each interval since the beginning [s], rate, rate_unit; sm_clock_hz [Hz], power_w [W] and
        temperature_c, which are empty where the device has no such readings.
    """
    size = max(1, min(_MOST_CALLS, int(min(_BATCH_S, INTERVAL_S) / max(call_s, 1e-9))))
    turns = itertools.cycle(calls)
    series: dict[str, Any] = {"time_s": [], "rate": [], "rate_unit": rate_unit, **{key: [] for key in _KEYS}}
    waiting: deque[Stopwatch] = deque()
    busy_s, calls_done = 0.0, 0
    begin = now = clock()
    end = begin + INTERVAL_S
    while waiting or now - begin < seconds:
        while len(waiting) < 2 and now - begin < seconds:
            waiting.append(_batch(turns, size, device))
        busy_s += waiting.popleft().elapsed_s()
        calls_done += size
        now = clock()
        if now >= end or not (waiting or now - begin < seconds):
            _add(series, now - begin, calls_done * work / max(busy_s, 1e-12), sampler)
            busy_s, calls_done = 0.0, 0
            end = now + INTERVAL_S
    return series


def _batch(turns: itertools.cycle[Call], size: int, device: Device) -> Stopwatch:
    watch = device.stopwatch()
    watch.start()
    for _ in range(size):
        next(turns)()
    watch.stop()
    return watch


def _add(series: dict[str, Any], time_s: float, rate: float, sampler: Sampler) -> None:
    series["time_s"].append(time_s)
    series["rate"].append(rate)
    _, reading = sampler.latest()
    if reading:
        for key in _KEYS:
            series[key].append(reading.get(key))


def burst_and_sustained(series: dict[str, Any]) -> tuple[float, float] | None:
    """Return the rate of the first interval, and the median of the last quarter; None for fewer than four intervals."""
    rates = series["rate"]
    if len(rates) < 4:
        return None
    return rates[0], statistics.median(rates[-(len(rates) // 4) :])
