"""Statistics of samples: quantiles, spread, and how well the median is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.comparison.noise import centre_of_samples, neighbour_correlation, student_quantile

Floats = NDArray[np.float64]

#: resamples of the bootstrap; the ends of a 95 % interval are the 100th from either side
_RESAMPLES = 4000
_CONFIDENCE = 0.95
#: fewest samples from which a correlation of neighbours can be told, and an exponent that overflows nowhere
_LEAST_CORRELATED, _LARGEST_LOG = 10, 700.0
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def summary(samples_s: Sequence[float], seed: int = 0) -> dict[str, float | int | None]:
    """Return the statistics of a record [s].

    median, mean, stdev, min, max, p05, p25, p75, p95, samples (their number), median_low and median_high (95 %
    bootstrap interval of the median), relative_standard_error (of the mean, a fraction; None for one sample).
    The standard deviation is the sample's (n - 1); quantiles interpolate linearly (numpy's default).
    """
    values = np.asarray(samples_s, dtype=np.float64)
    p05, p25, median, p75, p95 = (float(q) for q in np.quantile(values, _QUANTILES))
    low, high = median_interval(values, seed)
    error = relative_standard_error(values)
    return {
        "median": median,
        "mean": float(values.mean()),
        "stdev": float(values.std(ddof=1)) if values.size > 1 else 0.0,
        "min": float(values.min()),
        "max": float(values.max()),
        "p05": p05,
        "p25": p25,
        "p75": p75,
        "p95": p95,
        "median_low": low,
        "median_high": high,
        "relative_standard_error": error if math.isfinite(error) else None,
        "samples": int(values.size),
    }


def relative_standard_error(samples_s: Sequence[float] | Floats) -> float:
    """Return the standard error of the mean over the mean, s / (sqrt(n) mean); infinite for fewer than two samples.

    >>> round(relative_standard_error([1.0, 1.1, 0.9, 1.0]), 4)
    0.0408
    """
    values = np.asarray(samples_s)
    mean = float(values.mean()) if values.size else 0.0
    if values.size < 2 or mean <= 0:
        return math.inf
    return float(values.std(ddof=1) / (math.sqrt(values.size) * mean))


def median_interval(samples_s: Sequence[float] | Floats, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median: that of percentiles (Efron and Tibshirani 1993, chapter 13).

    That one assumes independent samples. Where neighbours correlate, since a clock drifts or a disturbance lasts, whole
    blocks are drawn instead (`perfmodel.comparison.noise.centre_of_samples`), and the interval is median exp(+- t s)
    with Student's t for the number of blocks, within the samples. Of series with a correlation of 0.9 it then holds the
    true median in 9 cases of 10 (scripts/coverage_of_medians.py); percentiles of single samples hold it in 4.

    >>> median_interval([3.0])
    (3.0, 3.0)
    """
    values = np.asarray(samples_s, dtype=np.float64)
    if values.size >= _LEAST_CORRELATED and neighbour_correlation(values) > 0:
        centre = centre_of_samples(values, seed)
        half = student_quantile((1 - _CONFIDENCE) / 2, centre.freedom) * (centre.error or 0.0)
        ends = centre.time_s * math.exp(-half), centre.time_s * math.exp(min(half, _LARGEST_LOG))
        return max(ends[0], float(values.min())), min(ends[1], float(values.max()))
    medians = bootstrap_medians(np.sort(values), seed)
    low, high = np.quantile(medians, ((1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2))
    return float(low), float(high)


def bootstrap_medians(ordered: Floats, seed: int, resamples: int = _RESAMPLES) -> Floats:
    """Return the medians of resamples with replacement, without drawing whole resamples.

    A resample draws n times an index floor(n U), U uniform in [0, 1). Its k-th smallest value is the sample at
    floor(n U_(k)), and the k-th smallest of n uniforms is Beta(k, n + 1 - k). The next one is the smallest of the n - k
    that are left, uniform in [U_(k), 1): 1 - U_(k+1) = (1 - U_(k)) V^(1 / (n - k)). (H. A. David and
    H. N. Nagaraja, "Order Statistics", 3rd ed. 2003, sections 2.1 and 2.5.) Each resample takes two draws, for any n.

    Parameters
    ----------
    ordered : the samples in ascending order, shape (n,).
    seed : of the random numbers.
    resamples : how many medians.
    """
    n = ordered.size
    generator = np.random.default_rng(seed)
    k = (n + 1) // 2
    lower = generator.beta(k, n + 1 - k, resamples)
    index = np.minimum((n * lower).astype(np.intp), n - 1)
    if n % 2:
        return ordered[index]
    upper = 1.0 - (1.0 - lower) * generator.random(resamples) ** (1.0 / (n - k))
    above = np.minimum((n * upper).astype(np.intp), n - 1)
    return np.asarray(0.5 * (ordered[index] + ordered[above]))
