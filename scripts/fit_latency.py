"""Fit the constants of the latency model on public measurement tables, and write them where they belong.

    python scripts/fit_latency.py [--deviations] [FAMILY ...]

For each family: the defaults for any GPU (``hardware_specs/defaults/generic.toml``), for those of one vendor
(``nvidia.toml``), of one vendor and kind of memory (``nvidia-hbm.toml``), of each generation (``hopper.toml``), and the
``[latency]`` tables of each machine that was measured. All from the fitting half of the shapes (`open_tables.FITTED`);
the other half judges, in docs/accuracy.md. Families that are not named keep their tables.
``--deviations`` renews only what machines and libraries differ by (`fit_deviations`).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import math
import os
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import open_tables
from fit_deviations import (
    ASSUMED_SIBLING,
    FEWEST,
    GENERATIONS,
    LINES,
    SIBLINGS,
    LeftOut,
    LibraryOffset,
    LibraryOffsets,
    machine_deviation,
    usual_deviation,
)
from fit_kernels import (
    ROWS_OF_KERNEL,
    Fits,
    by_library,
    held_out,
    is_of_kernels,
    kernel_fits,
    mean_fits,
    own_constants,
    today,
)

from perfmodel.accuracy.calibration import MOST_ROWS, calibrate_family
from perfmodel.accuracy.fit import Fit, Group
from perfmodel.accuracy.libraries import (
    FittedConstants,
    dtypes,
    fit_libraries,
    intervals,
    libraries_of,
    residuals,
    sample,
)
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.errors import unknown_name
from perfmodel.files import shipped_folder, write_atomic
from perfmodel.hardware_catalog.write import latency_text
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency import roofline
from perfmodel.prediction.latency.constants import WIDEST, Constants
from perfmodel.prediction.latency.estimate import regime_code
from perfmodel.prediction.latency.families import family_names
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine, generation, product_line, vendor
from perfmodel.prediction.latency.tables import LatencySpec, default_tables, latency_specs

#: rows of one machine in a fit that several machines share
ROWS_OF_MACHINE = 300
#: the tables of a specification from here on are written by this script
MARK = "# ---- from here on written by scripts/fit_latency.py ----"
#: every generation's file starts with this
HEAD = """# Constants of the latency model for {whom}.
# Written by scripts/fit_latency.py from public measurement tables; docs/accuracy.md says how well they do.
"""

Groups = Mapping[str, list[Group]]
#: machine -> whose measurements
Origins = Mapping[str, Collection[str]]
#: of a dtype that no machine of the vendor was measured in, and of one that only others were: assumed
ASSUMED_DTYPE = {"dtype": (0.25, 0.25, 0.25), "dtype_here": (0.08, 0.08, 0.08)}
#: the same of families whose rows are all in one dtype, and whose kernels in others are different ones: MIOpen's bf16
#: convolutions in the open trace of an MI300X take 2.4 times as long as predicted
OTHER_KERNELS = {"conv2d": {"dtype": (0.6, 0.6, 0.6)}}
#: of a vendor of which nothing was measured: assumed
ASSUMED_VENDOR = {"vendor": (0.30, 0.30, 0.30)}
#: of the host, for exchanges through it: two hosts with L40S differ by a factor of 1.2, 2 and 6.5 in the median of each
#: regime, and the deviation of two values is their difference over the root of 2
HOST_DEVIATION = {"collective_host": {"host": (0.13, 0.50, 1.30)}}
#: families that differ in the same way between machines: their offsets together are what is typical
ALIKE = (
    ("gemm_fp32", "gemm_bf16", "gemm_fp8", "gemm_w4a16", "gemm_w8a16", "gemm_w8a8", "gemm_fp8_block", "conv2d"),
    ("moe_bf16", "moe_fp8", "moe_fp8_block", "moe_int4", "moe_fp4", "moe_mxfp4"),
    ("attention_prefill", "attention_decode"),
    ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "collective_host"),
    ("elementwise", "layer_norm", "softmax", "rms_norm", "rope", "embedding"),
)


def left_out(
    family: Family, groups: Groups, start: Constants, judged: Sequence[Groups], near: FittedConstants, *, host: bool
) -> list[LeftOut]:
    """Return the residuals of each machine whose part was left out of the fit."""
    found = []
    for part in judged:
        others = {name: rows for name, rows in groups.items() if name not in part}
        fitted = fit_libraries(family, _sampled(others), start.values, host=host, near=near)
        libraries = {g.conditions.library for rows in others.values() for g in rows}
        together = " ".join(part)
        for name, rows in part.items():
            # What a library that nobody else measured differs by is not the machine's.
            rows = [group for group in rows if group.conditions.library in libraries]
            if not rows:
                continue
            ratio, regime = residuals(family, sample(rows, ROWS_OF_MACHINE), fitted)
            found.append(LeftOut(name, -ratio, regime, together))
    return found


def _in_sample(family: Family, groups: Groups, fitted: FittedConstants) -> list[LeftOut]:
    """Return the residuals of each machine's libraries under the constants that they were fitted to.

    A handful of constants hardly learns hundreds of rows, so that the spread over shapes is nearly that of new ones.
    """
    found = []
    for name, rows in groups.items():
        for library in sorted({group.conditions.library for group in rows}):
            own = sample([group for group in rows if group.conditions.library == library], ROWS_OF_MACHINE)
            ratio, regime = residuals(family, own, fitted)
            found.append(LeftOut(name, -ratio, regime))
    return found


def shape_intervals(
    machines: Sequence[LeftOut], default: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the middle 80 % of measured / predicted without the machines' offsets."""
    ratio = [machine.within(regime) for machine in machines for regime in range(len(REGIMES))]
    code = [np.full(rows.size, index % len(REGIMES)) for index, rows in enumerate(ratio)]
    return intervals(-np.concatenate(ratio), np.concatenate(code), default)


