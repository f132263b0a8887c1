"""What widens the interval of a prediction: the sources of error that its constants have not seen.

The error of a prediction is taken as a sum of random effects,

    ln(measured / predicted) = shape + machine + library + dtype + vendor + link + extrapolation,

of which those vanish that the constants have seen. The table states the 10 % and 90 % quantiles of the first, and the
standard deviation s of the others (`perfmodel.core.vocabulary.ErrorSource`). The half widths of the 80 % interval add
in quadrature, below and above: low = exp(-sqrt(ln(low_shape)^2 + z^2 sum s^2)), with z = 1.2816.

Few machines and libraries differ by much more than the others, which the root of a mean square counts: more of them lie
within 1.28 s than 80 %. Both the one that was left out and the one that stands for it are taken as logistic variates.
80 % of the differences of two lie within 1.243 of their deviation, so that s is 0.970 times what the table states.

A library that nobody measured differs from the mean of the nearest table's n by 1 + 1 / n of the variance s^2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import Calibration, ErrorSource
from perfmodel.prediction.uncertainty import Z80, Uncertainty, Variances

#: what a table states of these is the root mean square of what those differ by that were left out, one after another
OF_LEFT_OUT = frozenset((ErrorSource.MACHINE, ErrorSource.MACHINE_HERE, ErrorSource.LIBRARY, ErrorSource.LIBRARY_HERE))
#: 90 % quantile of the difference of two logistic variates over its deviation, over that of a normal one. The quantile
#: solves e^x (e^x - 1 - x) = 0.9 (e^x - 1)^2, the variance is 2 pi^2 / 3. With a normal distribution intervals of 50,
#: 80 and 95 % held 59, 85 and 94 % of the rows of machines that were left out, 60, 87 and 96 % of those of libraries
#: (make accuracy of 1 December 2026): the middle is fuller
OF_TWO_LOGISTIC = 3.188779 / (math.pi * math.sqrt(2.0 / 3.0)) / Z80


def is_of_siblings(table: LatencyTable) -> bool:
    """Return whether rows of a machine's other operators made its table (`perfmodel.accuracy.siblings`)."""
    return ErrorSource.MACHINE_HERE in table.deviations


def effects_of(
    tables: Sequence[LatencyTable],
    state: Calibration,
    library: str,
    dtype: str,
    link: str,
    own_vendor: bool,
    *,
    other_chip: bool = False,
    lent: bool = False,
) -> dict[ErrorSource, tuple[float, ...]]:
    """Return the deviations that apply: of what the constants of the nearest table have not seen.

    A machine of a generation with one chip differs from it by little, one with another chip (``other_chip``) by as much
    as those of other generations do, which the next table states. So does a machine that the nearest table was not
    fitted on (``lent``): its figures are other ones.
    """
    nearest = tables[0]
    names = [ErrorSource.HOST]
    if state != Calibration.CALIBRATED:
        names.append(ErrorSource.MACHINE_HERE if is_of_siblings(nearest) and not lent else ErrorSource.MACHINE)
    if library:
        if library not in nearest.known_libraries:
            elsewhere = any(library in table.known_libraries for table in tables)
            names.append(ErrorSource.LIBRARY_HERE if elsewhere else ErrorSource.LIBRARY)
    elif (
        "" not in nearest.known_libraries and len(nearest.known_libraries) > 1
    ):  # any of them may run: they differ by as much as one that nobody measured
        names.append(ErrorSource.LIBRARY)
    if dtype and not nearest.covers(dtype):
        elsewhere = any(table.covers(dtype) for table in tables[:-1])
        names.append(ErrorSource.DTYPE_HERE if elsewhere else ErrorSource.DTYPE)
    if not own_vendor:
        names.append(ErrorSource.VENDOR)
    if link and not nearest.crosses(link):
        names.append(ErrorSource.LINK)
    found = {name: deviation for name in names if any(deviation := applied(tables, name) or ())}
    if other_chip and ErrorSource.MACHINE in found:
        wider = applied(tables[2 if lent else 1 :], ErrorSource.MACHINE) or found[ErrorSource.MACHINE]
        found[ErrorSource.MACHINE] = tuple(map(max, found[ErrorSource.MACHINE], wider))
    return found


