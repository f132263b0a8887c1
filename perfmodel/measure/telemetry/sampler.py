"""Readings of a device, taken by a thread while it works, and their summary."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from perfmodel.measure.telemetry.nvml import NoTelemetry, Telemetry

#: time between two readings [s]; NVML refreshes most of them no faster
_INTERVAL_S = 0.02
#: readings that a summary keeps as lists, since they are not numbers
_LISTS = ("throttle_reasons",)

Reading = Mapping[str, Any]


class Sampler:
    """Reads a device's telemetry from a thread during a ``with`` block.

    Without telemetry there is no thread, and every answer is empty.
    """

    def __init__(self, telemetry: Telemetry, interval_s: float = _INTERVAL_S) -> None:
        self._telemetry = telemetry
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._readings: list[Reading] = []
        self._latest: tuple[int, Reading] = (0, {})

    def __enter__(self) -> Sampler:
        if not isinstance(self._telemetry, NoTelemetry):
            self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def latest(self) -> tuple[int, Reading]:
        """Return the last reading and its number; 0 and nothing before the first."""
        return self._latest

    def mark(self) -> None:
        """Forget the readings so far: the next summary begins here."""
        self._readings = []

    def summary(self) -> dict[str, Any]:
        """Return the summary of the readings since the last mark, of which there is at least one."""
        readings = self._readings or [self._telemetry.moment()]
        return summarised(readings)

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            reading = self._telemetry.moment()
            number += 1
            self._latest = (number, reading)
            self._readings.append(reading)
            self._stop.wait(self._interval_s)


def summarised(readings: Sequence[Reading]) -> dict[str, Any]:
    """Return {median, min, max} of each number in some readings, and every throttle reason that came up.

    >>> summarised([{"power_w": 500.0}, {"power_w": 700.0}, {"power_w": 690.0, "throttle_reasons": ["sync boost"]}])
    {'power_w': {'median': 690.0, 'min': 500.0, 'max': 700.0}, 'throttle_reasons': ['sync boost']}
    """
    summary: dict[str, Any] = {}
    for key in dict.fromkeys(key for reading in readings for key in reading):
        values = [reading[key] for reading in readings if key in reading]
        if key in _LISTS:
            summary[key] = list(dict.fromkeys(name for names in values for name in names))
        else:
            summary[key] = {"median": float(np.median(values)), "min": float(min(values)), "max": float(max(values))}
    return summary