def library_offsets(family: Family, groups: Groups, start: Constants, near: FittedConstants) -> LibraryOffsets:
    """Leave each library out of the fit, and each library of each machine, and return what they differ by."""
    machines = {name: sample(rows, ROWS_OF_MACHINE) for name, rows in groups.items()}
    of = {name: {g.conditions.library for g in rows} for name, rows in machines.items()}
    pairs = [(library, name) for name, libraries in of.items() if len(libraries) > 1 for library in sorted(libraries)]
    if not pairs:
        return LibraryOffsets()
    known = _offsets_of(family, machines, near, pairs, unknown=False)
    whole, here = [], []
    for library in sorted({library for library, _ in pairs}):
        rest = [g for rows in machines.values() for g in rows if g.conditions.library != library]
        fitted = fit_libraries(family, rest, start.values, near=near)
        whole += _offsets_of(family, machines, fitted, [p for p in pairs if p[0] == library], unknown=True)
    for pair in pairs:
        rest = [g for name, rows in machines.items() for g in rows if (g.conditions.library, name) != pair]
        if any(g.conditions.library == pair[0] for g in rest):
            here += _offsets_of(family, machines, fit_libraries(family, rest, start.values, near=near), [pair])
    return LibraryOffsets(tuple(known), tuple(whole), tuple(here))


def _offsets_of(
    family: Family,
    machines: Groups,
    fitted: FittedConstants,
    pairs: Sequence[tuple[str, str]],
    *,
    unknown: bool = False,
) -> list[LibraryOffset]:
    """Return the offset of each library over the others of a machine in each regime."""
    found = []
    for library, name in pairs:
        own = [g for g in machines[name] if g.conditions.library == library]
        others = [g for g in machines[name] if g.conditions.library != library]
        ratio, code = residuals(family, own, fitted, unknown=unknown)
        other, other_code = residuals(family, others, fitted)
        for regime in range(len(REGIMES)):
            mine, theirs = ratio[code == regime], other[other_code == regime]
            if mine.size >= FEWEST and theirs.size >= FEWEST:
                spread = float(np.median(np.abs(mine - np.median(mine))) * 1.4826) ** 2
                offset = float(np.median(mine) - np.median(theirs))
                found.append(LibraryOffset(library, name, regime, offset, spread))
    return found


