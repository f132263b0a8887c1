"""Amdahl's law: what a local speedup is worth overall. Pure functions, scalar or array alike.

Source: G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing
capabilities", AFIPS Spring Joint Computer Conference, 1967, doi:10.1145/1465482.1465560.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError


def amdahl_speedup(fraction: Number, local_speedup: Number) -> Number:
    """Return the overall speedup when a fraction of the time is made faster.

    Amdahl 1967: S = 1 / ((1 - p) + p / s).

    Parameters
    ----------
    fraction : p, the share of the time that is made faster, 0 to 1.
    local_speedup : s, old over new time of that part, above 0; infinite where it takes no time afterwards.

    Raises
    ------
    UsageError
        When a fraction is not from 0 to 1, or a speedup is not above 0.

    >>> round(amdahl_speedup(0.5, 2.0), 3), amdahl_speedup(0.4, 2.0)
    (1.333, 1.25)
    """
    p = _checked("fraction", fraction, 0.0, 1.0)
    s = np.asarray(local_speedup, dtype=np.float64)
    if not (s > 0).all():
        raise UsageError(f"local_speedup={local_speedup} is not above 0.", remedy="It is the old over the new time.")
    with np.errstate(divide="ignore", over="ignore"):
        return plain(1.0 / ((1.0 - p) + p / s))


def amdahl_limit(fraction: Number) -> Number:
    """Return the overall speedup when the fraction p of the time takes no time at all: 1 / (1 - p), Amdahl 1967.

    Raises
    ------
    UsageError
        When a fraction is not from 0 to 1.

    >>> round(amdahl_limit(0.24), 3)
    1.316
    """
    return amdahl_speedup(fraction, np.inf)


def combined_time_s(times_s: Sequence[float], local_speedups: Sequence[float]) -> float:
    """Return the time of a run whose parts are made faster each on its own: T = sum of t_i / s_i [s].

    Amdahl's law for many parts; with two parts, one of them unchanged, it is `amdahl_speedup`.

    >>> combined_time_s([50.0, 30.0, 20.0], [2.0, 3.0, 1.0])
    55.0
    """
    with np.errstate(over="ignore"):
        return float(np.sum(np.divide(times_s, local_speedups)))


def time_saved_fraction(speedup: Number) -> Number:
    """Return the share of the time that a speedup saves: 1 - 1 / S. Throughput rises by S - 1, which is more.

    >>> time_saved_fraction(1.25)
    0.19999999999999996
    """
    with np.errstate(over="ignore"):
        return plain(1.0 - np.divide(1.0, speedup))


def roi_per_day(speedup: Number, dev_days: Number) -> Number:
    """Return the gain in throughput for one day of development: (S - 1) / days.

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
    negative fraction: then something other than the number of processors changed.

    Parameters
    ----------
    speedup : S, time on one processor over time on n, above 0.
    processors : n, above 1.

    Raises
    ------
    UsageError
        When a speedup is not above 0, or n is not above 1.

    >>> round(serial_fraction(2.5, 4), 4), round(serial_fraction(3.8, 4), 4)
    (0.2, 0.0175)
    """
    s, n = np.asarray(speedup, dtype=np.float64), np.asarray(processors, dtype=np.float64)
    if not ((s > 0).all() and (n > 1).all()):
        raise UsageError(f"speedup={speedup} on processors={processors}: needs a speedup above 0, processors above 1.")
    return plain((n / s - 1.0) / (n - 1.0))


def _checked(name: str, value: Number, low: float, high: float) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if not ((array >= low) & (array <= high)).all():
        raise UsageError(f"{name}={value} is not from {low:g} to {high:g}.")
    return array
