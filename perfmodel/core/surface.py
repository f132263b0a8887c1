"""A residual surface: what a closed form leaves over, as a smooth function of the logarithm of the sizes.

A closed form with a dozen constants is off by more than rows of one shape scatter: libraries choose kernels by rules
that no datasheet has. What is left of ln(measured / predicted) varies slowly with the sizes, so that knots some octaves
apart hold it. Between knots it is multilinear; at the ends of an axis beyond which there are no rows it is 0, and so is
everything outside. A time is multiplied by exp(f).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        """Return the knot below a point, a whole number, and how far the point is to the next one, from 0 to 1."""
        place: Any = octave - self.first
        if self.step != 1.0:
            place /= self.step
        if type(place) is float:
            return _cell(place, self.count - 1)
        np.maximum(place, 0.0, out=place)
        np.minimum(place, self.count - 1.0, out=place)
        if self.count == 2:
            return 0, place
        below = np.floor(place)
        np.minimum(below, self.count - 2.0, out=below)
        place -= below
        return below, place

    @functools.cached_property
    def data(self) -> tuple[float, float]:
        """The range of the rows, as logarithms that are rounded reach it [octaves]."""
        return self.lowest - _ROUNDING, self.highest + _ROUNDING


def _cell(place: float, cells: int) -> tuple[int, float]:
    """Return the cell of a point, and how far it is through it; points outside have the end of the nearest cell."""
    if place <= 0.0:
        return 0, 0.0
    index = int(place)
    return (index, place - index) if index < cells else (cells - 1, 1.0)


@dataclass(frozen=True, eq=False)
class Sheet:
    """The knots' values of one library: ln(measured / predicted), an array with one dimension for each axis."""

    values: NDArray[np.float64]

    def __eq__(self, other: object) -> bool:
        """Return whether all values are the same."""
        return np.array_equal(self.values, other.values) if isinstance(other, Sheet) else NotImplemented

    def __hash__(self) -> int:
        """Return a number that equal sheets share."""
        return hash(self.values.shape)

    @functools.cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """What a cell of knots is made of: a row of cells for each corner, the last axis changing first.

        It is the value of the cell's first knot, what the next knot along the last axis has more, what the next along
        the axis before has more, how much more of the former, and so on.
        """
        parts = [self.values]
        for axis in range(self.values.ndim):
            ends = (slice(None),) * axis + (slice(-1),)
            parts = [part for values in parts for part in (values[ends], np.diff(values, axis=axis))]
        return np.array([part.ravel() for part in parts])

    @functools.cached_property
    def _cells(self) -> dict[int, list[float]]:
        return {}

    def cell(self, index: int) -> list[float]:
        """Return the same of one cell, for single points; a list is kept, since numpy takes ten times as long."""
        found = self._cells.get(index)
        if found is None:
            found = self._cells[index] = self.coefficients[:, index].tolist()
        return found