@dataclass(frozen=True)
class Shared:
    """Constants that several machines share, before their deviations between machines are known."""

    table: LatencyTable
    fitted: FittedConstants
    machines: tuple[LeftOut, ...]
    parts: int
    weight: float = 1.0
    libraries: LibraryOffsets | None = None
    between: str = GENERATIONS

    def next_machine(self, wider_parts: int) -> float:
        """Return the deviation of the next machine from this table, over that between machines.

        The next machine differs from the mean of all; the table's mean of n parts does too, and so does that of the N
        wider parts, to which the table is drawn: 1 + w^2 / n + (1 - w)^2 / N, in squares.
        """
        return math.sqrt(1.0 + self.weight**2 / self.parts + (1.0 - self.weight) ** 2 / wider_parts)


def shared(
    family: Family, groups: Groups, start: Constants, origins: Origins, judged: Sequence[Groups], *,
    host: bool = False, shrunk: bool = True, between: str = GENERATIONS, wider: LatencyTable | None = None,
    near: Shared | None = None, anew: bool = True,
) -> Shared:  # fmt: skip
    """Return constants that several machines share, with the residuals of machines that were left out.

    Parameters
    ----------
    family, groups : the rows of each machine.
    start : the constants to start from.
    origins : whose measurements those of each machine are.
    judged : the parts that are left out one after another; where there is only one, the interval of ``start`` stays.
    host : whether the dispatch is fitted too: it is the software's and the host's, not the chip's, so that machines
        of one generation do not share it, and those of a vendor do.
    shrunk : whether the constants of n machines are drawn to those of ``start`` by 1 / (n + 1): few machines do not
        tell what they share from what they have each.
    between : what the parts are (`fit_deviations.BETWEEN`). Siblings have one die, so that they share all but what
        their specifications say.
    wider : the table around this one, to whose constants of each library its own are drawn; None for the widest, which
        has the deviations of libraries, dtypes and vendors.
    near : constants that were fitted to nearly the same rows.
    anew : whether the deviations of libraries are estimated anew, or are those of ``near``.
    """
    fitted = fit_libraries(family, _sampled(groups), start.values, host=host, near=near.fitted if near else None)
    machines = left_out(family, groups, start, judged, fitted, host=host) if len(judged) > 1 else []
    rows = sum(map(len, _sampled(groups)))
    weight = len(groups) / (len(groups) + 1.0) if shrunk and between != SIBLINGS else 1.0
    known = libraries_of(_sampled(groups))

    def drawn(values: Values, libraries: Sequence[str]) -> dict[str, float]:
        # to what the wider table says about the same libraries: a kernel of another one may be ten times slower
        of = [{**start.values, **(wider.libraries.get(library, {}) if wider else {})} for library in libraries or ("",)]
        around = {name: math.exp(sum(math.log(own[name]) for own in of) / len(of)) for name in values}
        return {name: float(v**weight * around[name] ** (1.0 - weight)) for name, v in values.items()}

    deviations: dict[str, tuple[float, ...]] = {}
    offsets = None
    if wider is None and near and not anew:
        deviations = {key: value for key, value in near.table.deviations.items() if key != ErrorSource.MACHINE}
    elif wider is None:
        offsets = library_offsets(family, groups, start, fitted)
        deviations = {**offsets.deviations(), **ASSUMED_DTYPE, **ASSUMED_VENDOR}
        deviations |= OTHER_KERNELS.get(family.name, {})
        deviations |= HOST_DEVIATION.get(family.name, {})
    table = LatencyTable(
        constants=drawn({n: v for n, v in fitted.common().items() if n in fitted.shared.certainty}, known),
        libraries={library: drawn(values, [library]) for library, values in fitted.own().items()},
        intervals=shape_intervals(machines or _in_sample(family, groups, fitted), start.intervals),
        deviations=deviations,
        known_libraries=known,
        dtypes=dtypes(family, _sampled(groups)),
        source=f"fitted on {_joined(origins, groups)}, {rows} rows of {', '.join(sorted(groups))}",
        date=datetime.date.today().isoformat(),
    )
    return Shared(table, fitted, tuple(machines), max(1, len(judged)), weight, offsets, between)


def _joined(origins: Origins, machines: Iterable[str]) -> str:
    return ", ".join(sorted({origin for machine in machines for origin in origins[machine]}))


def _sampled(groups: Groups) -> list[Group]:
    return [group for rows in groups.values() for group in sample(rows, ROWS_OF_MACHINE)]


