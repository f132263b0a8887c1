"""Sums of kernels by term, with what each family of kernels contributes to the uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.base import Operator
from perfmodel.prediction.predict import predict

Array = NDArray[np.float64]

#: the terms of a step in the order in which they are shown
TERMS = ("weights", "experts", "kv", "prefill", "encoder", "exchange", "sends", "kernels", "head", "gaps", "host")


class Deviation(NamedTuple):
    """Standard deviations of ln(measured / predicted): of this shape, and of what all shapes of a family share."""

    shape: Array
    shared: Array

    @property
    def whole(self) -> Array:
        """Of one kernel alone."""
        return np.hypot(self.shape, self.shared)


@dataclass
class Cost:
    """Times by term, and by source of error the sum of time x standard deviation of ln(measured / predicted).

    As in `perfmodel.prediction.uncertainty.of_sum`, the errors of shapes are independent of each other, and what a
    machine or a library differs by is the same for all kernels of a family and adds up.
    """

    times: dict[str, Array] = field(default_factory=dict)
    spread: dict[str, Array] = field(default_factory=dict)

    def add(self, term: str, time_s: Array, family: str, deviation: Array | Deviation, shape: str = "") -> None:
        """Add a time [s] to a term, with the deviation of its family's predictions; a plain one is shared."""
        self.times[term] = self.times.get(term, 0.0) + time_s
        if isinstance(deviation, Deviation):
            key = f"{family} {shape}"
            self.spread[key] = self.spread.get(key, 0.0) + time_s * deviation.shape
            deviation = deviation.shared
        self.spread[family] = self.spread.get(family, 0.0) + time_s * deviation

    def blend(self, other: Cost, share: Array) -> Cost:
        """Return the mean of steps of which a share is like the other ones: self + share (other - self)."""
        return Cost(_blended(self.times, other.times, share), _blended(self.spread, other.spread, share))

    def plus(self, other: Cost, times: Array | float) -> Cost:
        """Return the cost of both, the other one several times."""
        names = dict.fromkeys([*self.times, *other.times])
        sources = dict.fromkeys([*self.spread, *other.spread])
        zero = np.zeros(())
        return Cost(
            {name: self.times.get(name, zero) + times * other.times.get(name, zero) for name in names},
            {name: self.spread.get(name, zero) + times * other.spread.get(name, zero) for name in sources},
        )

    @property
    def total_s(self) -> Array:
        """Sum over the terms [s]."""
        return np.asarray(sum(self.times.values(), start=np.zeros(())))


def kernel(op: Operator, hardware: Hardware, library: str) -> tuple[Array, Deviation]:
    """Return the time of one call [s] and the deviation of its prediction, for each point."""
    expected = predict(op, hardware, library=library)
    variances = expected.uncertainty.variances(expected.regime)
    shape = np.asarray(variances.pop(ErrorSource.SHAPE, 0.0), dtype=np.float64)
    shared = np.asarray(sum(variances.values(), start=0.0), dtype=np.float64)
    return np.asarray(expected.predicted_time_s, dtype=np.float64), Deviation(np.sqrt(shape), np.sqrt(shared))


def _blended(one: dict[str, Array], other: dict[str, Array], share: Array) -> dict[str, Array]:
    names = dict.fromkeys([*one, *other])
    zero = np.zeros(())
    return {name: one.get(name, zero) + share * (other.get(name, zero) - one.get(name, zero)) for name in names}
