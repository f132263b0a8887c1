"""From measured calls to ``[latency]`` tables: fit, stated interval, and constants that the rows do not determine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Fit, Floats, Group
from perfmodel.accuracy.libraries import (
    USUAL_ROWS,
    FittedConstants,
    doubted,
    dtypes,
    fit_libraries,
    intervals,
    libraries_of,
    residuals,
    sample,
    stated_apart,
    told_apart,
)
from perfmodel.accuracy.measured import MeasuredCalls, shape_hash
from perfmodel.accuracy.siblings import SiblingCalibration, calibrate_siblings
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.constants import Constants, constants, measured_constants
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.predict import floor_time
from perfmodel.prediction.uncertainty import half_width

#: a calibration needs this many rows of a family
FEWEST_ROWS = 10
#: a fit takes at most this many rows of one family: more do not change it, and take longer
MOST_ROWS = 1500
#: a row that is faster than the floor by more than a clock can boost is an artefact
BOOST = 1.1
#: correlation of the errors of one shape, measured again in another version of a library: assumed
ONE_SHAPE = 0.5
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
    error_before : mean absolute error of the rows with the constants before, a fraction.
    """

    family: Family
    table: LatencyTable
    start: Values
    fit: Fit
    library_fits: Mapping[str, Fit]
    log_ratio: Floats
    error_before: float

    @property
    def rows(self) -> int:
        """The number of rows that the fit used."""
        return self.fit.rows


