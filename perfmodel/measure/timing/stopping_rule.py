"""When enough samples have been taken, and why it stopped there."""

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

#: noise is judged stable from the last estimates of it, at least and at most this many, every so many samples, when
#: they stray by less than this from the last one: nvbench's numbers (stdrel_criterion.cxx)
_FEWEST_ESTIMATES, _MOST_ESTIMATES, _EVERY, _STABLE = 64, 512, 16, 0.05


class StoppingRule(Protocol):
    """What the timer asks after each sample."""

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return why to stop, or an empty string to go on."""
        ...


@dataclass(frozen=True)
class StandardErrorRule:
    """Stop when the mean is known to a relative standard error, when more samples tell no more, or at a limit.

    The relative standard error of the mean is s / (sqrt(n) mean), with s the standard deviation of n samples. Noise
    is s / mean; where its last estimates agree, the call is as noisy as that, and the samples show it
    (nvbench's criterion).

    Attributes
    ----------
    relative_standard_error : target, as a fraction.
    min_samples, max_samples : fewest samples before it may converge, and most samples.
    time_limit_s : longest time for all samples of one kernel, with the cache flushes between them [s]. A limit
        stops with fewer than ``min_samples``, but never with none.
    min_time_s : shortest time for them [s], so that several states of clock and memory are among them; the time limit
        goes before it.
    """

    relative_standard_error: float = 0.01
    min_samples: int = 10
    max_samples: int = 10_000
    time_limit_s: float = 5.0
    min_time_s: float = 0.0

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return "converged", "noise has stabilised", "sample limit" or "time limit", or an empty string to go on."""
        count = len(samples_s)
        # Few samples are judged each time, many now and then: judging costs time too.
        judged = count <= _FEWEST_ESTIMATES or count % _EVERY == 0
        if judged and count >= self.min_samples and elapsed_s >= self.min_time_s:
            if relative_standard_error(samples_s) < self.relative_standard_error:
                return CONVERGED
            if count > _FEWEST_ESTIMATES and noise_has_stabilised(samples_s):
                return STABLE
        if count >= self.max_samples:
            return SAMPLE_LIMIT
        return TIME_LIMIT if count and elapsed_s >= self.time_limit_s else ""


def noise_has_stabilised(samples_s: Sequence[float]) -> bool:
    """Whether the last estimates of the noise, s / mean after each sample, stray by less than 5 % from the last one.

    At least 64 estimates, at most the last 512.
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
    shift = values[0]  # sums of squares about a value nearby lose no digits
    count = np.arange(1, values.size + 1)
    sums, squares = np.cumsum(values - shift), np.cumsum((values - shift) ** 2)
    variance = np.maximum(squares - sums**2 / count, 0.0)[1:] / (count[1:] - 1)
    return np.asarray(np.sqrt(variance) / (shift + sums[1:] / count[1:]))
