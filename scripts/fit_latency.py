"""Fit the constants of the latency model on public measurement tables, and write them where they belong.

    python scripts/fit_latency.py [--deviations | --surfaces | --backends] [FAMILY ...]

For each family: the defaults for any GPU (``hardware_specs/defaults/generic.toml``), for those of one vendor
(``nvidia.toml``), of one vendor and kind of memory (``nvidia-hbm.toml``), of each generation (``hopper.toml``), and the
``[latency]`` tables of each machine that was measured. All from the fitting half of the shapes (`open_tables.FITTED`);
the other half judges, in docs/accuracy.md. Families that are not named keep their tables.
``--deviations`` renews only what machines and libraries differ by (`fit_deviations`), ``--surfaces`` only the residual
surfaces about the shipped constants (`fit_surface`), in ``hardware_specs/surfaces/``, ``--backends`` only the constants
of torch's kernels of attention (`fit_backends`). What is usual between machines and libraries is estimated from all
families, so that a fit of some of them keeps the deviations that are stored.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import multiprocessing
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import open_tables
from fit_backends import rows_of_backends, with_backends
from fit_family import fit_family, shipped, with_surfaces
from fit_siblings import siblings
from fit_spread import with_spreads
from fit_usual import ATTENTION, FittedFamily, usual_in

from perfmodel.accuracy.libraries import intervals
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.errors import unknown_name
from perfmodel.files import shipped_folder, write_atomic
from perfmodel.hardware_catalog.write import latency_text
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency import roofline
from perfmodel.prediction.latency.constants import WIDEST
from perfmodel.prediction.latency.estimate import regime_code
from perfmodel.prediction.latency.families import family, family_names
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.surfaces import read_surfaces, surface_path, surface_text, to_surface
from perfmodel.prediction.latency.tables import LatencySpec, default_tables, latency_specs

#: source of error -> deviation in each regime
Deviations = Mapping[str, tuple[float, ...]]
#: the tables of a specification from here on are written by this script
MARK = "# ---- from here on written by scripts/fit_latency.py ----"
#: every generation's file starts with this
HEAD = """# Constants of the latency model for {whom}.
# Written by scripts/fit_latency.py from public measurement tables; docs/accuracy.md says how well they do.
"""


def roofline_table(calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]) -> LatencyTable:
    """Return the interval of the sustained roofline, which has no constants, from products timed on the device."""
    ratios, regimes, origins = [], [], set()
    for call in calls:
        if call.op.op == "gemm" and not call.timing.includes_host:
            machine = machines[call.hardware]
            terms = roofline.formula(call.op, Machine.of(machine, resolve_peak(call.op, machine)), {}, call.conditions)
            ratios.append(np.log(terms.time_s / call.time_s))
            regimes.append(regime_code(terms.adds, terms.time_s))
            origins.add(open_tables.origin(call))
    found = intervals(np.concatenate(ratios), np.concatenate(regimes), dict.fromkeys(REGIMES, WIDEST))
    source = f"measured over predicted of {sum(map(len, ratios))} products, {', '.join(sorted(origins))}"
    return LatencyTable({}, intervals=found, source=source, date=datetime.date.today().isoformat())


def files() -> dict[str, Path]:
    """Return the files with tables: specifications by machine, and those of defaults that there are."""
    folder = shipped_folder()
    return {path.stem: path for path in (*folder.glob("*.toml"), *(folder / "defaults").glob("*.toml"))}


def replace_tables(
    path: Path,
    head: str,
    made: Mapping[str, LatencySpec],
    dropped: Collection[str] = (),
    order: Sequence[str] = (),
) -> None:
    """Write some tables into a file in the place of those of the same families; ``head`` is what stands before them.

    Tables keep their place, or that in ``order``, and new ones come last, so that a difference shows what was fitted.
    """
    specs = {**{name: spec for name, spec in tables_in(path).items() if name not in dropped}, **made}
    placed = {name: specs[name] for name in (*order, *specs) if name in specs}
    write_atomic(path, f"{head.rstrip()}\n\n{latency_text(placed)}" if placed else f"{head.rstrip()}\n")


def tables_in(path: Path) -> dict[str, LatencySpec]:
    """Return the tables of a file by family; none where there is no file."""
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return msgspec.convert(document.get("latency", {}), dict[str, LatencySpec])


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
    made = fit_family(families[name], data[name], origins[name], opened.machines)
    return with_backends(made, families[name], rows_of_backends(name, opened), opened.machines)


def _renewed(name: str) -> FittedFamily:
    """Leave machines and libraries out of one family again, near its shipped constants, in a process of its own."""
    opened = open_tables.load()
    data, families, origins = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    family, groups = families[name], data[name]
    near = shipped(family, groups, opened.machines)
    return fit_family(family, groups, origins[name], opened.machines, near=near, surfaces=False)


def _measured_families() -> list[str]:
    opened = open_tables.load()
    return sorted(open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)[1])


def renew_deviations(chosen: Sequence[str]) -> None:
    """Write the deviations of some families' shared tables anew; constants and intervals stay.

    All families are left out again, since their offsets together are what is usual.
    """
    measured = _measured_families()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(measured, pool.map(_renewed, measured), strict=True))
    for name in [name for name in measured if name in chosen]:
        for key, table in found[name].tables(usual_in(name, found)).items():
            path = shipped_folder() / "defaults" / f"{key}.toml"
            kept = dataclasses.replace(default_tables(key)[name], deviations=table.deviations, links=table.links)
            replace_tables(path, head_of(key, path), latency_specs({name: kept}))


def renew_surfaces(chosen: Sequence[str]) -> None:
    """Write the residual surfaces of some families anew, about the shipped constants."""
    opened = open_tables.load()
    data, families, origins = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    for name in chosen:
        groups = data[name]
        near = shipped(families[name], groups, opened.machines)
        own = {machine: opened.machines[machine].latency[name] for machine in groups}
        made = with_surfaces(FittedFamily(near.shared, own), families[name], groups, origins[name], opened.machines)
        for key, table in {**{key: found.table for key, found in made.shared.items()}, **made.machines}.items():
            write_table(name, key, table, opened)


def renew_backends(chosen: Sequence[str]) -> None:
    """Write the constants of torch's backends anew, about the shipped constants of the serving libraries."""
    opened = open_tables.load()
    data, families, _ = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    for name in chosen:
        groups = rows_of_backends(name, opened)
        near = shipped(families[name], data[name], opened.machines)
        own = {machine: opened.machines[machine].latency[name] for machine in groups}
        made = with_backends(FittedFamily(near.shared, own), families[name], groups, opened.machines)
        for machine in groups:
            level = generation(opened.machines[machine])
            write_table(name, level, made.shared[level].table, opened)
            write_table(name, machine, made.machines[machine], opened)


