"""Lists of numbers as arrays. `struct` takes half the time that numpy does, which asks each number for its type."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.profile.timeline import Floats, Ints


def ints(values: Sequence[int]) -> Ints:
    """Return whole numbers as an array.

    Raises
    ------
    struct.error
        When one is no whole number, or has more than 64 bits.
    """
    return _packed(values, "q", np.int64)


def floats(values: Sequence[float | None]) -> Floats:
    """Return numbers as an array, NaN where one is missing.

    >>> floats([1.5, None]).tolist()
    [1.5, nan]
    """
    try:
        return _packed(values, "d", np.float64)
    except struct.error:  # some are None
        return np.array(values, dtype=np.float64)


def _packed(values: Sequence[Any], code: str, kind: type[np.generic]) -> NDArray[Any]:
    if not values:
        return np.empty(0, dtype=kind)
    buffer = bytearray(8 * len(values))
    struct.pack_into(f"={len(values)}{code}", buffer, 0, *values)
    return np.frombuffer(buffer, dtype=kind)
