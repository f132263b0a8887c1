"""Whether a memory grows for good: Mann and Kendall's test of a trend, Theil and Sen's slope, and a leak by both."""

from __future__ import annotations

import math

import numpy as np

from perfmodel.measure.monitor.series import Floats

#: share of a series that counts as its warm-up: caches and allocators fill
WARM_UP = 0.2
#: blocks into which the rest is cut: the smallest value of a block is memory that no phase of a cycle returned
_BLOCKS, _SHORTEST_BLOCK = 30, 3
#: samples after the warm-up below which nothing is said about a leak
FEWEST = 27
#: Mann-Kendall z above which a trend is one, and growth over the spread around the trend: chosen on the synthetic
#: series of tests/measure/monitor/test_findings.py so that at most 2 % of series without a leak alarm
_TREND_Z, _SIGNAL = 3.0, 8.0
#: growth in the second half over that in the first below which memory still warms up; chosen likewise
_STEADY = 0.6
#: growth in a minute, as a share of the memory in use, below which it is no leak worth a message
LEAST_GROWTH = 5e-4


def mann_kendall_z(values: Floats) -> float:
    """Return the Mann-Kendall statistic of a trend, standard normal without one (Kendall 1975, "Rank Correlation").

    S = sum over pairs i < j of sign(x_j - x_i); var = n (n - 1) (2 n + 5) / 18, less for ties; z = (S - sign(S)) / sd.

    >>> round(mann_kendall_z(np.arange(10.0)), 2), mann_kendall_z(np.ones(10))
    (3.94, 0.0)
    """
    n = values.size
    differences = np.sign(values[None, :] - values[:, None])
    s = float(np.triu(differences, 1).sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return 0.0 if variance <= 0 or s == 0 else (s - math.copysign(1.0, s)) / math.sqrt(variance)


def theil_sen(times: Floats, values: Floats) -> float:
    """Return the median of the slopes between all pairs of points (Sen 1968).

    >>> theil_sen(np.arange(5.0), np.array([0.0, 2.0, 4.0, 6.0, 100.0]))
    2.0
    """
    first, second = np.triu_indices(times.size, 1)
    apart = times[second] - times[first]
    used = apart > 0
    return float(np.median((values[second] - values[first])[used] / apart[used])) if used.any() else 0.0


def leak_rate(times: Floats, values: Floats) -> float:
    """Return how fast a memory grows for good [B/s], 0 where it does not.

    The warm-up is left out. The rest is cut into blocks, and the smallest value of each block is kept, so that
    memory which a cycle returns is none. It grows if Mann and Kendall's test says so, the growth is large against the
    scatter about the line of Theil and Sen, and it is not over: the second half grows, too, and not much slower than
    the first. A rise that ends later, as one in a cycle longer than the record, looks like a leak until then.
    """
    start = int(WARM_UP * values.size)
    times, values = times[start:], values[start:]
    if values.size < FEWEST:
        return 0.0
    block = max(_SHORTEST_BLOCK, values.size // _BLOCKS)
    count = values.size // block
    edges = values.size - count * block
    lows = values[edges:].reshape(count, block).min(axis=1)
    at = times[edges:].reshape(count, block).mean(axis=1)
    if mann_kendall_z(lows) < _TREND_Z:
        return 0.0
    slope = theil_sen(at, lows)
    line = np.median(lows - slope * at) + slope * at
    scatter = 1.4826 * float(np.median(np.abs(lows - line)))
    half = count // 2
    earlier, later = theil_sen(at[: count - half], lows[: count - half]), theil_sen(at[half:], lows[half:])
    grown = slope * float(at[-1] - at[0])
    per_minute = 60.0 * slope
    if (
        grown < _SIGNAL * scatter
        or later < max(0.3 * slope, _STEADY * earlier)
        or per_minute < LEAST_GROWTH * float(lows[-1])
    ):
        return 0.0
    return slope
