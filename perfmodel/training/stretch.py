"""How far the ends of an interval lie from what is expected, and how independent errors add up in it."""

from __future__ import annotations

import math
from typing import NamedTuple

from perfmodel.training.framework import Interval


class Stretch(NamedTuple):
    """How far the ends of an interval lie below and above what is expected: ln of both ratios, each from 0 on."""

    down: float
    up: float

    @classmethod
    def of(cls, interval: Interval) -> Stretch:
        """Return how far the ends of an interval of measured over predicted values lie."""
        return cls(-math.log(interval.low), math.log(interval.high))

    def around(self, expected: float) -> tuple[float, float]:
        """Return both ends of the interval of an expected value, in its unit."""
        return expected * math.exp(-self.down), expected * math.exp(self.up)

    def beside(self, other: Stretch) -> Stretch:
        """Return how far the ends lie with a further independent error: sqrt(a^2 + b^2) at each end."""
        return Stretch(math.hypot(self.down, other.down), math.hypot(self.up, other.up))
