"""Times of steps by a number of prompts or sequences, for the rounds of a fixed point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.serving.cost import Array

#: sizes from 1 to the largest at which the times of steps are computed, in between they are straight
_SIZES = 12


@dataclass(frozen=True)
class SizedTimes:
    """Times of a kind of step by the number of its prompts or sequences, from 1 to ``most`` [s]."""

    most: Array
    times_s: Array

    @classmethod
    def of(cls, most: Array, time_s: Callable[[Array], Array]) -> SizedTimes:
        """Return the times that a function gives for numbers from 1 to the largest."""
        shares = np.linspace(0.0, 1.0, _SIZES).reshape(-1, *(1,) * np.ndim(most))
        return cls(most, time_s(most**shares))

    def at(self, number: Array) -> Array:
        """Return the time of a step of so many sequences [s]."""
        spread = np.log(np.maximum(self.most, 1.0 + 1e-9))
        place = np.clip(np.log(np.maximum(number, 1.0)) / spread * (_SIZES - 1), 0.0, _SIZES - 1)
        left = np.minimum(place.astype(int), _SIZES - 2)
        low, high = (np.take_along_axis(self.times_s, side[None], 0)[0] for side in (left, left + 1))
        ends = [self.most ** (side / (_SIZES - 1)) for side in (left, left + 1)]
        inside = (number - ends[0]) / np.maximum(ends[1] - ends[0], 1e-12)
        return np.asarray(low + (high - low) * np.clip(inside, 0.0, 1.0))