def usable(call: MeasuredCalls, hardware: Hardware) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which rows can be fitted, and how many cannot: flagged by their author, or faster than the floor."""
    flagged = call.flags != ""
    floor = np.broadcast_to(floor_time(call.op, hardware, call.conditions.cache), call.time_s.shape)
    faster = ~flagged & (call.time_s * BOOST < floor)
    reasons = {f"flagged {flag}": int((call.flags == flag).sum()) for flag in np.unique(call.flags[flagged])}
    if faster.any():
        reasons["faster than the bound"] = int(faster.sum())
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
        machine = Machine.of(hardware, resolve_peak(call.op, hardware) if np.any(call.op.flop()) else None)
        group = Group(call.op, machine, call.conditions, call.time_s)
        for mask, family in families_of(call.op, machine, hardware.kind, call.conditions.library):
            part = group if mask is True else group.take(np.broadcast_to(mask, call.time_s.shape))
            if (library := family.key_of(call.conditions)) != call.conditions.library:
                part = replace(part, conditions=replace(part.conditions, library=library))
            if family.name != "roofline":
                by_family.setdefault(family.name, (family, []))[1].append(part)
    return by_family


def calibrate_family(
    family: Family, groups: Sequence[Group], start: Constants, source: str, date: str, own: Collection[str] = ()
) -> FamilyCalibration:
    """Return the constants of a family that fit some rows best, with the interval of rows that were not fitted.

    Constants that the rows do not identify keep their value in ``start``. The table has them only if they are among the
    ``own`` ones of the machine, since the defaults may improve later. The stated interval is the middle 80 % of
    measured / predicted in a cross-validation over shapes; a regime with few rows narrows that of ``start``.
    """
    groups = sample(groups, MOST_ROWS)
    fitted = fit_libraries(family, groups, start.values)
    ratio, regime, shape, apart = _cross_validated(family, groups, start.values, fitted)
    rows = [_independent(shape[regime == index]) for index in range(len(REGIMES))]
    together = intervals(ratio, regime, _narrowed(start, ratio, regime, rows), rows)
    stated, others = stated_apart(ratio, regime, apart, together)
    table = LatencyTable(
        constants={name: value for name, value in fitted.common().items() if name in own or fitted.in_table(name)},
        libraries=fitted.own(),
        intervals=stated,
        apart=others,
        known_libraries=libraries_of(groups),
        dtypes=dtypes(family, groups),
        source=source,
        date=date,
    )
    before, _ = residuals(family, groups, FittedConstants(Fit(dict(start.values), (), {}, 0.0, 0)))
    error = float(np.mean(np.abs(np.expm1(before))))
    return FamilyCalibration(family, table, start.values, fitted.shared, fitted.libraries, ratio, error)


def _independent(shapes: Floats) -> float:
    """Return how many independent rows tell as much as those of some shapes, m of each.

    The errors of rows of one shape correlate with r, so that n rows tell as much as n / (1 + (m - 1) r) (the design
    effect of clusters: Kish, "Survey sampling", 1965, section 5.4).
    """
    each = shapes.size / max(1, np.unique(shapes).size)
    return shapes.size / (1.0 + max(0.0, each - 1.0) * ONE_SHAPE)


def _narrowed(
    start: Constants, log_ratio: Floats, regime: NDArray[np.intp], rows: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """Return the intervals of some constants after independent rows of each regime, of their held-out residuals.

    Shapes differ with variance k v: v is that of other machines, and the scale k of this one is a mean of 1 and of
    what its n rows of all regimes show, k = (m + n mean(r^2 / v)) / (m + n) with m = `USUAL_ROWS` (an inverse gamma
    prior). What the constants had not seen (machine, library, dtype, vendor, host) differs with variance V. After the
    n_i rows of a regime it is known up to V k v / (k v + n_i V), as a normal mean is.
    """
    stated = dict(start.intervals)
    usual = np.array(start.variances.get(ErrorSource.SHAPE, (0.0,) * len(REGIMES)))
    if not usual.all():
        return stated
    told = sum(rows)
    scale = (USUAL_ROWS + told * float(np.mean(log_ratio**2 / usual[regime]))) / (USUAL_ROWS + told)
    for index, name in enumerate(REGIMES):
        shape = scale * float(usual[index])
        unseen = sum(values[index] for source, values in start.variances.items() if source is not ErrorSource.SHAPE)
        if rows[index]:
            left = unseen * shape / (shape + rows[index] * unseen) if unseen else 0.0
            end = math.exp(half_width([shape, left]))
            stated[name] = (max(stated[name][0], 1.0 / end), min(stated[name][1], end))
    return stated


@dataclass(frozen=True)
class MachineCalibration(Reportable):
    """The calibration of a machine from measured calls.

    Attributes
    ----------
    before : the machine with its constants before.
    families : the calibration of each family with enough rows.
    unused : reason -> number of rows that were not used for it.
    siblings : the collectives without rows, of which those of others tell something.
    """

    before: Hardware
    families: tuple[FamilyCalibration, ...]
    unused: Mapping[str, int]
    siblings: tuple[SiblingCalibration, ...] = ()

    @property
    def hardware(self) -> Hardware:
        """The machine with the fitted constants."""
        tables = {told.family.name: told.table for told in self.siblings}
        tables |= {calibration.family.name: calibration.table for calibration in self.families}
        return replace(self.before, latency={**self.before.latency, **tables})


def calibrate_calls(calls: Sequence[MeasuredCalls], hardware: Hardware, source: str, date: str) -> MachineCalibration:
    """Return the calibration of every family with enough rows, and why other rows were not used.

    The fit starts from the constants of the machine: those of its specification, or the defaults of its generation.
    Constants that the rows do not determine stay there. Rows of one collective also tell what the machine's other
    collectives take (`perfmodel.accuracy.siblings`).

    Parameters
    ----------
    calls : measured calls on this machine.
    hardware : the machine.
    source, date : written beside the constants, with the number of rows.
    """
    reasons: Counter[str] = Counter()
    kept = []
    for call in calls:
        mask, why = usable(call, hardware)
        reasons.update(why)
        if mask.any():
            kept.append(call.take(mask))
    by_family = family_groups(kept, {call.hardware: hardware for call in kept})
    modelled = sum(len(group) for _, groups in by_family.values() for group in groups)
    reasons["of operators without a closed form"] += sum(map(len, kept)) - modelled
    calibrations = []
    for family, groups in by_family.values():
        rows = sum(map(len, groups))
        if rows < FEWEST_ROWS:
            reasons[f"of {family.name}: fewer than {FEWEST_ROWS} rows"] += rows
            continue
        if len({part for group in groups for part in _parts(group).tolist()}) < 2:
            reasons[f"of {family.name}: too few different shapes"] += rows
            continue
        rows = min(rows, MOST_ROWS)
        before = hardware.latency.get(family.name)
        # constants in the machine's file stay there if the rows do not determine them; others come from the defaults
        own = before.constants if before else measured_constants(family, hardware)
        origin = f"fitted on {source}, {rows} rows"
        start = constants(family, hardware)
        found = calibrate_family(family, groups, start, origin, date, own)
        calibrations.append(_knowing(found, start, groups))
    unused = {reason: count for reason, count in reasons.items() if count}
    rows_of = {one.family.name: by_family[one.family.name][1] for one in calibrations}
    told = calibrate_siblings(rows_of, hardware, source, date)
    return MachineCalibration(hardware, tuple(calibrations), unused, tuple(told))


def _knowing(found: FamilyCalibration, start: Constants, groups: Sequence[Group]) -> FamilyCalibration:
    """Return a calibration whose table knows the rows' host, and sources of doubt if enough rows are of each doubt."""
    known = [ErrorSource.HOST] if ErrorSource.HOST in start.variances else []
    told = [(doubt.source, doubted(doubt, groups) >= FEWEST_ROWS) for doubt in found.family.all_doubts]
    known += [source for source in dict(told) if all(enough for of, enough in told if of is source)]
    if not known:
        return found
    return replace(found, table=replace(found.table, deviations=dict.fromkeys(known, (0.0,) * len(REGIMES))))


def _cross_validated(
    family: Family, groups: Sequence[Group], start: Values, near: FittedConstants
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
            # a whole number of each library, and its shape as the fraction
            shapes = [
                libraries.index(group.conditions.library) + shape_hash(group.op, len(group)) for group in held_out
            ]
            own = residuals(family, held_out, fit_libraries(family, fitted, start, near=near))
            results.append((*own, np.concatenate(shapes), told_apart(family, held_out)))
    ratios, regimes, every_shape, apart = map(np.concatenate, zip(*results, strict=True))
    return ratios, regimes, every_shape, apart


def _part(groups: Sequence[Group], part: int, *, inside: bool) -> Iterator[Group]:
    """Yield the rows whose shape belongs to one part of the cross-validation, or those of all other parts."""
    for group in groups:
        chosen = (_parts(group) == part) == inside
        if chosen.any():
            yield group.take(chosen)


def _parts(group: Group) -> Floats:
    """Return the part of the cross-validation that each row's shape belongs to."""
    # the hash also chose the sample, so its leading digits are no longer evenly distributed
    parts: Floats = np.floor(shape_hash(group.op, len(group)) * 1e6) % FOLDS
    return parts
