"""From measured calls to the ``[latency]`` table of a family: fit, and the interval of rows that were not fitted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import NOISE, Fit, Floats, Group
from perfmodel.accuracy.judge import faster_than_bound
from perfmodel.accuracy.libraries import (
    FittedConstants,
    dtypes,
    fit_libraries,
    intervals,
    libraries_of,
    names_of,
    residuals,
    sample,
    stated_apart,
    told_apart,
)
from perfmodel.accuracy.measured import MeasuredCalls, shape_hash
from perfmodel.accuracy.restated import independent_rows, narrowed, restated
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.work import anywhere
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import Constants
from perfmodel.prediction.latency.families import choices_of, families_of
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.instructions import launched
from perfmodel.prediction.latency.machine import Machine

#: a fit takes at most this many rows of one family: more do not change it, and take longer
MOST_ROWS = 1500
#: a factor of the kernels' time has to bring the mean error to this share of that without it
EARNED = 0.8
#: why rows are not fitted whose times no machine reaches
FASTER = "faster than the bound"
#: parts of the cross-validation that gives the intervals
FOLDS = 4


@dataclass(frozen=True)
class FamilyCalibration:
    """The calibration of one family.

    Attributes
    ----------
    family : the family.
    table : the table for the specification.
    start : the constants before.
    fit : the fit of the shared constants; ``library_fits`` are those of the constants of each library.
    log_ratio : ln(predicted / measured) of every row, from a fit without its part of the shapes.
    log_ratio_before : the same with the constants before.
    stays : whether these are no worse, so that the table has them, with the intervals that the rows show.
    """

    family: Family
    table: LatencyTable
    start: Values
    fit: Fit
    library_fits: Mapping[str, Fit]
    log_ratio: Floats
    log_ratio_before: Floats
    stays: bool = False

    @property
    def rows(self) -> int:
        """The number of rows that the fit used."""
        return self.fit.rows

    @property
    def off(self) -> float:
        """The factor by which rows are off in the mean, 1 or more, with constants that were not fitted to them.

        It is that of `mean_off`, by which constants are chosen: the smaller factor is the choice.
        """
        return math.exp(mean_off(self.log_ratio))

    @property
    def off_before(self) -> float:
        """The factor by which rows are off in the mean, 1 or more, with the constants before."""
        return math.exp(mean_off(self.log_ratio_before))


def usable(call: MeasuredCalls, hardware: Hardware) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which rows can be fitted, and how many cannot: flagged by their author, or faster than the floor."""
    flagged = call.flags != ""
    faster = ~flagged & faster_than_bound(call, hardware)
    reasons = {f"flagged {flag}": int((call.flags == flag).sum()) for flag in np.unique(call.flags[flagged])}
    if faster.any():
        reasons[FASTER] = int(faster.sum())
    return ~flagged & ~faster, reasons


def family_groups(
    calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]
) -> dict[str, tuple[Family, list[Group]]]:
    """Return the measured calls by family, as groups for a fit; calls without a closed form are left out.

    Parameters
    ----------
    calls : the measured calls.
    machines : name in the table -> machine.
    """
    by_family: dict[str, tuple[Family, list[Group]]] = {}
    for call in calls:
        if call.op.composition_in(call.conditions.library):
            continue  # the families of its parts predict it
        hardware = machines[call.hardware]
        peak = resolve_peak(call.op, hardware) if np.any(call.op.flop()) else None
        machine = Machine.of(hardware, launched(call.op, hardware, peak, call.conditions.library)[0])
        group = Group(call.op, machine, call.conditions, call.time_s)
        for mask, family, conditions in _kinds(call, machine, hardware):
            part = group if mask is True else group.take(np.broadcast_to(mask, call.time_s.shape))
            if (library := family.key_of(conditions)) != call.conditions.library:
                part = replace(part, conditions=replace(part.conditions, library=library))
            if family.name != "roofline":
                by_family.setdefault(family.name, (family, []))[1].append(part)
    return by_family


def _kinds(call: MeasuredCalls, machine: Machine, hardware: Hardware) -> Iterator[tuple[Any, Family, Conditions]]:
    """Yield the calls that a family predicts under the same conditions, as masks."""
    for chosen, conditions in choices_of(call.op, machine, hardware.kind, call.conditions):
        for mask, family in families_of(call.op, machine, hardware.kind, conditions.library):
            both = chosen & mask
            if anywhere(both):
                yield both, family, conditions


