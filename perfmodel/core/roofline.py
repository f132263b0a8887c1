"""The roofline model: pure functions over FLOP, bytes and ceilings, scalar or array alike.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52(4), 2009, doi:10.1145/1498765.1498785. The launch
floor is an addition for GPUs: no kernel finishes sooner than an empty one.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.record import record
from perfmodel.core.work import Number, arguments, as_floats, plain
from perfmodel.errors import UsageError


def arithmetic_intensity(flop: Number, traffic_bytes: Number) -> Number:
    """Return FLOP per byte moved [FLOP/B]; infinite where nothing is moved, 0 where nothing is computed.

    Williams et al. 2009: I = W / Q, with W the FLOP and Q the traffic to the memory level in question.

    Raises
    ------
    UsageError
        For what are no numbers from 0 on, and arrays that cannot be broadcast together.

    >>> round(float(arithmetic_intensity(2 * 4096**3, 3 * 4096**2 * 2)), 1)
    1365.3
    """
    if isinstance(flop, float) and isinstance(traffic_bytes, float) and traffic_bytes:
        return float(flop / traffic_bytes)
    work, traffic = arguments("arithmetic_intensity", flop=flop, traffic_bytes=traffic_bytes)
    _check_not_below(flop=flop, traffic_bytes=traffic_bytes)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.divide(work, traffic)
    return plain(np.where(work == 0, 0.0, value))


def _check_above(**values: Number) -> None:
    """Raise a UsageError for a figure, or one of an array of them, that is not above 0."""
    for name, value in values.items():
        if not (as_floats(name, value) > 0.0).all():
            raise UsageError(f"{name}={reprlib.repr(value)} is not above 0.")


def _check_not_below(**values: Number) -> None:
    """Raise a UsageError for a figure, or one of an array of them, that is below 0."""
    for name, value in values.items():
        if (as_floats(name, value) < 0.0).any():
            raise UsageError(f"{name}={reprlib.repr(value)} is below 0.")


def ridge_point(peak_flop_per_s: Number, bandwidth_bytes_per_s: Number) -> Number:
    """Return the intensity from which a kernel is compute-bound instead of memory-bound [FLOP/B].

    Williams et al. 2009: I* = pi / beta, peak compute over peak bandwidth.

    Raises
    ------
    UsageError
        For a peak or a bandwidth that is no number above 0, and arrays that cannot be broadcast together.

    >>> round(ridge_point(312e12, 1555e9), 1)
    200.6
    """
    figures = {"peak_flop_per_s": peak_flop_per_s, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    peak, bandwidth = arguments("ridge_point", **figures)
    _check_above(**figures)
    return plain(np.divide(peak, bandwidth))


def attainable_flop_per_s(
    intensity_flop_per_byte: Number, peak_flop_per_s: Number, bandwidth_bytes_per_s: Number
) -> Number:
    """Return the attainable rate at an arithmetic intensity [FLOP/s].

    Williams et al. 2009: P = min(pi, I beta).

    Raises
    ------
    UsageError
        For a peak or a bandwidth that is no number above 0, an intensity that is none from 0 on, and arrays that cannot
        be broadcast together.

    >>> round(float(attainable_flop_per_s(1 / 12, 19.5e12, 1555e9)) / 1e9, 1)
    129.6
    """
    figures = {"peak_flop_per_s": peak_flop_per_s, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    peak, bandwidth, intensity = arguments(
        "attainable_flop_per_s", **figures, intensity_flop_per_byte=intensity_flop_per_byte
    )
    _check_above(**figures)
    if not (intensity >= 0.0).all():
        raise UsageError(f"intensity_flop_per_byte={reprlib.repr(intensity_flop_per_byte)} is below 0.")
    return plain(np.minimum(peak, np.multiply(intensity, bandwidth)))


#: types of a single number
_PLAIN = {float, np.float64}

#: a ceiling's name; any kind of string, so that members of a vocabulary stay what they are
Name = TypeVar("Name", bound=str)


@record
class Bound:
    """The least time that the ceilings allow, and which ceiling sets it.

    ``time_s`` and ``limiter_code`` are scalars or arrays of one shape; ``names[limiter_code]`` is the limiter.
    """

    time_s: Number
    limiter_code: int | NDArray[np.int8]
    names: tuple[str, ...]

    @property
    def limiter(self) -> str | NDArray[np.str_]:
        """The binding ceiling by name: a string, or an array of strings."""
        code = self.limiter_code
        if isinstance(code, int) or code.ndim == 0:
            return self.names[int(code)]
        return np.asarray(self.names)[code]


def bound(terms: Mapping[Name, Number]) -> Bound:
    """Return the bound: the largest of the times that each ceiling alone would take [s].

    T = max_i t_i with t_compute = W / pi, t_level = Q_level / beta_level, t_launch = the launch floor.
    Where two terms are equal, the first one in the mapping is named.

    Parameters
    ----------
    terms : ceiling name -> time [s]; numbers and arrays broadcast. At least one.

    >>> bound({"compute": 2.0, "hbm": 3.0}).limiter
    'hbm'
    """
    names, times = tuple(terms), list(terms.values())
    largest, place = times[0], 0
    for index, number in enumerate(times):
        if type(number) not in _PLAIN:
            break
        if number > largest:
            largest, place = number, index
    else:
        return Bound(float(largest), place, names)
    values = [np.asarray(value, dtype=np.float64) for value in times]
    time: NDArray[np.float64] = values[0]
    code = np.zeros((), dtype=np.int8)
    for index, value in enumerate(values[1:], start=1):
        larger = value > time
        time = np.maximum(time, value)
        code = np.maximum(code, larger * np.int8(index))  # a later term has the higher index
    return Bound(plain(time), np.broadcast_to(code, time.shape), names)
