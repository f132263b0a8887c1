"""Parts of arrays that were broadcast, in row-major order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def span(array: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
    """Return ``array.flat[start:stop]``, which takes numpy ten times as long for an array that was broadcast."""
    if array.ndim == 1:
        return np.ascontiguousarray(array[start:stop])  # numpy computes with others at half the speed
    into = np.empty(stop - start, array.dtype)
    _fill(into, array, start)
    return into


def _fill(into: NDArray[np.float64], array: NDArray[np.float64], start: int) -> None:
    """Write the numbers of an array from a place on, in row-major order, into memory that they fill."""
    if array.ndim == 1:
        into[:] = array[start : start + into.size]
        return
    size, stop = math.prod(array.shape[1:]), start + into.size
    first, last = start // size, (stop - 1) // size
    if first == last:
        _fill(into, array[first], start - first * size)
        return
    head, tail = (first + 1) * size - start, stop - last * size
    _fill(into[:head], array[first], size - head)
    into[head:-tail].reshape(-1, *array.shape[1:])[:] = array[first + 1 : last]
    _fill(into[-tail:], array[last], 0)
