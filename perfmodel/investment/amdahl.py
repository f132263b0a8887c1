"""Amdahl's and Gustafson's laws: the effect of a local speedup, or of more processors. Scalars or arrays.

Sources: G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing
capabilities", AFIPS Spring Joint Computer Conference, 1967, doi:10.1145/1465482.1465560;
J. L. Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31(5), 1988, doi:10.1145/42411.42415.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.work import Number, arguments, as_floats, plain
from perfmodel.errors import UsageError

#: a local speedup this near to 1 is that of sums that were rounded: it is none
ROUNDING = 1e-12


def amdahl_speedup(fraction: Number, local_speedup: Number) -> Number:
    """Return the overall speedup if a fraction of the time is made faster.

    Amdahl 1967: S = 1 / ((1 - p) + p / s).

    Parameters
    ----------
    fraction : p, the share of the time that is made faster, 0 to 1.
    local_speedup : s, old over new time of that part, above 0; infinite if it takes no time afterwards.

    Raises
    ------
    UsageError
        If a fraction is no number from 0 to 1, a speedup is none above 0, or arrays cannot be broadcast together.

    >>> round(amdahl_speedup(0.5, 2.0), 3), amdahl_speedup(0.4, 2.0)
    (1.333, 1.25)
    """
    p, s = arguments("amdahl_speedup", fraction=fraction, local_speedup=local_speedup)
    _checked("fraction", fraction, 0.0, 1.0)
    if not (s > 0).all():
        raise UsageError(f"local_speedup={local_speedup} is not above 0.", remedy="It is the old over the new time.")
    return _amdahl(1.0 - p, s)


def _amdahl(rest: Number | np.ndarray, local_speedup: Number | np.ndarray) -> Number:
    """Return 1 / (f + (1 - f) / s), where f is the unchanged share; a fit may give f below 0 or above 1."""
    with np.errstate(divide="ignore", over="ignore"):
        speedup = 1.0 / (rest + np.divide(np.subtract(1.0, rest), local_speedup))
        none = np.abs(np.subtract(local_speedup, 1.0)) < ROUNDING
    return plain(np.where(none, 1.0, speedup))


def amdahl_limit(fraction: Number) -> Number:
    """Return the overall speedup if the fraction p of the time is removed: 1 / (1 - p), Amdahl 1967.

    Raises
    ------
    UsageError
        If a fraction is no number from 0 to 1.

    >>> round(amdahl_limit(0.24), 3)
    1.316
    """
    return amdahl_speedup(fraction, np.inf)


def time_saved_fraction(speedup: Number) -> Number:
    """Return the share of the time that a speedup saves: 1 - 1 / S. Throughput rises by the larger S - 1.

    >>> time_saved_fraction(1.25)
    0.19999999999999996
    """
    with np.errstate(over="ignore"):
        return plain(1.0 - np.divide(1.0, speedup))


def roi_per_day(speedup: Number, dev_days: Number) -> Number:
    """Return the gain in throughput per day of development: (S - 1) / days.

    Parameters
    ----------
    speedup : S, the overall speedup.
    dev_days : days of work, above 0.

    >>> round(roi_per_day(4 / 3, 2.0), 4)
    0.1667
    """
    return plain(np.divide(np.subtract(speedup, 1.0), dev_days))


def parallel_efficiency(speedup: Number, processors: Number) -> Number:
    """Return the share of n processors that a speedup over one of them uses: S / n.

    >>> parallel_efficiency(2.5, 4)
    0.625
    """
    return plain(np.divide(speedup, processors))


def serial_fraction(speedup: Number, processors: Number) -> Number:
    """Return the serial fraction that explains a measured speedup: f = (n / S - 1) / (n - 1).

    Amdahl's 1 / S = f + (1 - f) / n, solved for f: A. H. Karp, H. P. Flatt, "Measuring parallel processor
    performance", Communications of the ACM 33(5), 1990, doi:10.1145/78607.78614. A speedup above n gives a
    negative fraction: something besides the number of processors changed.

    Parameters
    ----------
    speedup : S, time on one processor over time on n, above 0.
    processors : n, above 1.

    Raises
    ------
    UsageError
        If a speedup is no number above 0, n is none above 1, or arrays cannot be broadcast together.

    >>> round(serial_fraction(2.5, 4), 4), round(serial_fraction(3.8, 4), 4)
    (0.2, 0.0175)
    """
    s, n = arguments("serial_fraction", speedup=speedup, processors=processors)
    if not ((s > 0).all() and (n > 1).all()):
        raise UsageError(f"speedup={speedup} on processors={processors}: needs a speedup above 0, processors above 1.")
    return plain((n / s - 1.0) / (n - 1.0))


def gustafson_speedup(serial: Number, processors: Number) -> Number:
    """Return the scaled speedup, the work of n processors over that of one in the same time: S = n - f (n - 1).

    Gustafson 1988 (doi:10.1145/42411.42415). Amdahl fixes the work and asks for the time; Gustafson fixes the
    time and lets the parallel part of the work grow with n, as in weak scaling (the batch grows with the GPUs).

    Parameters
    ----------
    serial : f, the serial share of the time on n processors, 0 to 1. Amdahl's f is the share of the time on one
        processor, f_1 = f / (f + (1 - f) n); with it both laws give the same speedup.
    processors : n, 1 or more.

    Raises
    ------
    UsageError
        If the share is no number from 0 to 1, n is none from 1 on, or arrays cannot be broadcast together.

    >>> gustafson_speedup(0.2, 4), round(gustafson_speedup(0.004, 1024), 3)
    (3.4, 1019.908)
    """
    f, n = arguments("gustafson_speedup", serial=serial, processors=processors)
    _checked("serial", serial, 0.0, 1.0)
    _checked("processors", processors, 1.0, np.inf)
    return plain(n - f * (n - 1.0))


@dataclass(frozen=True)
class ScalingFit(Reportable):
    """A measured scaling curve and the serial fraction that fits it best.

    Attributes
    ----------
    processors, speedups : the measured points: n, and S, time on one processor over time on n.
    serial_fraction : f of the fit. It is below 0 for speedups above n, and above 1 for speedups below 1.
    each : f of each point with n above 1, in the given order (see `serial_fraction`). If it rises with n, the cost is a
        growing overhead (communication) instead of serial work, and the fit is too optimistic for more processors.
    error : root mean square difference between fitted and measured relative time 1 / S.
    """

    processors: tuple[float, ...]
    speedups: tuple[float, ...]
    serial_fraction: float
    each: tuple[float, ...]
    error: float

    def speedup(self, processors: Number) -> Number:
        """Return the speedup of the fit on n processors: 1 / (f + (1 - f) / n), with f at least 0."""
        return _amdahl(max(self.serial_fraction, 0.0), _checked("processors", processors, 1.0, np.inf))

    @property
    def max_speedup(self) -> float:
        """The limit for any number of processors, 1 / f; infinite if nothing is serial."""
        return 1.0 / self.serial_fraction if self.serial_fraction > 0 else float("inf")


def fit_scaling(processors: Sequence[float], speedups: Sequence[float]) -> ScalingFit:
    """Return the serial fraction of a measured scaling curve.

    Least squares over 1 / S = f + (1 - f) / n. With x = 1 / n and y = 1 / S that is y - x = f (1 - x), a line
    through 0, so f = sum((y - x) (1 - x)) / sum((1 - x)^2). A point at n = 1 has no weight.

    Parameters
    ----------
    processors : n of each point, 1 or more; at least one above 1.
    speedups : S of each point, time on one processor over time on n, above 0.

    Raises
    ------
    UsageError
        If the two differ in length, a value is out of range, or no point has n above 1.

    >>> fit = fit_scaling([2, 4, 8], [1.9048, 3.4783, 5.9259])
    >>> round(fit.serial_fraction, 3), round(fit.speedup(64), 2), round(fit.max_speedup, 1)
    (0.05, 15.42, 20.0)
    """
    n, s = as_floats("processors", processors).ravel(), as_floats("speedups", speedups).ravel()
    if n.size != s.size:
        raise UsageError(f"{n.size} numbers of processors, {s.size} speedups.", remedy="Give one speedup for each.")
    if not ((n >= 1).all() and np.isfinite(n).all() and (n > 1).any()):
        raise UsageError(f"processors={processors}: each is 1 or more, and one of them above 1.")
    if not ((s > 0).all() and np.isfinite(s).all()):
        raise UsageError(f"speedups={speedups}: each is above 0.")
    x, y = 1.0 / n, 1.0 / s
    f = float(np.sum((y - x) * (1.0 - x)) / np.sum((1.0 - x) ** 2))
    error = float(np.sqrt(np.mean((f + (1.0 - f) * x - y) ** 2)))
    several = n > 1
    each = tuple(np.atleast_1d(serial_fraction(s[several], n[several])).tolist())
    return ScalingFit(tuple(n.tolist()), tuple(s.tolist()), f, each, error)


def _checked(name: str, value: Number, low: float, high: float) -> np.ndarray:
    array = as_floats(name, value)
    if not ((array >= low) & (array <= high)).all():
        raise UsageError(f"{name}={value} is not from {low:g} to {high:g}.")
    return array
