"""Which samples count: those of a GPU at its clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.measure.telemetry.nvml import IDLE, POWER_CAP
from perfmodel.measure.telemetry.sampler import Sampler


class ClockGuard:
    """Judges by the last reading whether a sample counts, and waits when it does not.

    A sample does not count while the SM clock is below 75 % of its default (nvbench's threshold), or while the GPU
    throttles for its temperature, its power brake, or hardware that slows it down. At a software power cap samples do
    count, at whatever clock: a big matrix product runs at the power limit all the time, and that is its speed.

    After each bad reading it waits, twice as long each time, for the GPU to recover; not where it is idle, since work
    is what raises those clocks. After eight bad readings in a row it gives up: the state is this machine's, and
    ``given_up`` says so of all that is measured from there on.

    Parameters
    ----------
    sampler : where the readings come from.
    default_clock_hz : what the SM clock should be [Hz]; None judges no clock.
    sleep : waits some seconds.
    """

    LOWEST_CLOCK = 0.75
    MOST_BAD_READINGS = 8
    _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
    #: samples in a row that one fault may cost, should no new reading come
    _MOST_DISCARDED = 10_000
    _THROTTLED = frozenset(
        {
            "hardware slowdown",
            "software thermal slowdown",
            "hardware thermal slowdown",
            "hardware power brake slowdown",
        }
    )

    def __init__(
        self, sampler: Sampler, default_clock_hz: float | None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._sampler = sampler
        self._default_clock_hz = default_clock_hz
        self._sleep = sleep
        self._seen = 0
        self._bad = 0
        self._discarded = 0
        self.given_up = ""

    def fault(self) -> str:
        """Return why the sample that was just taken does not count, or an empty string.

        A fault that it has given up on is none any more, until a reading without one.
        """
        number, reading = self._sampler.latest()
        found = self._judge(reading)
        if not found:
            self._bad, self._discarded, self.given_up = 0, 0, ""
            return ""
        if self.given_up:
            return ""
        self._discarded += 1
        if number != self._seen:  # one pause a reading, whatever the samples it stands for
            self._seen = number
            self._bad += 1
            if IDLE not in reading.get("throttle_reasons", ()) and self._bad <= self.MOST_BAD_READINGS:
                self._sleep(min(self._FIRST_PAUSE_S * 2 ** (self._bad - 1), self._LONGEST_PAUSE_S))
        if self._bad > self.MOST_BAD_READINGS or self._discarded > self._MOST_DISCARDED:
            self.given_up = found
            return ""
        return found

    def _judge(self, reading: Mapping[str, Any]) -> str:
        reasons = sorted(self._THROTTLED.intersection(reading.get("throttle_reasons", ())))
        if reasons:
            return reasons[0]
        if POWER_CAP in reading.get("throttle_reasons", ()):
            return ""
        clock = reading.get("sm_clock_hz")
        if clock and self._default_clock_hz and clock < self.LOWEST_CLOCK * self._default_clock_hz:
            return "low clock"
        return ""
