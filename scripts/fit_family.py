"""The tables of a family: those that machines share, from the widest to the narrowest, and those of each machine."""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from fit_deviations import GENERATIONS, LINES, SIBLINGS
from fit_kernels import (
    ROWS_OF_KERNEL,
    by_library,
    held_out,
    is_of_kernels,
    kernel_fits,
    mean_table,
    own_constants,
    shipped_fits,
    today,
)
from fit_shared import (
    Groups,
    Origins,
    Shared,
    joined,
    shared,
)
from fit_surface import MOST_ROWS as ROWS_OF_SURFACE
from fit_surface import NESTED_ROWS, chain, machine_surface, shared_surface
from fit_usual import FittedFamily

from perfmodel.accuracy.calibration import MOST_ROWS, calibrate_family
from perfmodel.accuracy.fit import Fit, Group
from perfmodel.accuracy.libraries import FittedConstants, dtypes, libraries_of, sample
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.latency.constants import WIDEST, Constants
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import generation, product_line, vendor
from perfmodel.prediction.latency.tables import default_tables


def typical(family: Family) -> Constants:
    """Return what is known of a family before any fit."""
    values = {constant.name: constant.default for constant in family.all_constants}
    return Constants(values, dict.fromkeys(REGIMES, WIDEST), "never seen", "")


def under(table: LatencyTable, base: Constants) -> Constants:
    """Return the constants of a table over those of a base: the start of the next fit."""
    return Constants({**base.values, **table.without_library}, {**base.intervals, **table.intervals}, "", table.source)


def with_surfaces(
    made: FittedFamily, family: Family, groups: Groups, origins: Origins, machines: Mapping[str, Hardware]
) -> FittedFamily:
    """Return the same tables with the residual surfaces of machines, and of the generations that have one die."""
    if not family.axes:
        return made
    tables = {name: found.table for name, found in made.shared.items()}
    own = dict(made.machines)
    for name, table in own.items():
        above = chain(machines[name], tables, table)
        surface = machine_surface(family, name, groups[name], above, joined(origins, [name]))
        own[name] = dataclasses.replace(table, surface=surface)
    wider = dict(made.shared)
    for name, members in _parted(groups, machines, generation).items():
        if not all(_one_die(machines[member]) for member in members):
            continue
        first = next(iter(members))
        if len(members) == 1 and first in own:  # the generation has the constants of its one machine
            surface = own[first].surface
        else:
            above = chain(machines[first], tables)
            most = ROWS_OF_SURFACE if own else NESTED_ROWS
            surface = shared_surface(family, name, members, above, joined(origins, members), most)
        found = wider[name]
        wider[name] = dataclasses.replace(found, table=dataclasses.replace(found.table, surface=surface))
    return FittedFamily(wider, own)


def fit_family(
    family: Family,
    groups: Groups,
    origins: Origins,
    machines: Mapping[str, Hardware],
    near: FittedFamily | None = None,
    *,
    anew: bool = True,
) -> FittedFamily:
    """Return a family's tables; with ``near``, fitted to nearly the same rows, without those of the machines."""
    if is_of_kernels(family):
        return _fit_kernels(family, groups, origins, machines, own=near is None)
    known = near.shared if near else {}
    generations = _parted(groups, machines, generation)
    first = typical(family)
    tables = {
        "generic": shared(
            family,
            groups,
            first,
            origins,
            list(generations.values()),
            host=True,
            shrunk=False,
            near=known.get("generic"),
            anew=anew,
        )
    }
    # From the widest to the narrowest, each from the one around it.
    around = {name: under(tables["generic"].table, first) for name in groups}
    wider = dict.fromkeys(groups, tables["generic"].table)
    for level in (vendor, product_line, generation):
        for name, members in _parted(groups, machines, level).items():
            between, by = _parts_of(level, members, machines)
            parts = list(_parted(members, machines, by).values())
            base = around[next(iter(members))]
            tables[name] = shared(
                family,
                members,
                base,
                origins,
                parts,
                host=level is vendor,
                wider=wider[next(iter(members))],
                between=between,
                near=known.get(name),
            )
            around |= dict.fromkeys(members, under(tables[name].table, base))
            wider |= dict.fromkeys(members, tables[name].table)
    made = {}
    for name, rows in groups.items() if near is None else ():
        source = f"fitted on {joined(origins, [name])}, {min(sum(map(len, rows)), MOST_ROWS)} rows"
        found = calibrate_family(family, rows, around[name], source, datetime.date.today().isoformat())
        made[name] = found.table
        error = 100 * np.abs(np.expm1(found.log_ratio)).mean()
        kept = ", ".join(found.fit.unidentified) or "none"
        print(f"  {family.name} {name}: {error:.1f} % on rows not fitted; kept: {kept}", flush=True)
        alone = generation(machines[name])
        if _one_die(machines[name]) and len(generations[alone]) == 1:
            tables[alone] = dataclasses.replace(tables[alone], table=_with_own(tables[alone].table, found.table))
    return with_surfaces(FittedFamily(tables, made), family, groups, origins, machines)