def renew_spreads(chosen: Sequence[str]) -> None:
    """Write how much the shapes of each library differ anew, about the shipped constants."""
    opened = open_tables.load()
    machines = opened.machines
    found = with_spreads(machines, chosen, open_tables.half(opened.calls, fitted=True))
    for (machine, name), factors in found.items():
        path = shipped_folder() / f"{machine}.toml"
        table = dataclasses.replace(machines[machine].latency[name], spread=factors)
        if table != machines[machine].latency[name]:
            replace_tables(path, head_of(machine, path), latency_specs({name: table}))


def renew_siblings(chosen: Sequence[str]) -> None:
    """Widen what machines of a generation share to the intervals of those that were measured."""
    for key, name, table in list(siblings(chosen)):
        path = shipped_folder() / "defaults" / f"{key}.toml"
        replace_tables(path, head_of(key, path), latency_specs({name: table}))


def write_table(name: str, key: str, table: LatencyTable, opened: open_tables.OpenTables) -> None:
    """Write the table of a family into a file, and its surface into the file of surfaces."""
    folder = shipped_folder() if key in opened.machines else shipped_folder() / "defaults"
    path = folder / f"{key}.toml"
    replace_tables(path, head_of(key, path), latency_specs({name: table}))
    place = surface_path(key)
    before = read_surfaces(place) if place.is_file() else {}
    kept = {other: to_surface(key, spec, family(other), f"{place}: {other}") for other, spec in before.items()}
    if table.surface is not None and table.surface.name == key:
        kept[name] = table.surface
    else:
        kept.pop(name, None)
    if kept:
        place.parent.mkdir(exist_ok=True)
        write_atomic(place, surface_text(key, kept))
    else:
        place.unlink(missing_ok=True)
    read_surfaces.cache_clear()


