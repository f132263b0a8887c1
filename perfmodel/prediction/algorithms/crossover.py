"""Where one algorithm overtakes another: bisection over a size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: sizes of the search for each factor of two, and those of a plot
STEPS_PER_OCTAVE = 2
#: sizes are narrowed down to this share, or to one
PRECISION = 1e-3


@dataclass(frozen=True)
class Crossover:
    """A size from which on another algorithm is the fastest.

    Attributes
    ----------
    size : the first size at which ``after`` is faster.
    before, after : the algorithms below it and from it on.
    time_s : what both take there, as predicted [s].
    """

    size: float
    before: str
    after: str
    time_s: float


def grid(low: float, high: float) -> list[float]:
    """Return whole sizes between two, evenly spaced in the logarithm.

    >>> grid(1, 8)
    [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    """
    count = max(2, math.ceil(STEPS_PER_OCTAVE * math.log2(high / low)) + 1)
    return sorted({float(round(size)) for size in np.geomspace(low, high, count)})


def bisect(changed: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest whole size above ``low``, to 0.1 %, at which a condition holds that holds at ``high``.

    >>> bisect(lambda size: size * size > 50, 1, 100)
    8.0
    """
    while high - low > max(1.0, PRECISION * high):
        middle = float(math.floor(math.sqrt(low * high))) if high > 4 * low else float(math.floor((low + high) / 2.0))
        middle = min(max(middle, low + 1.0), high - 1.0)
        low, high = (low, middle) if changed(middle) else (middle, high)
    return high


def crossing(difference: Callable[[float], float], sizes: Sequence[float]) -> float | None:
    """Return the first size at which a difference changes its sign between two of ``sizes``; None where it never does.

    A difference that is not finite, where one of two algorithms cannot run, has no sign.
    """
    before: tuple[float, float] | None = None
    for size in sizes:
        value = difference(size)
        if not math.isfinite(value) or value == 0.0:
            continue
        if before is not None and (value > 0.0) != (before[1] > 0.0):
            return bisect(lambda s, rising=value > 0.0: (difference(s) > 0.0) == rising, before[0], size)  # type: ignore[misc]
        before = (size, value)
    return None
