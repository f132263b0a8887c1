"""Tables over grids, linear between their points: for arrays of points, and quickly for a single one."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: whole sizes up to which the values of a curve are listed for quick look-ups, and rows of a surface that are kept
_LISTED, _KEPT = 16384, 65536


class Curve:
    """A function of one size, linear between its points and beyond the last one.

    Parameters
    ----------
    x : sizes in ascending order, from 1 on.
    y : values there.
    """

    __slots__ = ("_slope", "_values", "x", "y")

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, np.asarray(y, dtype=np.float64)
        self._slope = float((self.y[-1] - self.y[-2]) / (x[-1] - x[-2])) if len(x) > 1 else 0.0
        #: values at whole sizes; empty until they are needed
        self._values: list[float] = []

    def __call__(self, size: Array) -> Array:
        """Return the values at an array of sizes."""
        inside = np.interp(size, self.x, self.y)
        return np.asarray(inside + self._slope * np.maximum(0.0, size - self.x[-1]))

    def _list(self) -> list[float]:
        self._values = self(np.arange(_LISTED + 2.0)).tolist()
        return self._values

    def at(self, size: float) -> float:
        """Return the value at one size."""
        whole = int(size)
        if whole > _LISTED:
            return float(self(np.asarray(size)))
        values = self._values or self._list()
        left = values[whole]
        return left if whole == size else left + (size - whole) * (values[whole + 1] - left)


class Surface:
    """A function of two sizes, linear in each between the points of a grid and beyond its ends.

    Parameters
    ----------
    x, y : the grid's sizes in ascending order, two at least.
    z : values [len(x), len(y)].
    """

    __slots__ = ("_at_y", "_last", "_rows", "_x", "_y", "x", "y", "z")

    def __init__(self, x: Array, y: Array, z: Array) -> None:
        self.x, self.y, self.z = x, y, np.asarray(z, dtype=np.float64)
        self._y: list[float] = y.tolist()
        self._last = len(self._y) - 1
        self._rows: dict[float, list[float]] = {}
        #: sizes of the rows, and the values of each; empty until they are needed
        self._x: list[float] = []
        self._at_y: list[list[float]] = []

    def __call__(self, x: Array, y: Array) -> Array:
        """Return the values at an array of points."""
        i = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, len(self.x) - 2)
        j = np.clip(np.searchsorted(self.y, y, side="right") - 1, 0, len(self.y) - 2)
        u = (x - self.x[i]) / (self.x[i + 1] - self.x[i])
        v = (y - self.y[j]) / (self.y[j + 1] - self.y[j])
        z = self.z
        near = z[i, j] + v * (z[i, j + 1] - z[i, j])
        far = z[i + 1, j] + v * (z[i + 1, j + 1] - z[i + 1, j])
        return np.asarray(near + u * (far - near))

    def at(self, x: float, y: float) -> float:
        """Return the value at one point; the row of an ``x`` is kept."""
        row = self._rows.get(x) or self._row(x)
        columns = self._y
        j = bisect_right(columns, y, 1, self._last) - 1
        left, low = columns[j], row[j]
        return low + (y - left) / (columns[j + 1] - left) * (row[j + 1] - low)

    def _row(self, x: float) -> list[float]:
        """Return the values at one ``x`` and every ``y``: those of a call, without arrays of so few points."""
        if len(self._rows) >= _KEPT:
            self._rows.clear()
        if not self._x:
            self._x, self._at_y = self.x.tolist(), self(*np.meshgrid(self.x, self.y, indexing="ij")).tolist()
        sizes = self._x
        i = bisect_right(sizes, x, 1, len(sizes) - 1) - 1
        u = (x - sizes[i]) / (sizes[i + 1] - sizes[i])
        row = [near + u * (far - near) for near, far in zip(self._at_y[i], self._at_y[i + 1], strict=True)]
        self._rows[x] = row
        return row
