"""The readings so far, by metric and what they belong to."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from perfmodel.measure.monitor.sources import Sample

Floats = NDArray[np.float64]
#: samples of a metric that are kept in memory; the record keeps all
MOST_SAMPLES = 100_000


class Series:
    """Times and values of each metric.

    Only the latest `MOST_SAMPLES` of a metric are kept.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], array[float]] = {}
        self._values: dict[tuple[str, str], array[float]] = {}

    def add(self, time_s: float, samples: Iterable[Sample]) -> None:
        """Add the readings of one moment."""
        for metric, of, value in samples:
            times = self._times.setdefault((metric, of), array("d"))
            values = self._values.setdefault((metric, of), array("d"))
            times.append(time_s)
            values.append(value)
            if len(times) > MOST_SAMPLES:
                del times[: MOST_SAMPLES // 10], values[: MOST_SAMPLES // 10]

    def names(self) -> list[tuple[str, str]]:
        """Return metric and owner of each series, in the order in which they came up."""
        return list(self._values)

    def of(self, metric: str) -> Iterator[tuple[str, Floats, Floats]]:
        """Yield owner, times [s] and values of each series of a metric."""
        for name, owner in self.names():
            if name == metric:
                yield owner, *self.get(name, owner)

    def get(self, metric: str, owner: str) -> tuple[Floats, Floats]:
        """Return times [s] and values of a series, empty ones where there is none."""
        key = (metric, owner)
        return _copied(self._times.get(key)), _copied(self._values.get(key))


def _copied(values: array[float] | None) -> Floats:
    """Return values as an array of numpy that may outlive changes of them."""
    return np.empty(0) if values is None else np.frombuffer(values, dtype=np.float64).copy()