def write(
    found: Mapping[str, FittedFamily], opened: open_tables.OpenTables, stored: Mapping[tuple[str, str], Deviations]
) -> None:
    """Write the tables of some families into the files; those of other families stay.

    Parameters
    ----------
    found : the families that were fitted.
    opened : the measurements, for the names of the machines.
    stored : (file, family) -> deviations that stay as they are, since other families were not fitted.
    """
    for name, made in found.items():
        for key, table in made.tables(usual_in(name, found)).items():
            table = dataclasses.replace(table, deviations=stored.get((key, name), table.deviations))
            write_table(name, key, table, opened)


def main() -> None:
    """Fit the chosen families, all by default; with ``--deviations``, only what machines and libraries differ by."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deviations", action="store_true", help="renew only what machines and libraries differ by")
    parser.add_argument("--surfaces", action="store_true", help="renew only the residual surfaces")
    parser.add_argument("--spreads", action="store_true", help="renew only how much each library's shapes differ")
    parser.add_argument("--siblings", action="store_true", help="only widen shared tables to their members' intervals")
    parser.add_argument("families", metavar="FAMILY", nargs="*", help="families to fit; all by default")
    parser.add_argument("--backends", action="store_true", help="renew only the constants of torch's attention")
    options = parser.parse_args()
    for name in options.families:
        if name not in family_names():
            parser.error(str(unknown_name("family", name, family_names())))
    if options.surfaces:
        renew_surfaces([name for name in options.families or family_names() if family(name).axes])
    elif options.backends:
        renew_backends(options.families or ATTENTION)
    elif options.siblings:
        renew_siblings(options.families or family_names())
    elif options.spreads:
        renew_spreads(options.families or _measured_families())
    elif options.deviations:
        renew_deviations(options.families or _measured_families())
    else:
        renew(options.families or family_names())


def stored_deviations() -> dict[tuple[str, str], Deviations]:
    """Return (file, family) -> the deviations of the tables that several machines share, as they ship."""
    shared = (shipped_folder() / "defaults").glob("*.toml")
    tables = ((path.stem, name, table) for path in shared for name, table in default_tables(path.stem).items())
    return {(key, name): table.deviations for key, name, table in tables if table.deviations}


def renew(chosen: Sequence[str]) -> None:
    """Write the tables of some families anew; of some only, their deviations stay."""
    open_tables.tables()  # before anything is taken away
    stored = {} if set(family_names()) <= set(chosen) else stored_deviations()
    order = {path: list(tables_in(path)) for path in files().values()}
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
        write(dict(zip(names, pool.map(_fit, names), strict=True)), opened, stored)
    for renewal in (renew_spreads, renew_siblings):
        # a process of its own, which reads the tables that were just written
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(renewal, names).result()
    for name, path in files().items():
        if path in order and list(tables_in(path)) != order[path]:
            replace_tables(path, head_of(name, path), {}, order=order[path])
    if stored:
        print("deviations of machines and libraries stay as they are: --deviations renews them")


if __name__ == "__main__":
    main()