def typical(family: Family) -> Constants:
    """Return what is known of a family before any fit."""
    values = {constant.name: constant.default for constant in family.all_constants}
    return Constants(values, dict.fromkeys(REGIMES, WIDEST), "never seen", "")


def under(table: LatencyTable, base: Constants) -> Constants:
    """Return the constants of a table over those of a base: the start of the next fit."""
    return Constants({**base.values, **table.without_library}, {**base.intervals, **table.intervals}, "", table.source)


@dataclass(frozen=True)
class FittedFamily:
    """A family's tables by file, from the widest to the narrowest: shared ones, and those of each machine."""

    shared: dict[str, Shared]
    machines: dict[str, LatencyTable]

    def apart(self, between: str) -> list[LeftOut]:
        """Return the machines that were left out of the widest tables with parts of a kind."""
        if between == GENERATIONS:
            return list(self.shared["generic"].machines)
        return [machine for found in self.shared.values() if found.between == between for machine in found.machines]

    def tables(self, usual: Mapping[str, Sequence[float]]) -> dict[str, LatencyTable]:
        """Return all tables, with the deviation of a machine that is none of theirs; see `Shared.next_machine`.

        Parameters
        ----------
        usual : the deviation in each regime that is usual among such families, between machines of each kind.
        """
        made = {}
        for name, found in self.shared.items():
            deviation = machine_deviation(found.machines, usual[found.between])
            factor = found.next_machine(self.shared["generic"].parts)
            next_one = tuple(s * factor for s in deviation)
            made[name] = dataclasses.replace(found.table, deviations={"machine": next_one, **found.table.deviations})
        return {**made, **self.machines}


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
        source = f"fitted on {_joined(origins, [name])}, {min(sum(map(len, rows)), MOST_ROWS)} rows"
        found = calibrate_family(family, rows, around[name], source, datetime.date.today().isoformat())
        made[name] = found.table
        error = 100 * np.abs(np.expm1(found.log_ratio)).mean()
        kept = ", ".join(found.fit.unidentified) or "none"
        print(f"  {family.name} {name}: {error:.1f} % on rows not fitted; kept: {kept}", flush=True)
        alone = generation(machines[name])
        if _one_die(machines[name]) and len(generations[alone]) == 1:
            tables[alone] = dataclasses.replace(tables[alone], table=_with_own(tables[alone].table, found.table))
    return FittedFamily(tables, made)


def _fit_kernels(
    family: Family, groups: Groups, origins: Origins, machines: Mapping[str, Hardware], *, own: bool
) -> FittedFamily:
    """Return the tables of a family whose constants are all those of a library's kernels (`fit_kernels`)."""
    # Each library on each machine is fitted alone, so that nothing changes them when others are left out.
    fits = {
        name: kernel_fits(family, name, rows) if own else _shipped_fits(family, machines[name], rows)
        for name, rows in groups.items()
    }
    found = {}
    for level in (lambda machine: "generic", vendor, product_line, generation):
        for name, members in _parted(groups, machines, level).items():
            between, by = _parts_of(level, members, machines)
            parts = [list(part) for part in _parted(members, machines, by).values()]
            mean = _mean_table(family, members, fits, parts, origins, widest=name == "generic")
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
            source=f"fitted on {_joined(origins, [name])}, {count} rows",
            date=today(),
        )
        print(f"  {family.name} {name}: {', '.join(fits[name])}", flush=True)
    return FittedFamily(found, made)


def _shipped_fits(family: Family, machine: Hardware, rows: Sequence[Group]) -> Fits:
    """Return the constants of each library that some rows are of, as the specification has them."""
    table = machine.latency[family.name]
    base = {constant.name: constant.default for constant in family.all_constants}
    base |= table.without_library
    names = sorted({group.conditions.library for group in rows} & set(table.known_libraries))
    values = {name: {**base, **table.libraries.get(name, {})} for name in names}
    return {name: Fit(own, (), dict.fromkeys(base, 0.0), 0.0, 0) for name, own in values.items()}


