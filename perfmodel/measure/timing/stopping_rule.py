"""When enough samples have been taken, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.measure.timing.statistics import relative_standard_error

CONVERGED = "converged"
STABLE = "noise has stabilised"
TIME_LIMIT = "time limit"
SAMPLE_LIMIT = "sample limit"

#: noise counts as stable when its last estimates, at least and at most this many, deviate by less than this share from
#: the latest one; it is judged once in this many samples. The numbers are nvbench's (stdrel_criterion.cxx).
_FEWEST_ESTIMATES, _MOST_ESTIMATES, _EVERY, _STABLE = 64, 512, 16, 0.05


class StoppingRule(Protocol):
    """Decides after each sample whether to stop."""

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return why to stop, or an empty string to go on."""
        ...


@dataclass(frozen=True)
class StandardErrorRule:
    """Stop when the mean is known to a relative standard error, when the noise has stabilised, or at a limit.

    The relative standard error of the mean is s / (sqrt(n) mean), with s the standard deviation of n samples. The noise
    is s / mean. Once its last estimates agree, the samples show how noisy the call is, and more of them add little
    (nvbench's criterion).

    Attributes
    ----------
    relative_standard_error : target, as a fraction.
    min_samples, max_samples : fewest samples before it may converge, and most samples.
    time_limit_s : longest time for all samples of one kernel, including the cache flushes between them [s]. It may stop
        before ``min_samples``, but not before the first sample.
    min_time_s : shortest time for all samples [s], so that they cover several states of clock and memory. The time
        limit takes precedence.
    """

    relative_standard_error: float = 0.01
    min_samples: int = 10
    max_samples: int = 10_000
    time_limit_s: float = 5.0
    min_time_s: float = 0.0

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return "converged", "noise has stabilised", "sample limit" or "time limit", or an empty string to go on."""
        count = len(samples_s)
        # Judging takes time too: many samples are judged only once in a while.
        is_due = count <= _FEWEST_ESTIMATES or count % _EVERY == 0
        if is_due and count >= self.min_samples and elapsed_s >= self.min_time_s:
            if relative_standard_error(samples_s) < self.relative_standard_error:
                return CONVERGED
            if count > _FEWEST_ESTIMATES and noise_has_stabilised(samples_s):
                return STABLE
        if count >= self.max_samples:
            return SAMPLE_LIMIT
        return TIME_LIMIT if count and elapsed_s >= self.time_limit_s else ""


def noise_has_stabilised(samples_s: Sequence[float]) -> bool:
    """Whether the last estimates of the noise, s / mean after each sample, deviate by less than 5 % from the latest.

    At least 64 estimates are needed; the last 512 count.
    """
    noise = noise_estimates(samples_s)[-_MOST_ESTIMATES:]
    if noise.size <= _FEWEST_ESTIMATES or not noise[-1] > 0:
        return False
    return bool(math.sqrt(np.mean((noise - noise[-1]) ** 2)) < _STABLE * noise[-1])


def noise_estimates(samples_s: Sequence[float]) -> NDArray[np.float64]:
    """Return s / mean of the first n samples, for each n from 2 on.

    >>> noise_estimates([1.0, 3.0, 2.0]).round(4).tolist()  # s = sqrt(2), mean 2; then s = 1, mean 2
    [0.7071, 0.5]
    """
    values = np.asarray(samples_s, dtype=np.float64)
    shift = values[0]  # sums of squares about a nearby value lose no digits
    count = np.arange(1, values.size + 1)
    sums, squares = np.cumsum(values - shift), np.cumsum((values - shift) ** 2)
    variance = np.maximum(squares - sums**2 / count, 0.0)[1:] / (count[1:] - 1)
    return np.asarray(np.sqrt(variance) / (shift + sums[1:] / count[1:]))
