"""The tables of a family: those that machines share, from the widest to the narrowest, and those of each machine."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from fit_deviations import GENERATIONS, LINES, SIBLINGS, VENDORS
from fit_kernels import (
    ROWS_OF_KERNEL,
    by_library,
    held_out,
    is_of_kernels,
    kernel_fits,
    mean_table,
    of_chip,
    own_constants,
    shipped_fits,
    today,
)
from fit_shared import (
    Groups,
    Origins,
    Shared,
    joined,
    kernels_of,
    shared,
)
from fit_surface import MOST_POINTS, NESTED_POINTS, chain, residual_surface
from fit_usual import FittedFamily

from perfmodel.accuracy.calibration import MOST_ROWS, calibrate_family
from perfmodel.accuracy.fit import Fit, Group
from perfmodel.accuracy.libraries import (
    FittedConstants,
    dtypes,
    intervals,
    libraries_of,
    residuals,
    sample,
    stated_apart,
    told_apart,
)
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.designs import generation, product_line, vendor
from perfmodel.prediction.latency.constants import WIDEST, Constants
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.tables import default_tables


def typical(family: Family) -> Constants:
    """Return what is known of a family before any fit."""
    values = {constant.name: constant.default for constant in family.all_constants}
    return Constants(values, dict.fromkeys(REGIMES, WIDEST), "never seen", "")


def under(table: LatencyTable, base: Constants) -> Constants:
    """Return the constants of a table over those of a base: the start of the next fit."""
    return Constants({**base.values, **table.without_library}, {**base.intervals, **table.intervals}, "", table.source)


def with_surfaces(
    made: FittedFamily,
    family: Family,
    groups: Groups,
    origins: Origins,
    machines: Mapping[str, Hardware],
    most: int = MOST_POINTS,
) -> FittedFamily:
    """Return the same tables with residual surfaces: one for all machines of a die, which their generation has too."""
    if not family.axes:
        return made
    tables = {name: found.table for name, found in made.shared.items()}
    own, wider = dict(made.machines), dict(made.shared)
    for name, members in _parted(groups, machines, generation).items():
        shared = all(_one_die(machines[member]) for member in members)
        parts = {name: members} if shared else {member: {member: rows} for member, rows in members.items() if own}
        for part, rows in parts.items():
            first = next(iter(rows))
            above = chain(machines[first], tables, own.get(first))
            file = first if len(rows) == 1 and first in own else part
            surface = residual_surface(family, file, rows, above, joined(origins, rows), most)
            own |= {member: dataclasses.replace(own[member], surface=surface) for member in rows if member in own}
            if shared:
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
    surfaces: bool = True,
) -> FittedFamily:
    """Return a family's tables; with ``near``, fitted to nearly the same rows, without those of the machines.

    Without ``surfaces``, they have none: deviations are of constants.
    """
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
            between=_of_widest(groups, machines),
            near=known.get("generic"),
            anew=anew,
        )
    }
    kernels = kernels_of(family, tables["generic"].table)
    # From the widest to the narrowest, each from the one around it. The rows of one machine tell no two of them apart,
    # and would count once for each: then all start from what is known before any fit.
    several = len(groups) > 1
    around = {name: under(tables["generic"].table, first) if several else first for name in groups}
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
                final=level is generation and are_siblings(members, machines),
                wider=wider[next(iter(members))],
                between=between,
                near=known.get(name),
                kernels=kernels,
            )
            if several:
                around |= dict.fromkeys(members, under(tables[name].table, base))
            wider |= dict.fromkeys(members, tables[name].table)
    made = {}
    for name, rows in groups.items() if near is None else ():
        alone = generation(machines[name])
        chip = tables[alone] if are_siblings(generations[alone], machines) else None
        made[name] = machine_table(family, name, rows, around[name], chip, joined(origins, [name]), kernels)
        if _one_die(machines[name]) and chip is None:
            tables[alone] = dataclasses.replace(tables[alone], table=_with_own(tables[alone].table, made[name]))
    most = MOST_POINTS if near is None else NESTED_POINTS
    found = FittedFamily(tables, made)
    return with_surfaces(found, family, groups, origins, machines, most) if surfaces else found


def machine_table(
    family: Family,
    name: str,
    rows: Sequence[Group],
    around: Constants,
    chip: Shared | None,
    origins: str,
    kernels: Mapping[str, Values],
) -> LatencyTable:
    """Return the table of a machine: fitted to its rows, or how far these are from the constants of its chip.

    Parameters
    ----------
    family, name, rows : the rows of the machine.
    around : the constants that hold where its own table has none.
    chip : the constants that it has in common with its siblings, which were fitted to its rows, too; None where it has
        no siblings that were measured.
    origins : whose measurements those are.
    kernels : what all machines told of each library's kernels.
    """
    source = f"fitted on {origins}, {min(sum(map(len, rows)), MOST_ROWS)} rows"
    if chip is None:
        found = calibrate_family(family, rows, around, source, today(), kernels=kernels)
        table, ratio, kept = found.table, found.log_ratio, ", ".join(found.fit.unidentified) or "none"
    else:
        rows = sample(rows, MOST_ROWS)
        ratio, regime = residuals(family, rows, chip.fitted)
        together = intervals(ratio, regime, around.intervals)
        stated, others = stated_apart(ratio, regime, told_apart(family, rows), together)
        table = LatencyTable(
            {}, {}, stated, {}, libraries_of(rows), dtypes(family, rows), source, today(), apart=others
        )
        kept = "those of its chip"
    error = 100 * np.abs(np.expm1(ratio)).mean()
    print(f"  {family.name} {name}: {error:.1f} % on rows not fitted; kept: {kept}", flush=True)
    return table


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
            widest = name == "generic"
            mean = mean_table(family, members, fits, parts, origins, widest=widest)
            found[name] = dataclasses.replace(mean, between=_of_widest(groups, machines) if widest else between)
    made = {}
    for level, members in _parted(groups, machines, generation).items() if own else ():
        siblings = are_siblings(members, machines)
        if siblings:
            found[level] = of_chip(found[level], family, level, members)
        for name, rows in members.items():
            own_values = {} if siblings else own_constants(family, fits[name])
            made[name] = kernel_table(family, name, rows, own_values, origins)
    return FittedFamily(found, made)


def kernel_table(
    family: Family, name: str, rows: Sequence[Group], libraries: Mapping[str, Values], origins: Origins
) -> LatencyTable:
    """Return the table of a machine in a family whose constants are all those of a library's kernels.

    Parameters
    ----------
    family, name, rows : the rows of the machine.
    libraries : its own constants of each library; none where those of its chip hold.
    origins : whose measurements those of each machine are.
    """
    count = sum(len(group) for kept in by_library(rows).values() for group in sample(kept, ROWS_OF_KERNEL))
    print(f"  {family.name} {name}: {', '.join(libraries_of(rows))}", flush=True)
    return LatencyTable(
        constants={},
        libraries=dict(libraries),
        intervals=held_out(family, name, rows),
        known_libraries=libraries_of(rows),
        dtypes=dtypes(family, rows),
        source=f"fitted on {joined(origins, [name])}, {count} rows",
        date=today(),
    )


def _of_widest(groups: Groups, machines: Mapping[str, Hardware]) -> str:
    """Return what the generations of the widest table differ between."""
    return VENDORS if len({vendor(machines[name]) for name in groups}) > 1 else GENERATIONS


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


def are_siblings(members: Collection[str], machines: Mapping[str, Hardware]) -> bool:
    """Return whether some measured machines of a generation are several with one die.

    They have one table of constants and one surface, so that they differ by what their specifications say alone.
    """
    return len(members) > 1 and all(_one_die(machines[member]) for member in members)


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
    # A constant that the machine has by library would hide the mean of its libraries.
    by_library = {name for values in own.libraries.values() for name in values}
    kept = {name: value for name, value in table.constants.items() if name not in by_library}
    return dataclasses.replace(table, constants={**kept, **own.constants}, libraries=libraries)


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
