"""The standard error of a median: from the samples themselves, or from their statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.report import number
from perfmodel.errors import InputFileError

Floats = NDArray[np.float64]

#: numbers drawn for one bootstrap, and the fewest and most resamples
_DRAWN, _FEWEST, _MOST = 200_000, 100, 400
#: half the width of a 95 % interval, in standard errors
_HALF_95 = NormalDist().inv_cdf(0.975)
#: standard error of the median over that of the mean, for normal noise: sqrt(pi / 2)
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)
#: width of the middle 50 % and of the middle 90 % of a normal distribution, in standard deviations
_MIDDLE_50 = 2 * NormalDist().inv_cdf(0.75)
_MIDDLE_90 = 2 * NormalDist().inv_cdf(0.95)
#: one-sided 5 % quantile of a normal distribution, in standard errors
_CHANCE = NormalDist().inv_cdf(0.95)
#: a time outside this range is an error of a unit: light passes a third of a micrometre in the first; the second are
#: 30,000 years [s]
SHORTEST_S, LONGEST_S = 1e-15, 1e12
#: a standard error of ln(time) above this, a factor of 1e43, tells nothing
_LARGEST_ERROR = 100.0
#: the expansion of `student_quantile` holds from this many degrees of freedom up
_LEAST_FREEDOM = 3.0


@dataclass(frozen=True)
class Centre:
    """The middle of one row's samples, with its standard error.

    Attributes
    ----------
    time_s : the median [s]; the mean if a record has no median.
    error : standard error of ln(time_s), which for small errors is the relative error; None if it is not known.
    freedom : degrees of freedom of that error.
    samples : number of samples.
    basis : what the error was computed from, in words.
    """

    time_s: float
    error: float | None
    freedom: float
    samples: int
    basis: str


def centre_of_samples(samples_s: Sequence[float] | Floats, seed: int = 0) -> Centre:
    """Return the median of samples in the order in which they were taken, with its bootstrap standard error.

    Neighbouring samples correlate if a clock drifts or a disturbance lasts, so whole blocks are drawn: the circular
    block bootstrap (Politis and Romano 1992, "A circular block-resampling procedure for stationary data"). The spread
    of n blocks about their own mean is too small by n / (n - 1), which `inflation` corrects. The degrees of freedom are
    the number of blocks less one.

    Parameters
    ----------
    samples_s : positive times [s], shape (n,), at least one.
    seed : seed of the random numbers.

    Raises
    ------
    InputFileError
        When a sample is not a believable time.
    """
    values = np.asarray(samples_s, dtype=np.float64)
    _check_times(float(values.min()), float(values.max()))
    count = values.size
    median = float(np.median(values))
    if count < 2:
        return Centre(median, None, 0.0, count, "one sample")
    rho = neighbour_correlation(values)
    length = block_length(rho, count)
    blocks = -(-count // length)
    resamples = int(np.clip(_DRAWN // count, _FEWEST, _MOST))
    starts = np.random.default_rng(seed).integers(0, count, (resamples, blocks, 1))
    drawn = ((starts + np.arange(length)) % count).reshape(resamples, -1)[:, :count]
    error = float(np.log(np.median(values[drawn], axis=1)).std(ddof=1))
    error *= inflation(rho, length, count)
    return Centre(median, _known(error), max(1.0, count / length - 1), count, "samples")


def _check_times(*times_s: float) -> None:
    """Refuse times [s] that nothing takes."""
    for time_s in times_s:
        if not SHORTEST_S <= time_s <= LONGEST_S:
            raise InputFileError(
                f"a time of {time_s:g} s is not between {SHORTEST_S:g} and {LONGEST_S:g} s.", remedy="Check its unit."
            )


def _known(error: float) -> float | None:
    """Return a standard error of ln(time), None for one that tells nothing."""
    return error if error <= _LARGEST_ERROR else None


def neighbour_correlation(samples_s: Floats) -> float:
    """Return the correlation of the ranks of neighbouring samples, from 0 to 0.99.

    Ranks replace the samples, so that a few slow samples do not hide that the others drift. A correlation that n
    independent samples exceed by chance one time in twenty, 1.64 / sqrt(n), counts as 0. To a larger one,
    (1 + 4 rho) / n is added, the bias of few samples (Kendall 1954, Biometrika 41:403).

    >>> neighbour_correlation(np.array([1.0, 9.0, 2.0, 8.0]))
    0.0
    """
    ranks = np.argsort(np.argsort(samples_s)).astype(np.float64)
    ranks -= ranks.mean()
    power = float(ranks @ ranks)
    rho = float(ranks[1:] @ ranks[:-1]) / power if power else 0.0
    if rho < _CHANCE / math.sqrt(ranks.size):
        return 0.0
    return min(rho + (1 + 4 * rho) / ranks.size, 0.99)


def block_length(rho: float, count: int) -> int:
    """Return how many neighbours to draw together: 1 for independent samples.

    1.1447 (4 rho^2 / (1 - rho^2)^2 n)^(1/3) for noise whose neighbours correlate by rho: Andrews 1991,
    "Heteroskedasticity and autocorrelation consistent covariance matrix estimation", Econometrica 59:817, equations
    6.2 and 6.4. At most a quarter of the samples.
    """
    length = 1.1447 * (4 * rho**2 / (1 - rho**2) ** 2 * count) ** (1 / 3)
    return int(np.clip(round(length), 1, max(1, count // 4)))


def inflation(rho: float, length: int, count: int) -> float:
    """Return the factor by which a standard error from blocks of some length is too small, for AR(1) noise.

    The mean of b neighbours has the variance s^2 v(b) / b with v(b) = 1 + 2 sum_k (1 - k / b) rho^k, k from 1 to
    b - 1. Blocks of b see v(b), less the variance of the mean of all n: v(b) - v(n) b / n instead of v(n).
    """
    seen = _variance_factor(rho, length) - _variance_factor(rho, count) * length / count
    return math.sqrt(max(1.0, _variance_factor(rho, count) / max(seen, 0.05)))


def _variance_factor(rho: float, count: int) -> float:
    """Return v(count), see `inflation`."""
    k = np.arange(1, count)
    return 1.0 + 2.0 * float(((1 - k / count) * rho**k).sum())


def centre_of_statistics(statistics: Mapping[str, Any]) -> Centre | None:
    """Return the median of a record's statistics, with its standard error; None without median and mean.

    The first of these that the record has counts, with n independent samples of standard deviation s (normal noise is
    assumed if only a spread is known):

    - ``median_low`` and ``median_high``, the ends of a 95 % interval: (high - low) / (2 x 1.96 median);
    - quartiles: s = (p75 - p25) / 1.35, and 1.25 s / (sqrt(n) median), after McGill, Tukey and Larsen 1978,
      "Variations of box plots", The American Statistician 32:12;
    - quantiles: s = (p95 - p05) / 3.29, and the same;
    - ``stdev``: s itself, and the same; without a median s / (sqrt(n) mean).

    Parameters
    ----------
    statistics : median, mean, stdev, p05, p25, p75, p95, median_low, median_high [s], samples; all optional.

    Raises
    ------
    InputFileError
        When the median or mean is not a believable time.
    """
    numbers = {key: number(value) for key, value in statistics.items()}
    values = {key: value for key, value in numbers.items() if value is not None}
    time_s = values.get("median", values.get("mean"))
    if time_s is None or time_s <= 0:
        return None
    _check_times(time_s)
    samples = int(values.get("samples", 1))
    if samples < 2:
        return Centre(time_s, None, 0.0, samples, "one sample")
    for low, high, basis, width in _SPREADS:
        if low in values and high in values and "median" in values:
            error = (values[high] - values[low]) / width / time_s
            if basis != _INTERVAL:
                error *= _MEDIAN_OVER_MEAN / math.sqrt(samples)
            return Centre(time_s, _known(error), samples - 1.0, samples, basis)
    if "stdev" not in values:
        return Centre(time_s, None, 0.0, samples, "no spread")
    factor = _MEDIAN_OVER_MEAN if "median" in values else 1.0
    error = factor * values["stdev"] / math.sqrt(samples) / time_s
    return Centre(time_s, _known(error), samples - 1.0, samples, "standard deviation")


_INTERVAL = "interval of the median"
#: keys of the lower and upper end, their name, and their distance in standard deviations
_SPREADS = (
    ("median_low", "median_high", _INTERVAL, 2 * _HALF_95),
    ("p25", "p75", "quartiles", _MIDDLE_50),
    ("p05", "p95", "5 and 95 % quantiles", _MIDDLE_90),
)


def student_quantile(tail: float, freedom: float) -> float:
    """Return the value that Student's t exceeds with probability ``tail``.

    Abramowitz and Stegun 1964, "Handbook of mathematical functions", 26.7.5: an expansion about the normal quantile,
    within 2 % from 3 degrees of freedom on (fewer count as 3) for tails down to 0.002.

    >>> round(student_quantile(0.025, math.inf), 3)
    1.96
    >>> round(student_quantile(0.025, 10.0), 3)
    2.228
    """
    z = NormalDist().inv_cdf(1 - tail)
    v = max(freedom, _LEAST_FREEDOM)
    terms = (
        z,
        (z**3 + z) / (4 * v),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4),
    )
    return sum(terms)
