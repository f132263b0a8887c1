"""Which samples count: those taken while the GPU runs at its usual clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.measure.telemetry.nvml import IDLE, POWER_CAP
from perfmodel.measure.telemetry.sampler import Sampler


class ClockGuard:
    """Judges by the latest reading whether a sample counts, and waits when it does not.

    A sample does not count while the SM clock is below 75 % of its default (nvbench's threshold), or while the GPU
    throttles because of its temperature, its power brake, or a hardware slowdown. At a software power cap samples
    count at any clock: a large matrix product runs at the power limit all the time, and that is its speed.

    After each bad reading it waits for the GPU to recover, twice as long each time; not for an idle GPU, whose clocks
    rise with work. After eight bad readings in a row it gives up: this is the usual state of the machine, and
    ``given_up`` holds the reason for everything measured from then on.

    Parameters
    ----------
    sampler : the source of the readings.
    default_clock_hz : the expected SM clock [Hz]; None judges no clock.
    sleep : waits for a number of seconds.
    """

    LOWEST_CLOCK = 0.75
    MOST_BAD_READINGS = 8
    _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
    #: samples in a row that one fault may cost if no new reading arrives
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
        self._judged = 0  # number of the latest reading that was found bad
        self._bad = 0
        self._discarded = 0
        self.given_up = ""

    def fault(self) -> str:
        """Return why the latest sample does not count, or an empty string.

        After it has given up, samples count until a reading without a fault has come.
        """
        number, reading = self._sampler.latest()
        fault = self._judge(reading)
        if not fault:
            self._bad, self._discarded, self.given_up = 0, 0, ""
            return ""
        if self.given_up:
            return ""
        self._discarded += 1
        if number != self._judged:  # one pause for each reading, however many samples it covers
            self._judged = number
            self._bad += 1
            if IDLE not in reading.get("throttle_reasons", ()) and self._bad <= self.MOST_BAD_READINGS:
                self._sleep(min(self._FIRST_PAUSE_S * 2 ** (self._bad - 1), self._LONGEST_PAUSE_S))
        if self._bad > self.MOST_BAD_READINGS or self._discarded > self._MOST_DISCARDED:
            self.given_up = fault
            return ""
        return fault

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
