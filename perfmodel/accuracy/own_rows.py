"""From measured calls on one machine to its ``[latency]`` tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.between_nodes import NetworkFit, crossing_rows, fit_network
from perfmodel.accuracy.calibration import (
    MOST_ROWS,
    FamilyCalibration,
    calibrate_family,
    family_groups,
    mean_off,
    numbered,
    parts,
    stated_by,
    usable,
)
from perfmodel.accuracy.fit import Floats, Group
from perfmodel.accuracy.libraries import FittedConstants, doubted, dtypes, sample, told_apart
from perfmodel.accuracy.measured import MeasuredCalls, likely_unit
from perfmodel.accuracy.siblings import SiblingCalibration, calibrate_siblings
from perfmodel.core.fitted_with import with_tables
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.latency.constants import WIDEST, Constants, constants
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.nearest_tables import found_tables
from perfmodel.prediction.latency.own_figures import measured_constants
from perfmodel.prediction.predict import predict_piece

#: a calibration needs this many rows of a family
FEWEST_ROWS = 10
#: rows that a fit leaves off by more than this factor in the median do not describe what the family models: the widest
#: interval that is stated without any measurement
UNLIKE = WIDEST[1]


@dataclass(frozen=True)
class MachineCalibration(Reportable):
    """The calibration of a machine from measured calls.

    Attributes
    ----------
    before : the machine with its constants before.
    families : the calibration of each family with enough rows.
    unused : reason -> number of rows that were not used for it.
    siblings : the collectives without rows, of which those of others tell something.
    network : what exchanges between nodes tell of the network; None without enough of them.
    """

    before: Hardware
    families: tuple[FamilyCalibration, ...]
    unused: Mapping[str, int]
    siblings: tuple[SiblingCalibration, ...] = ()
    network: NetworkFit | None = None

    @property
    def hardware(self) -> Hardware:
        """The machine with the fitted constants."""
        tables = {sibling.family.name: sibling.table for sibling in self.siblings}
        tables |= {calibration.family.name: calibration.table for calibration in self.families}
        machine = with_tables(self.before, tables)
        return self.network.on(machine) if self.network else machine


def calibrate_calls(calls: Sequence[MeasuredCalls], hardware: Hardware, source: str, date: str) -> MachineCalibration:
    """Return the calibration of every family with enough rows, and why other rows were not used.

    The fit starts from the constants of the machine: those of its specification, or the defaults of its generation.
    Constants that the rows do not determine stay there. Rows of one collective also tell what the machine's other
    collectives take (`perfmodel.accuracy.siblings`). Exchanges between nodes tell of the network between them, given
    what is known of a node then (`perfmodel.accuracy.between_nodes`).

    Parameters
    ----------
    calls : measured calls on this machine.
    hardware : the machine.
    source, date : written beside the constants, with the number of rows.
    """
    reasons: Counter[str] = Counter()
    kept: list[MeasuredCalls] = []
    beyond: list[MeasuredCalls] = []
    for call in calls:
        mask, why = usable(call, hardware)
        reasons.update(why)
        crosses = crossing_rows(call, hardware)
        for part, chosen in ((kept, mask & ~crosses), (beyond, mask & crosses)):
            if chosen.any():
                part.append(call.take(chosen))
    by_family = family_groups(kept, {call.hardware: hardware for call in kept})
    modelled = sum(len(group) for _, groups in by_family.values() for group in groups)
    reasons["of operators without a closed form"] += sum(map(len, kept)) - modelled
    calibrations = []
    for family, groups in by_family.values():
        rows = sum(map(len, groups))
        if rows < FEWEST_ROWS:
            reasons[f"of {family.name}: fewer than {FEWEST_ROWS} rows"] += rows
            continue
        if len({part for group in groups for part in parts(group).tolist()}) < 2:
            reasons[f"of {family.name}: too few different shapes"] += rows
            continue
        origin = f"{source}, {min(rows, MOST_ROWS)} rows"
        found = _calibrate_own(family, groups, hardware, origin, date)
        off = float(np.median(found.log_ratio_before if found.stays else found.log_ratio))
        if abs(off) > math.log(UNLIKE):
            reasons[f"of {family.name}: {_unlike(found)}"] += rows
        else:
            calibrations.append(found)
    unused = {reason: count for reason, count in reasons.items() if count}
    rows_of = {one.family.name: by_family[one.family.name][1] for one in calibrations}
    siblings = calibrate_siblings(rows_of, hardware, source, date)
    calibrated = MachineCalibration(hardware, tuple(calibrations), unused, tuple(siblings))
    network = fit_network(beyond, calibrated.hardware, f"{source}, {date}")
    if beyond and network is None:
        unused[f"between nodes: fewer than {FEWEST_ROWS}, or of too few sizes"] = sum(map(len, beyond))
    return replace(calibrated, network=network)


def _calibrate_own(
    family: Family, groups: Sequence[Group], hardware: Hardware, source: str, date: str
) -> FamilyCalibration:
    """Return the calibration of a family on a machine, whose table gives the fitted constants to a prediction.

    The fit starts from what holds for the rows before: for their library and dtype, where all have one. Where rows that
    were left out of it come out no better than they are predicted today, the constants stay.
    """
    groups = sample(groups, MOST_ROWS)
    before = hardware.latency.get(family.name)
    # constants in the machine's file stay there if the rows do not determine them; others come from the defaults
    own = before.constants if before else measured_constants(family, hardware)
    libraries = sorted({group.conditions.library for group in groups})
    kinds = sorted({group.op.kernel_dtype for group in groups})
    library, dtype = (found[0] if len(found) == 1 else "" for found in (libraries, kinds))
    start = constants(family, hardware, library, dtype)
    found = calibrate_family(family, groups, start, f"fitted on {source}", date, own, follow=True)
    today, regime = _predicted(groups, hardware)
    if mean_off(today) <= mean_off(found.log_ratio):
        table = _staying(family, groups, hardware)
        shapes, apart = numbered(groups, libraries), told_apart(family, groups)
        stated, others = stated_by(start, today, regime, shapes, apart, follow=True)
        of_both = "; ".join(filter(None, (table.source, f"intervals of {source}")))
        table = replace(table, intervals=stated, apart=others, with_surface=True, source=of_both, date=date)
        found = replace(found, stays=True, table=table)
    else:
        # rows that name no library are known, too: they tell what a prediction without one takes
        table = replace(found.table, known_libraries=tuple(libraries))
        fitted = FittedConstants(found.fit, found.library_fits)
        for name in libraries:
            table = _kept(table, family, hardware, name, fitted.values(name), alone=len(libraries) == 1)
        found = replace(found, table=table)
    return _knowing(replace(found, log_ratio_before=today), start, groups, hardware)


def _predicted(groups: Sequence[Group], hardware: Hardware) -> tuple[Floats, NDArray[np.intp]]:
    """Return ln(predicted / measured) of rows as the machine is predicted today, and the regime of each."""
    ratios, regimes = [], []
    for group in groups:
        estimate = predict_piece(group.op, hardware, group.conditions).estimate
        ratios.append(np.log(np.broadcast_to(estimate.time_s, group.time_s.shape) / group.time_s))
        regimes.append(np.broadcast_to(estimate.regime_code, group.time_s.shape))
    return np.concatenate(ratios), np.concatenate(regimes)


def _staying(family: Family, groups: Sequence[Group], hardware: Hardware) -> LatencyTable:
    """Return a table with the constants that predict some rows today, and that knows their libraries and dtypes."""
    calls = sorted({(group.conditions.library, group.op.kernel_dtype) for group in groups})
    known = {name: constants(family, hardware, name, dtype) for name, dtype in calls}
    nearest = next((table for _, table in found_tables(family, hardware)), LatencyTable({}))
    table = hardware.latency.get(family.name, LatencyTable({}, source=nearest.source))
    table = replace(
        table,
        spread={name: factor for name, factor in table.spread.items() if name not in known},
        known_libraries=tuple(sorted({*table.known_libraries, *known})),
        dtypes=tuple(sorted({*table.dtypes, *dtypes(family, groups)})),
        # a library that had borrowed its constants without the surface of the others has them without it
        surface=nearest.surface if all(one.surface for one in known.values()) else None,
    )
    for name, one in known.items():
        table = _kept(table, family, hardware, name, one.values)
    return table


def _kept(
    table: LatencyTable, family: Family, hardware: Hardware, library: str, values: Values, *, alone: bool = False
) -> LatencyTable:
    """Return a table that gives a library the values of its fit: with the constants that would come from elsewhere.

    A constant that the rows do not determine has its value from before in the fit, which may be that of a table that
    the new one replaces, or of kernels of which there were no rows. Those of a library that is ``alone`` are shared.
    """
    given = constants(family, with_tables(hardware, {family.name: table}), library).values
    other = {name: value for name, value in values.items() if not math.isclose(value, given[name], rel_tol=1e-9)}
    of_library = {constant.name for constant in family.all_constants if constant.library and library and not alone}
    shared = {name: value for name, value in other.items() if name not in of_library}
    apart = {name: value for name, value in other.items() if name in of_library}
    libraries = (
        {**table.libraries, library: {**table.libraries.get(library, {}), **apart}} if apart else table.libraries
    )
    return replace(table, constants={**table.constants, **shared}, libraries=libraries)


def _unlike(found: FamilyCalibration) -> str:
    """Say that no constants describe the rows: by how much they are off, and whether that is a mistake of units."""
    slower = math.exp(-float(np.median(found.log_ratio_before)))
    unit = likely_unit(slower)
    hint = f": are the times in {unit}?" if unit else ""
    ratio = max(slower, 1.0 / slower)
    shown = f"{ratio:,.0f}" if ratio >= 10.0 else f"{ratio:.2g}"
    times = f"{shown} times as long" if slower > 1.0 else f"1/{shown} of the time"
    return f"{times} as predicted, which no constants of the model describe{hint}"


def _knowing(
    found: FamilyCalibration, start: Constants, groups: Sequence[Group], hardware: Hardware
) -> FamilyCalibration:
    """Return a calibration whose table knows the rows' host, and sources of doubt if enough rows are of each doubt.

    Doubts that the machine cannot have need no rows.
    """
    known = [ErrorSource.HOST] if ErrorSource.HOST in start.variances else []
    doubts = [doubt for doubt in found.family.all_doubts if not doubt.lasting and doubt.machines(hardware)]
    counted = [(doubt.source, doubted(doubt, groups) >= FEWEST_ROWS) for doubt in doubts]
    known += [source for source in dict(counted) if all(enough for of, enough in counted if of is source)]
    if not known:
        return found
    deviations = {**found.table.deviations}
    deviations.update(dict.fromkeys(known, (0.0,) * len(REGIMES)))
    return replace(found, table=replace(found.table, deviations=deviations))