def applied(tables: Sequence[LatencyTable], name: ErrorSource) -> tuple[float, ...] | None:
    """Return the deviation of what the nearest table has not seen: of the next library from the mean of its own.

    Of machines and libraries it is that of a normal distribution with as wide an 80 % interval as they have.
    """
    stated = deviation_of(tables, name)
    if stated is None or name not in OF_LEFT_OUT:
        return stated
    factor = OF_TWO_LOGISTIC
    if name is ErrorSource.LIBRARY:
        whole = [library for library in tables[0].known_libraries if "/" not in library]  # not kernels named within one
        factor *= math.sqrt(1.0 + 1.0 / max(1, len(whole)))
    return tuple(factor * s for s in stated)


def state_of(state: Calibration, effects: Collection[ErrorSource], library: str) -> Calibration:
    """Return how well the constants know the machine, its link, the dtype and, where one is named, the library."""
    if ErrorSource.LINK in effects or ErrorSource.DTYPE in effects or (library and ErrorSource.LIBRARY in effects):
        return Calibration.NEVER_SEEN
    elsewhere = ErrorSource.DTYPE_HERE in effects or ErrorSource.LIBRARY_HERE in effects
    return Calibration.SAME_GENERATION if elsewhere and state == Calibration.CALIBRATED else state


def deviation_of(tables: Sequence[LatencyTable], name: str) -> tuple[float, ...] | None:
    """Return a deviation from the nearest table that states it."""
    return next((table.deviations[name] for table in tables if name in table.deviations), None)


class Stating:
    """What states the 80 % interval of some calls in each regime, and the variance of each source of error in it."""

    intervals: Mapping[str, tuple[float, float]]
    variances: Variances

    @functools.cached_property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """The interval of each regime."""
        return tuple(self.intervals[regime] for regime in REGIMES)

    @functools.cached_property
    def uncertainty(self) -> Uncertainty:
        """What the interval is made of, where it is that of all points."""
        return Uncertainty(((True, self.variances),))


@dataclass(frozen=True, eq=False)
class Stated(Stating):
    """The intervals and variances of the calls that a family tells apart from others."""

    intervals: Mapping[str, tuple[float, float]]
    variances: Variances


def with_effects(
    shape: Mapping[str, tuple[float, float]], effects: Mapping[ErrorSource, tuple[float, ...]]
) -> tuple[dict[str, tuple[float, float]], Variances]:
    """Return the intervals with all effects, and the variance of each source of error."""
    intervals, of_shape = {}, []
    for index, regime in enumerate(REGIMES):
        low, high = (math.log(end) for end in shape[regime])
        others = sum(deviation[index] ** 2 for deviation in effects.values()) * Z80**2
        intervals[regime] = (math.exp(-math.sqrt(low**2 + others)), math.exp(math.sqrt(high**2 + others)))
        of_shape.append(((high - low) / (2.0 * Z80)) ** 2)
    variances = {name: tuple(s**2 for s in deviation) for name, deviation in effects.items()}
    return intervals, {ErrorSource.SHAPE: tuple(of_shape), **variances}


def of_one_kind(variances: Variances) -> Variances:
    """Return variances where what shapes differ by is one error of all shapes of a kind of kernel."""
    named = dict(variances)
    both = zip(named.pop(ErrorSource.SHAPE), named.pop(ErrorSource.KERNEL, (0.0,) * len(REGIMES)), strict=True)
    return {ErrorSource.KERNEL: tuple(shape + own for shape, own in both), **named}


def widest_interval(*intervals: tuple[float, float]) -> tuple[float, float]:
    """Return the interval that contains all of some."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)
