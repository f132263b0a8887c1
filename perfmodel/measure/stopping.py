"""When enough samples have been taken, and why it stopped there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

CONVERGED = "converged"
TIME_LIMIT = "time limit"
SAMPLE_LIMIT = "sample limit"


class StoppingRule(Protocol):
    """What the timer asks after each sample."""

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return why to stop, or an empty string to go on."""
        ...


@dataclass(frozen=True)
class StandardErrorRule:
    """Stop when the mean is known to a relative standard error, or a limit is reached.

    The relative standard error of the mean is s / (sqrt(n) mean), with s the standard deviation of n samples.

    Attributes
    ----------
    relative_standard_error : target, as a fraction.
    min_samples, max_samples : fewest samples before it may converge, and most samples.
    time_limit_s : longest time for all samples of one kernel, with the cache flushes between them [s]. A limit
        stops with fewer than ``min_samples``, but never with none.
    """

    relative_standard_error: float = 0.01
    min_samples: int = 10
    max_samples: int = 10_000
    time_limit_s: float = 5.0

    def reason(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return "converged", "sample limit" or "time limit", or an empty string to go on."""
        count = len(samples_s)
        if count >= self.min_samples and relative_standard_error(samples_s) < self.relative_standard_error:
            return CONVERGED
        if count >= self.max_samples:
            return SAMPLE_LIMIT
        return TIME_LIMIT if count and elapsed_s >= self.time_limit_s else ""


def relative_standard_error(samples_s: Sequence[float]) -> float:
    """Return the standard error of the mean over the mean; infinite for fewer than two samples.

    >>> round(relative_standard_error([1.0, 1.1, 0.9, 1.0]), 4)
    0.0408
    """
    values = np.asarray(samples_s)
    mean = float(values.mean()) if values.size else 0.0
    if values.size < 2 or mean <= 0:
        return math.inf
    return float(values.std(ddof=1) / (math.sqrt(values.size) * mean))
