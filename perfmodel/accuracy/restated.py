"""The intervals of constants once rows of a machine are known: narrower than those of an unknown one, or wider."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Floats
from perfmodel.accuracy.libraries import USUAL_ROWS
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.latency.constants import Constants
from perfmodel.prediction.uncertainty import half_width

#: correlation of the errors of one shape, measured again in another version of a library: assumed
ONE_SHAPE = 0.5
#: a held-out residual counts for at most so many robust scales of them, in the interval of a regime with few rows
OUTLYING = 3.0


def independent_rows(shapes: Floats) -> float:
    """Return how many independent rows tell as much as those of some shapes, m of each.

    The errors of rows of one shape correlate with r, so that n rows tell as much as n / (1 + (m - 1) r) (the design
    effect of clusters: Kish, "Survey sampling", 1965, section 5.4).
    """
    each = shapes.size / max(1, np.unique(shapes).size)
    return shapes.size / (1.0 + max(0.0, each - 1.0) * ONE_SHAPE)


def narrowed(
    start: Constants, log_ratio: Floats, regime: NDArray[np.intp], rows: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """Return the intervals of some constants after independent rows of each regime, of their held-out residuals.

    Shapes differ with variance k v: v is that of other machines, and the scale k of this one is `_scale` of its rows of
    all regimes. What the constants had not seen adds `_left`.
    """
    stated = dict(start.intervals)
    usual = np.array(start.variances.get(ErrorSource.SHAPE, (0.0,) * len(REGIMES)))
    if not usual.all():
        return stated
    scale = _scale(log_ratio**2 / usual[regime], sum(rows))
    for index, name in enumerate(REGIMES):
        shape = scale * float(usual[index])
        if rows[index]:
            end = math.exp(half_width([shape, _left(start, index, shape, rows[index])]))
            stated[name] = (max(stated[name][0], 1.0 / end), min(stated[name][1], end))
    return stated


def restated(
    start: Constants, log_ratio: Floats, regime: NDArray[np.intp], rows: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """Return the intervals of constants that have followed some rows: what their held-out residuals show.

    The scale k of a regime's shapes is `_scale` of its own rows, or that of all rows where both narrow: the residuals
    of one regime say little of how far another is off. A row that is off by more than `OUTLYING` robust scales counts
    as one that is off by as much (Winsorised), and four of five rows are inside. A regime without rows keeps its
    interval, or has a wider one where those with rows have.
    """
    stated = dict(start.intervals)
    usual = np.array(start.variances.get(ErrorSource.SHAPE, (0.0,) * len(REGIMES)))
    if not usual.all():
        return stated
    off = np.abs(log_ratio)
    squares = np.minimum(off, OUTLYING * 1.4826 * float(np.median(off))) ** 2 / usual[regime]
    together = _scale(squares, sum(rows))
    own = [_scale(squares[regime == index], count) for index, count in enumerate(rows)]
    if together < 1.0:
        own = [scale if scale > 1.0 else together for scale in own]
    # of their logarithms, since regimes differ in v by more than in what their rows are off by
    typical = math.exp(sum(count * math.log(scale) for count, scale in zip(rows, own, strict=True)) / sum(rows))
    for index, name in enumerate(REGIMES):
        here = off[regime == index]
        shape = (own[index] if here.size else typical) * float(usual[index])
        reach = half_width([shape, _left(start, index, shape, rows[index])])
        if here.size:
            end = math.exp(max(reach, float(np.quantile(here, 0.8, method="higher"))))
            stated[name] = (1.0 / end, end)
        elif typical > 1.0:
            stated[name] = (min(stated[name][0], math.exp(-reach)), max(stated[name][1], math.exp(reach)))
    return stated


def _scale(squares: Floats, rows: float) -> float:
    """Return k = (m + sum) / (m + n) of n independent rows with a mean of r^2 / v: m is `USUAL_ROWS`.

    That is the mean of an inverse gamma distribution, whose prior says 1.
    """
    squares_sum = rows * float(np.mean(squares)) if squares.size else 0.0
    return (USUAL_ROWS + squares_sum) / (USUAL_ROWS + rows)


def _left(start: Constants, regime: int, shape: float, rows: float) -> float:
    """Return the variance that is left of what some constants had not seen (machine, library, dtype, vendor, host).

    It was V. After the n rows of a regime, whose shapes differ with variance k v, it is known up to
    V k v / (k v + n V), as a normal mean is.
    """
    unseen = sum(values[regime] for source, values in start.variances.items() if source is not ErrorSource.SHAPE)
    return unseen * shape / (shape + rows * unseen) if unseen else 0.0
