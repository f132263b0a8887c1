"""What waiting for the slowest of many GPUs costs: the expected maximum of N draws."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

from perfmodel.errors import UsageError

#: points of the numerical integral; the error is below 1e-4 of a standard deviation up to 10^6 draws
_POINTS = 4000


@functools.lru_cache(maxsize=256)
def expected_maximum(draws: int) -> float:
    """Return the expected maximum of N draws of a standard normal variable, in standard deviations.

    E = integral over u from 0 to 1 of Q(u^(1 / N)), with the quantile function Q: the maximum is below x with the
    probability F(x)^N. N = 2: 1 / sqrt(pi); large N: about sqrt(2 ln N).

    >>> round(expected_maximum(1), 3), round(expected_maximum(2), 3), round(expected_maximum(1024), 1)
    (0.0, 0.564, 3.2)

    Raises
    ------
    UsageError
        For fewer than one draw.
    """
    if draws < 1:
        raise UsageError(f"{draws} draws have no maximum.", place="stragglers")
    if draws == 1:
        return 0.0
    quantile = NormalDist().inv_cdf
    total = 0.0
    for index in range(_POINTS):
        # midpoints; ln keeps u^(1/N) exact where it is near 1
        below = math.log((index + 0.5) / _POINTS) / draws
        total -= quantile(-math.expm1(below))
    return total / _POINTS


def slowdown(gpus: int, deviation: float) -> float:
    """Return by how much a step is longer because all GPUs wait for the slowest.

    The time of a GPU's step is taken as log-normal about its mean: max / mean = exp(sigma E_N - sigma^2 / 2).

    Parameters
    ----------
    gpus : GPUs that wait for one another in a step.
    deviation : relative standard deviation of a GPU's own step time, 0.01 for 1 %.

    Raises
    ------
    UsageError
        For a deviation below 0 or not finite.

    >>> slowdown(512, 0.0)
    1.0
    """
    if not 0 <= deviation < 10:
        raise UsageError(f"a deviation of {deviation:g} is not from 0 to 10.", place="stragglers")
    sigma = math.sqrt(math.log1p(deviation**2))
    return math.exp(max(0.0, sigma * expected_maximum(gpus) - sigma**2 / 2.0))
