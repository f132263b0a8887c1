"""What numpy has, and takes long to start with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the different values of an array, the least first: `numpy.unique` imports numpy.ma for that, 10 ms.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def median(values: NDArray[np.float64]) -> float:
    """Return the median of finite numbers, at least one; `numpy.median` imports numpy.ma, too.

    >>> median(np.array([3.0, 1.0])), median(np.array([3.0, 1.0, 7.0]))
    (2.0, 3.0)
    """
    ordered = np.sort(values)
    return float(ordered[(ordered.size - 1) // 2 : ordered.size // 2 + 1].mean())