def _mean_table(
    family: Family, groups: Groups, fits: Mapping[str, Fits], parts: Sequence[Sequence[str]], origins: Origins,
    *, widest: bool,
) -> Shared:  # fmt: skip
    """Return the means of some machines, and how far each part of them is from the means of the others."""
    found = mean_fits(family, [fits[name] for name in groups])
    apart = []
    for part in parts if len(parts) > 1 else ():
        others = mean_fits(family, [fits[name] for name in groups if name not in part])
        for name in part:
            rows = [group for group in groups[name] if group.conditions.library in others.libraries]
            if rows:
                ratio, regime = residuals(family, sample(rows, ROWS_OF_MACHINE), others)
                apart.append(LeftOut(name, -ratio, regime, " ".join(part)))
    rows = [group for own in groups.values() for group in own]
    offsets = _kernel_offsets(family, groups, fits) if widest else LibraryOffsets()
    table = LatencyTable(
        constants={},
        libraries=own_constants(family, found.libraries),
        intervals=shape_intervals(apart or _in_sample(family, groups, found), dict.fromkeys(REGIMES, WIDEST)),
        deviations={**offsets.deviations(), **ASSUMED_DTYPE, **ASSUMED_VENDOR} if widest else {},
        known_libraries=libraries_of(rows),
        dtypes=dtypes(family, rows),
        source=f"means of fits on {_joined(origins, groups)}, {', '.join(sorted(groups))}",
        date=today(),
    )
    return Shared(table, found, tuple(apart), max(1, len(parts)))


def _kernel_offsets(family: Family, groups: Groups, fits: Mapping[str, Fits]) -> LibraryOffsets:
    """Return what each library differs by from the mean of the others, and on a machine from the means elsewhere."""
    pairs = [(library, name) for name in groups if len(fits[name]) > 1 for library in fits[name]]
    sampled = {name: sample(rows, ROWS_OF_MACHINE) for name, rows in groups.items()}
    known, whole, here = [], [], []
    for library, name in pairs:
        known += _offsets_of(family, sampled, FittedConstants(fits[name][library], fits[name]), [(library, name)])
        others = [{key: one for key, one in fits[machine].items() if key != library} for machine in groups]
        mean = mean_fits(family, [own for own in others if own])
        whole += _offsets_of(family, sampled, mean, [(library, name)], unknown=True)
        elsewhere = [fits[machine] for machine in groups if machine != name and library in fits[machine]]
        if elsewhere:
            found = mean_fits(family, elsewhere).libraries[library]
            own = FittedConstants(found, {**fits[name], library: found})
            here += _offsets_of(family, sampled, own, [(library, name)])
    return LibraryOffsets(tuple(known), tuple(whole), tuple(here))


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


def roofline_table(calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]) -> LatencyTable:
    """Return the interval of the sustained roofline, which has no constants, from products timed on the device."""
    ratios, regimes = [], []
    for call in calls:
        if call.op.op == "gemm" and not call.timing.includes_host:
            machine = machines[call.hardware]
            family, _ = roofline.family(call.op, machine, resolve_peak(call.op, machine), call.op.work())
            terms = family.terms(call.op, Machine.of(machine, None), {}, call.conditions)
            ratios.append(np.log(terms.time_s / call.time_s))
            regimes.append(regime_code(terms.adds, terms.time_s))
    found = intervals(np.concatenate(ratios), np.concatenate(regimes), dict.fromkeys(REGIMES, WIDEST))
    source = f"measured over predicted of {sum(map(len, ratios))} products, {open_tables.ORIGINS['aic']}"
    return LatencyTable({}, intervals=found, source=source, date=datetime.date.today().isoformat())


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


def files() -> dict[str, Path]:
    """Return the files with tables: specifications by machine, and those of defaults that there are."""
    folder = shipped_folder()
    return {path.stem: path for path in (*folder.glob("*.toml"), *(folder / "defaults").glob("*.toml"))}


def replace_tables(path: Path, head: str, made: Mapping[str, LatencySpec], dropped: Collection[str] = ()) -> None:
    """Write some tables into a file in the place of those of the same families; ``head`` is what stands before them."""
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    before = msgspec.convert(document.get("latency", {}), dict[str, LatencySpec])
    # Tables keep their place and new ones come last, so that a difference shows what was fitted.
    specs = {**{name: spec for name, spec in before.items() if name not in dropped}, **made}
    write_atomic(path, f"{head.rstrip()}\n\n{latency_text(specs)}" if specs else f"{head.rstrip()}\n")


