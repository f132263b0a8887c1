"""How far the ends of an interval lie from what is expected, and how independent errors add up in it."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, overload

import numpy as np

from perfmodel.core.work import Number, plain


class Interval(Protocol):
    """Both ends of an interval."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


class Stretch(NamedTuple):
    """How far the ends of an interval lie below and above what is expected: ln of both ratios, each from 0 on."""

    down: float = 0.0
    up: float = 0.0

    @classmethod
    def of(cls, interval: Interval) -> Stretch:
        """Return how far the ends of an interval of measured over predicted values lie."""
        return cls(-math.log(interval.low), math.log(interval.high))

    @classmethod
    def between(cls, expected: float, low: float, high: float) -> Stretch:
        """Return how far the ends of an interval lie from its expected value; all three in one unit."""
        return cls(math.log(expected / low), math.log(high / expected))

    def around(self, expected: float) -> tuple[float, float]:
        """Return both ends of the interval of an expected value, in its unit."""
        return expected * math.exp(-self.down), expected * math.exp(self.up)

    def beside(self, other: Stretch) -> Stretch:
        """Return how far the ends lie with a further independent error: sqrt(a^2 + b^2) at each end."""
        return Stretch(math.hypot(self.down, other.down), math.hypot(self.up, other.up))

    def without(self, part: Stretch) -> Stretch:
        """Return how far the ends lie without one of the independent errors: sqrt(a^2 - b^2) at each end, from 0 on.

        >>> Stretch(5.0, 13.0).without(Stretch(4.0, 12.0))
        Stretch(down=3.0, up=5.0)
        """
        down, up = (max(0.0, whole**2 - error**2) for whole, error in zip(self, part, strict=True))
        return Stretch(math.sqrt(down), math.sqrt(up))

    @overload
    def widened(self, expected: float, low: float, high: float) -> tuple[float, float]: ...
    @overload
    def widened(self, expected: Number, low: Number, high: Number) -> tuple[Number, Number]: ...
    def widened(self, expected: Number, low: Number, high: Number) -> tuple[Number, Number]:
        """Return both ends of an interval about an expected value, with this error as a further independent one.

        Scalar or array; all three have one unit.

        >>> Stretch(0.3, 0.4).widened(1.0, math.exp(-0.4), math.exp(0.3)) == Stretch(0.5, 0.5).around(1.0)
        True
        """
        below = np.hypot(np.log(np.divide(expected, low)), self.down)
        above = np.hypot(np.log(np.divide(high, expected)), self.up)
        return plain(np.multiply(expected, np.exp(-below))), plain(np.multiply(expected, np.exp(above)))


#: of an interval that nothing widens
NONE = Stretch()
