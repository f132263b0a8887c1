"""A residual surface: what a closed form leaves over, as a smooth function of the logarithm of the sizes.

A closed form with a dozen constants is off by more than rows of one shape scatter: libraries choose kernels by rules
that no datasheet has. What is left of ln(measured / predicted) varies slowly with the sizes, so that knots some octaves
apart hold it. Between knots it is multilinear; at the ends of an axis beyond which there are no rows it is 0, and so is
everything outside. A time is multiplied by exp(f).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import Number, log2

#: sizes as far as this outside the data count as inside [octaves]: logarithms are rounded
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SurfaceAxis:
    """Knots along the logarithm of a size.

    Attributes
    ----------
    name : of the size.
    first, step, count : first knot, distance of the knots, and how many there are [octaves].
    lowest, highest : the range of the rows that the surface was fitted on [octaves].
    """

    name: str
    first: float
    step: float
    count: int
    lowest: float
    highest: float

    @property
    def knots(self) -> NDArray[np.float64]:
        """All knots [octaves]."""
        return self.first + self.step * np.arange(self.count, dtype=np.float64)

    def at(self, octave: Number) -> tuple[Any, Number]:
        """Return the knot below a point, and how far the point is to the next one, from 0 to 1."""
        place = (octave - self.first) / self.step
        if isinstance(place, np.ndarray):
            place = np.clip(place, 0.0, self.count - 1.0)
            below = np.minimum(place.astype(np.intp), self.count - 2)
            return below, place - below
        place = min(max(place, 0.0), self.count - 1.0)
        index = min(int(place), self.count - 2)
        return index, place - index


@dataclass(frozen=True, eq=False)
class Sheet:
    """The knots' values of one library: ln(measured / predicted), an array with one dimension for each axis."""

    values: NDArray[np.float64]

    @functools.cached_property
    def pairs(self) -> NDArray[np.complex128]:
        """The value of each knot and, as the imaginary part, what the next one of the last axis has more; flat.

        One look-up then serves two knots.
        """
        ahead = np.diff(self.values, axis=-1, append=self.values[..., -1:])
        return (self.values + 1j * ahead).ravel()

    @functools.cached_property
    def listed(self) -> list[complex]:
        """The same for Python, which reads one number of a list faster than of an array."""
        listed: list[complex] = self.pairs.tolist()
        return listed


@dataclass(frozen=True, eq=False)
class Surface:
    """The surface of a family on a machine.

    Attributes
    ----------
    name : of its file.
    axes : the sizes that it depends on.
    sheets : library -> its values; "" is the mean of all, for a library without values of its own.
    intervals : regime -> 80 % interval of measured / predicted on rows that were not fitted, inside the data.
    penalty : variance of a row about the surface, over that of the surface about 0.
    own : share of a library's own part in the variance of the surface.
    source, date : what it was fitted on, and when.
    """

    name: str
    axes: tuple[SurfaceAxis, ...]
    sheets: Mapping[str, Sheet]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    penalty: float = 1.0
    own: float = 0.0
    source: str = ""
    date: str = ""

    def sheet(self, *names: str) -> Sheet:
        """Return the values of the first of some libraries that has any, else the mean."""
        return next((self.sheets[name] for name in names if name in self.sheets), self.sheets[""])

    @functools.cached_property
    def _strides(self) -> tuple[int, ...]:
        counts = [axis.count for axis in self.axes]
        return tuple(math.prod(counts[place + 1 :]) for place in range(len(counts)))

    @functools.cached_property
    def _corners(self) -> tuple[int, ...]:
        """Distances of the corners of a cell from its first one, without those along the last axis."""
        return tuple(sum(c) for c in _choices(self._strides[:-1]))

    def at(self, sizes: Sequence[Number], sheet: Sheet) -> Number:
        """Return ln(measured / predicted) at some sizes, one for each axis; scalar or array."""
        index: Any = 0
        shares = []
        for axis, stride, size in zip(self.axes, self._strides, sizes, strict=True):
            below, share = axis.at(log2(size))
            index = index + stride * below
            shares.append(share)
        values: list[Number] = [_along(pair, shares[-1]) for pair in self._gathered(index, sheet)]
        for share in reversed(shares[:-1]):
            values = [low + share * (high - low) for low, high in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def _gathered(self, index: Any, sheet: Sheet) -> list[Any]:
        take: Callable[[Any], Any] = sheet.pairs.take if isinstance(index, np.ndarray) else sheet.listed.__getitem__
        return [take(index + corner) for corner in self._corners]

    def holds(self, sizes: Sequence[Number]) -> Any:
        """Return whether sizes lie in the range of the data."""
        inside: Any = True
        for axis, size in zip(self.axes, sizes, strict=True):
            octave = log2(size)
            inside = inside & (octave >= axis.lowest - _ROUNDING) & (octave <= axis.highest + _ROUNDING)
        return inside


def _choices(strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the steps to each corner, the last axis changing first."""
    chosen: list[tuple[int, ...]] = [()]
    for stride in strides:
        chosen = [(*before, step) for before in chosen for step in (0, stride)]
    return chosen


def _along(pair: Any, share: Number) -> Number:
    value: Number = pair.real + share * pair.imag
    return value