def calibrate_family(
    family: Family,
    groups: Sequence[Group],
    start: Constants,
    source: str,
    date: str,
    own: Collection[str] = (),
    *,
    follow: bool = False,
    kernels: Mapping[str, Values] = MappingProxyType({}),
) -> FamilyCalibration:
    """Return the constants of a family that fit some rows best, with the interval of rows that were not fitted.

    Constants that the rows do not identify keep their value in ``start``. The table has them only if they are among the
    ``own`` ones of the machine, since the defaults may improve later. The stated interval is the middle 80 % of
    measured / predicted in a cross-validation over shapes; a regime with few rows narrows that of ``start``.

    With ``follow``, rows that are all slower or faster than ``start`` by one factor move the constants, however far
    that is, and a regime with few rows widens the interval of ``start``, too: the rows are all that is known of this
    machine and its library. Where physical limits hold the constants back, a `FACTOR` of the kernels' time is fitted
    with them, if it brings the mean error of rows that were not fitted to less than `EARNED` of that without it.
    Without ``follow``, they are some of the rows of many machines that tell what is usual, and ``kernels`` are what
    these told of each library's kernels (`perfmodel.accuracy.libraries.fit_libraries`).
    """
    groups = sample(groups, MOST_ROWS)
    fitted = fit_libraries(family, groups, start.values, centred=follow, kernels=kernels)
    held_out = _cross_validated(family, groups, start.values, fitted, centred=follow, kernels=kernels)
    if follow and mean_off(held_out[0]) > NOISE:
        with_factor = fit_libraries(family, groups, start.values, centred=True, factor=True)
        inside = [mean_off(residuals(family, groups, found)[0]) for found in (fitted, with_factor)]
        if inside[1] < EARNED * inside[0]:  # what does not help the rows that it is fitted to helps no others
            left_out = _cross_validated(family, groups, start.values, with_factor, centred=True, factor=True)
            if mean_off(left_out[0]) < EARNED * mean_off(held_out[0]):
                fitted, held_out = with_factor, left_out
    ratio, *_ = held_out
    common = {name: value for name, value in fitted.common().items() if name not in names_of(kernels)}
    stated, others = stated_by(start, *held_out, follow=follow)
    table = LatencyTable(
        constants={name: value for name, value in common.items() if name in own or fitted.in_table(name)},
        libraries=fitted.own(),
        intervals=stated,
        apart=others,
        known_libraries=libraries_of(groups),
        dtypes=dtypes(family, groups),
        source=source,
        date=date,
    )
    before, _ = residuals(family, groups, FittedConstants(Fit(dict(start.values), (), {}, 0.0, 0)))
    return FamilyCalibration(family, table, start.values, fitted.shared, fitted.libraries, ratio, before)


def stated_by(
    start: Constants,
    log_ratio: Floats,
    regime: NDArray[np.intp],
    shape: Floats,
    apart: NDArray[np.bool_],
    *,
    follow: bool,
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """Return the intervals that rows state which their constants were not fitted to, and those of calls told apart.

    Parameters
    ----------
    start : what was known before.
    log_ratio, regime : ln(predicted / measured) and the regime of each row.
    shape : its number, as `numbered`.
    apart : which rows the family tells apart.
    follow : whether they widen the intervals of ``start``, too.
    """
    rows = [independent_rows(shape[regime == index]) for index in range(len(REGIMES))]
    stating = restated if follow else narrowed
    together = intervals(log_ratio, regime, stating(start, log_ratio, regime, rows), rows)
    return stated_apart(log_ratio, regime, apart, together)


def mean_off(log_ratio: Floats) -> float:
    """Return the mean of |ln(predicted / measured)|."""
    return float(np.mean(np.abs(log_ratio)))


def _cross_validated(
    family: Family,
    groups: Sequence[Group],
    start: Values,
    near: FittedConstants,
    *,
    centred: bool,
    factor: bool = False,
    kernels: Mapping[str, Values] = MappingProxyType({}),
) -> tuple[Floats, NDArray[np.intp], Floats, NDArray[np.bool_]]:
    """Return the residuals and regimes of rows with constants fitted on the other parts of the shapes.

    The third array numbers the rows by library and shape, the fourth says which the family tells apart.
    """
    results = []
    libraries = sorted({group.conditions.library for group in groups})
    for part in range(FOLDS):
        fitted = list(_part(groups, part, inside=False))
        held_out = list(_part(groups, part, inside=True))
        if fitted and held_out:
            found = fit_libraries(family, fitted, start, near=near, centred=centred, factor=factor, kernels=kernels)
            own = residuals(family, held_out, found)
            results.append((*own, numbered(held_out, libraries), told_apart(family, held_out)))
    ratios, regimes, every_shape, apart = map(np.concatenate, zip(*results, strict=True))
    return ratios, regimes, every_shape, apart


def numbered(groups: Sequence[Group], libraries: Sequence[str]) -> Floats:
    """Return a number for each row: a whole one of each library, and the shape as its fraction."""
    return np.concatenate(
        [libraries.index(group.conditions.library) + shape_hash(group.op, len(group)) for group in groups]
    )


def _part(groups: Sequence[Group], part: int, *, inside: bool) -> Iterator[Group]:
    """Yield the rows whose shape belongs to one part of the cross-validation, or those of all other parts."""
    for group in groups:
        chosen = (parts(group) == part) == inside
        if chosen.any():
            yield group.take(chosen)


def parts(group: Group) -> Floats:
    """Return the part of the cross-validation that each row's shape belongs to."""
    # the hash also chose the sample, so its leading digits are no longer evenly distributed
    parts: Floats = np.floor(shape_hash(group.op, len(group)) * 1e6) % FOLDS
    return parts
