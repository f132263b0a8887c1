"""Sums of kernels by term, with what each family of kernels contributes to the uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.operators.base import Operator
from perfmodel.prediction.predict import predict

Array = NDArray[np.float64]

#: the terms of a step in the order in which they are shown
TERMS = ("weights", "experts", "kv", "prefill", "exchange", "kernels", "head", "gaps", "host")


@dataclass
class Cost:
    """Times by term, and by family the sum of time x standard deviation of ln(measured / predicted).

    Errors within a family have one sign and add up; those of different families are independent.
    """

    times: dict[str, Array] = field(default_factory=dict)
    spread: dict[str, Array] = field(default_factory=dict)

    def add(self, term: str, time_s: Array, family: str, deviation: Array) -> None:
        """Add a time [s] to a term, with the deviation of its family's predictions."""
        self.times[term] = self.times.get(term, 0.0) + time_s
        self.spread[family] = self.spread.get(family, 0.0) + time_s * deviation

    def blend(self, other: Cost, share: Array) -> Cost:
        """Return the mean of steps of which a share is like the other ones: self + share (other - self)."""
        return Cost(_blended(self.times, other.times, share), _blended(self.spread, other.spread, share))

    @property
    def total_s(self) -> Array:
        """Sum over the terms [s]."""
        return np.asarray(sum(self.times.values(), start=np.zeros(())))


def kernel(op: Operator, hardware: Hardware, library: str) -> tuple[Array, Array]:
    """Return the time of one call [s], and the standard deviation of ln(measured / predicted), for each point."""
    expected = predict(op, hardware, library=library)
    regime = expected.regime
    variances = expected.uncertainty.variances(regime)
    deviation = np.sqrt(np.asarray(sum(variances.values())))
    return np.asarray(expected.predicted_time_s, dtype=np.float64), deviation


def _blended(one: dict[str, Array], other: dict[str, Array], share: Array) -> dict[str, Array]:
    names = dict.fromkeys([*one, *other])
    zero = np.zeros(())
    return {name: one.get(name, zero) + share * (other.get(name, zero) - one.get(name, zero)) for name in names}