def alike_families(name: str) -> tuple[str, ...]:
    """Return the families that differ between machines as one of them does."""
    return next((group for group in ALIKE if name in group), (name,))


def head_of(name: str, path: Path) -> str:
    """Return what stands before the tables of a file."""
    if path.parent.name != "defaults":
        text = path.read_text(encoding="utf-8").split(MARK)[0].rstrip()
        return f"{text}\n\n{MARK}"
    whom = "GPUs like none that was measured" if name == "generic" else f"{name} GPUs that nobody measured"
    return HEAD.format(whom=whom)


def _fit(name: str) -> FittedFamily:
    """Fit one family in a process of its own."""
    opened = open_tables.load()
    data, families, origins = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    return fit_family(families[name], data[name], origins[name], opened.machines)


def usual_in(name: str, found: Mapping[str, FittedFamily]) -> dict[str, tuple[float, ...]]:
    """Return the deviations between machines that are usual in families like one, given all that were fitted."""
    alike = alike_families(name)
    usual = {SIBLINGS: (ASSUMED_SIBLING,) * len(REGIMES)}
    for between in (GENERATIONS, LINES):
        every = {other: fitted.apart(between) for other, fitted in found.items()}
        usual[between] = usual_deviation([every[other] for other in alike if other in every], list(every.values()))
    # Machines of another line are of another generation, too.
    usual[LINES] = tuple(map(max, usual[LINES], usual[GENERATIONS]))
    return usual


def _renewed(name: str) -> FittedFamily:
    """Leave machines and libraries out of one family again, near its shipped constants, in a process of its own."""
    opened = open_tables.load()
    data, families, origins = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    family, groups = families[name], data[name]
    near = shipped(family, groups, opened.machines)
    return fit_family(family, groups, origins[name], opened.machines, near=near)


def _measured_families() -> list[str]:
    opened = open_tables.load()
    return sorted(open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)[1])


def renew_deviations(chosen: Sequence[str]) -> None:
    """Write the deviations of some families' shared tables anew; constants and intervals stay."""
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(chosen, pool.map(_renewed, chosen), strict=True))
    for name, made in found.items():
        for key, table in made.tables(usual_in(name, found)).items():
            path = shipped_folder() / "defaults" / f"{key}.toml"
            kept = dataclasses.replace(default_tables(key)[name], deviations=table.deviations)
            replace_tables(path, head_of(key, path), latency_specs({name: kept}))


def write(found: Mapping[str, FittedFamily], opened: open_tables.OpenTables) -> None:
    """Write the tables of some families into the files; those of other families stay."""
    for name, made in found.items():
        for key, table in made.tables(usual_in(name, found)).items():
            folder = shipped_folder() if key in opened.machines else shipped_folder() / "defaults"
            path = folder / f"{key}.toml"
            replace_tables(path, head_of(key, path), latency_specs({name: table}))


def main() -> None:
    """Fit the chosen families, all by default; with ``--deviations``, only what machines and libraries differ by."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deviations", action="store_true", help="renew only what machines and libraries differ by")
    parser.add_argument("families", metavar="FAMILY", nargs="*", help="families to fit; all by default")
    options = parser.parse_args()
    for name in options.families:
        if name not in family_names():
            parser.error(str(unknown_name("family", name, family_names())))
    if options.deviations:
        renew_deviations(options.families or _measured_families())
    else:
        renew(options.families or family_names())


def renew(chosen: Sequence[str]) -> None:
    """Write the tables of some families anew."""
    for name, path in files().items():
        # A constant that the family has no more would make the file unreadable.
        if "[latency." in path.read_text(encoding="utf-8"):
            replace_tables(path, head_of(name, path), {}, chosen)
    opened = open_tables.load()
    fitted = open_tables.half(opened.calls, fitted=True)
    data, _, _ = open_tables.by_family(fitted, opened.machines)
    if "roofline" in chosen:
        path = shipped_folder() / "defaults" / "generic.toml"
        made = latency_specs({"roofline": roofline_table(fitted, opened.machines)})
        replace_tables(path, head_of("generic", path), made)
    names = [name for name in chosen if name in data]
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        write(dict(zip(names, pool.map(_fit, names), strict=True)), opened)


if __name__ == "__main__":
    main()