@dataclass(frozen=True)
class Surface:
    """The surface of a family on a machine.

    Attributes
    ----------
    name : of its file.
    axes : the sizes that it depends on.
    sheets : library -> its values; "" is the mean of all.
    intervals : regime -> 80 % interval of measured / predicted on rows that were not fitted, inside the data.
    penalty : variance of a row about the surface, over that of the surface about 0.
    own : share of a library's own part in the variance of the surface.
    common : share of the mean that holds for a library without values of its own.
    source, date : what it was fitted on, and when.
    """

    name: str
    axes: tuple[SurfaceAxis, ...]
    sheets: Mapping[str, Sheet]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    penalty: float = 1.0
    own: float = 0.0
    common: float = 1.0
    source: str = ""
    date: str = ""

    def __hash__(self) -> int:
        """Return a number that equal surfaces share."""
        return hash((self.name, self.axes, self.source, self.date))

    def sheet(self, *names: str) -> Sheet:
        """Return the values of the first of some libraries that has any, else what holds for another one.

        Where no library is named, any of those measured may run, and their mean holds as it is.
        """
        known = (self.sheets[name] for name in names if name in self.sheets)
        return next(known, self._of_another if any(names) else self.sheets[""])

    @functools.cached_property
    def _of_another(self) -> Sheet:
        return Sheet(self.common * self.sheets[""].values)

    def at(self, sizes: Sequence[Number], sheet: Sheet) -> Number:
        """Return ln(measured / predicted) at some sizes, one for each axis; scalar or array."""
        return self.look_up(sizes, sheet)[0]

    def holds(self, sizes: Sequence[Number]) -> Any:
        """Return whether sizes lie in the range of the data."""
        return self.look_up(sizes, self.sheets[""])[1]

    def look_up(self, sizes: Sequence[Number], sheet: Sheet) -> tuple[Number, Any]:
        """Return what `at` and `holds` do, with the logarithms of the sizes taken once."""
        if np.ndarray not in map(type, sizes):
            return self._look_up_one(sizes, sheet)
        index: Any = None
        inside: Any = True
        shares: list[Any] = []
        for axis, size in zip(self.axes, sizes, strict=True):
            octave = log2(size)
            least, most = axis.data
            inside = inside & (least <= octave) & (octave <= most)
            below, share = axis.at(octave)
            if not isinstance(share, np.ndarray):  # a size that all points share leaves half of the corners
                sheet = _cut(sheet, len(shares), below, share)
                continue
            # the first cells are nobody else's, so that the index grows in their memory
            index = below if index is None else _indexed(index, axis.count - 1.0, below)
            shares.append(share)
        shares.reverse()
        # An axis of two knots has one cell: its sizes are in the shares, not in the index.
        cell = np.broadcast_to(0 if index is None else index, inside.shape).astype(np.intp)
        values: Iterator[Any] = (row.take(cell, mode="clip") for row in sheet.coefficients)  # all are in range
        for share in shares:
            values = _along(values, share)
        return next(values), inside

    def _look_up_one(self, sizes: Sequence[Any], sheet: Sheet) -> tuple[float, bool]:
        """Return the same of one point, in half of the time."""
        index, inside, shares = 0, True, []
        for (first, step, cells, least, most), size in zip(self._scales, sizes, strict=True):
            octave = math.log2(size) if size > 1.0 else 0.0
            if not least <= octave <= most:
                inside = False
            below, share = _cell((octave - first) / step, cells)
            index = index * cells + below
            shares.append(share)
        return _interpolation(len(shares))(*shares, *sheet.cell(index)), inside

    @functools.cached_property
    def _scales(self) -> tuple[tuple[float, float, int, float, float], ...]:
        """First knot, step, cells and range of the data of each axis."""
        return tuple((axis.first, axis.step, axis.count - 1, *axis.data) for axis in self.axes)


@functools.cache
def _interpolation(axes: int) -> Callable[..., float]:
    """Return the function of shares along some axes, and of a cell's coefficients, that finds the value of one point.

    It is that of `_along` for one axis after the other, the last one first, written out as one expression: with a loop
    it takes four times as long.
    """
    terms, shares = [f"v{corner}" for corner in range(2**axes)], [f"share{axis}" for axis in range(axes)]
    parameters = ", ".join([*shares, *terms])
    for share in reversed(shares):
        terms = [f"({low} + {more} * {share})" for low, more in zip(terms[::2], terms[1::2], strict=True)]
    found: Callable[..., float] = eval(f"lambda {parameters}: {terms[0]}")  # noqa: S307 -- nothing of it is given
    return found


@functools.lru_cache(maxsize=256)
def _cut(sheet: Sheet, axis: int, below: int, share: float) -> Sheet:
    """Return the values between two knots of an axis, for the axes that are left."""
    low: NDArray[np.float64] = np.take(sheet.values, below, axis)
    high: NDArray[np.float64] = np.take(sheet.values, below + 1, axis)
    return Sheet(low + share * (high - low))


def _indexed(index: Any, cells: float, below: Any) -> Any:
    """Return the index of cells that one axis more has, in the memory of the index where that has the shape of both."""
    if np.shape(index) != np.shape(below):
        return index * cells + below
    index *= cells
    index += below
    return index


def _along(values: Iterator[Any], share: Number) -> Iterator[Any]:
    """Yield the values at a share of the way along an axis; arrays are worked on in place, and few exist at a time."""
    for low in values:
        more = next(values)
        more *= share
        more += low
        yield more