def _fit_kernels(
    family: Family, groups: Groups, origins: Origins, machines: Mapping[str, Hardware], *, own: bool
) -> FittedFamily:
    """Return the tables of a family whose constants are all those of a library's kernels (`fit_kernels`)."""
    # Each library on each machine is fitted alone, so that nothing changes them when others are left out.
    fits = {
        name: kernel_fits(family, name, rows) if own else shipped_fits(family, machines[name], rows)
        for name, rows in groups.items()
    }
    found = {}
    for level in (lambda machine: "generic", vendor, product_line, generation):
        for name, members in _parted(groups, machines, level).items():
            between, by = _parts_of(level, members, machines)
            parts = [list(part) for part in _parted(members, machines, by).values()]
            mean = mean_table(family, members, fits, parts, origins, widest=name == "generic")
            found[name] = dataclasses.replace(mean, between=between)
    made = {}
    for name, rows in groups.items() if own else ():
        count = sum(len(group) for kept in by_library(rows).values() for group in sample(kept, ROWS_OF_KERNEL))
        made[name] = LatencyTable(
            constants={},
            libraries=own_constants(family, fits[name]),
            intervals=held_out(family, name, rows),
            known_libraries=libraries_of(rows),
            dtypes=dtypes(family, rows),
            source=f"fitted on {joined(origins, [name])}, {count} rows",
            date=today(),
        )
        print(f"  {family.name} {name}: {', '.join(fits[name])}", flush=True)
    return FittedFamily(found, made)


def _parts_of(
    level: Callable[[Hardware], str], members: Iterable[str], machines: Mapping[str, Hardware]
) -> tuple[str, Callable[[Hardware], str]]:
    """Return what differs between machines that have no nearer table than one of a level, and names the part of each.

    That of a vendor is for machines of a line without any table, that of a line for those of another generation.
    """
    if level is vendor:
        return LINES, product_line
    if level is not generation:
        return GENERATIONS, generation
    one_die = all(_one_die(machines[member]) for member in members)
    return SIBLINGS if one_die else GENERATIONS, lambda machine: machine.name


def _one_die(machine: Hardware) -> bool:
    """Whether all machines of the generation have the same die: those with stacked memory, of each vendor so far."""
    return product_line(machine).endswith("-hbm")


def _with_own(table: LatencyTable, own: LatencyTable) -> LatencyTable:
    """Return the table of a generation of one die with the constants of the one machine that was measured.

    Its siblings then differ from it by their specifications only.
    """
    libraries = {
        library: {**table.libraries.get(library, {}), **own.libraries.get(library, {})}
        for library in (*table.libraries, *(name for name in own.libraries if name not in table.libraries))
    }
    return dataclasses.replace(table, constants={**table.constants, **own.constants}, libraries=libraries)


def shipped(family: Family, groups: Groups, machines: Mapping[str, Hardware]) -> FittedFamily:
    """Return a family's shipped tables as the fit that gave them, for others to start near it."""
    names = {constant.name for constant in family.all_constants}
    base = typical(family).values
    made: dict[str, Shared] = {}
    levels = {level(machines[machine]) for level in (vendor, product_line, generation) for machine in groups}
    for level in ("generic", *sorted(levels)):
        if family.name not in default_tables(level):
            continue
        table = default_tables(level)[family.name]
        own = {name for values in table.libraries.values() for name in values}
        values = {**base, **table.without_library}
        fit = Fit(values, tuple(names - set(table.constants) - own), {}, 0.0, 0)
        libraries = {
            library: Fit({**values, **own_values}, tuple(names - set(own_values)), {}, 0.0, 0)
            for library, own_values in table.libraries.items()
        }
        made[level] = Shared(table, FittedConstants(fit, libraries), (), 1)
    return FittedFamily(made, {})


def _parted(
    groups: Groups, machines: Mapping[str, Hardware], by: Callable[[Hardware], str]
) -> dict[str, dict[str, list[Group]]]:
    parts: dict[str, dict[str, list[Group]]] = defaultdict(dict)
    for name, rows in groups.items():
        parts[by(machines[name])][name] = rows
    return parts
