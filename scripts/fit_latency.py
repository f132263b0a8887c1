"""Fit the constants of the latency model on public measurement tables, and write them where they belong.

    python scripts/fit_latency.py [FAMILY ...]

For each family it writes the defaults for any GPU (``hardware_specs/defaults/generic.toml``), for those of one vendor
(``nvidia.toml``), of one vendor and kind of memory (``nvidia-hbm.toml``), of each generation (``hopper-9.0.toml``), and
the ``[latency]`` tables of each machine that was measured. All come from the fitting half of the shapes
(`open_tables.FITTED`); the other half judges them, in docs/accuracy.md. Families that are not named keep their tables.
"""

from __future__ import annotations

import datetime
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import open_tables

from perfmodel.accuracy.calibration import (
    MOST_ROWS,
    calibrate_family,
    dtypes,
    fit_libraries,
    intervals,
    residuals,
    sample,
)
from perfmodel.accuracy.fit import Group
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.files import shipped_folder, write_atomic
from perfmodel.hardware_catalog.write import latency_text
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency import roofline
from perfmodel.prediction.latency.constants import WIDEST, Constants
from perfmodel.prediction.latency.families import family_names
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import Machine, generation, product_line, vendor
from perfmodel.prediction.latency.model import regime_code
from perfmodel.prediction.latency.tables import LatencySpec, latency_specs

#: rows of one machine in a fit that several machines share
ROWS_OF_MACHINE = 300
#: the tables of a specification from here on are written by this script
MARK = "# ---- from here on written by scripts/fit_latency.py ----"
#: every generation's file starts with this
HEAD = """# Constants of the latency model for {whom}.
# Written by scripts/fit_latency.py from public measurement tables; docs/accuracy.md says how well they do.
"""

Groups = Mapping[str, list[Group]]


def shared(
    family: Family, groups: Groups, start: Constants, origin: str, judged: Sequence[Groups], *, host: bool = False
) -> LatencyTable:
    """Return constants that several machines share, with the interval of machines that were left out.

    Parameters
    ----------
    family, groups : the rows of each machine.
    start : the constants to start from.
    origin : source of the measurements.
    judged : the parts that are left out one after another; if there is only one, the interval of ``start`` stays.
    host : whether the dispatch is fitted too. It belongs to the software and the host, not to the chip, so that
        machines of a vendor share it, and those of a generation do not.
    """
    spread = start.intervals
    if len(judged) > 1:
        spread = left_out_intervals(family, groups, start, judged, host=host)
    fitted = fit_libraries(family, _sampled(groups), start.values, host=host)
    rows = sum(map(len, _sampled(groups)))
    return LatencyTable(
        constants={name: value for name, value in fitted.common().items() if name in fitted.shared.certainty},
        libraries=fitted.own(),
        intervals=spread,
        dtypes=dtypes(family, _sampled(groups)),
        source=f"fitted on {origin}, {rows} rows of {', '.join(sorted(groups))}",
        date=datetime.date.today().isoformat(),
    )


def left_out_intervals(
    family: Family, groups: Groups, start: Constants, judged: Sequence[Groups], *, host: bool
) -> Mapping[str, tuple[float, float]]:
    """Return the quantiles of measured / predicted of machines whose part was left out of the fit."""
    ratios, regimes = [], []
    for part in judged:
        others = {name: rows for name, rows in groups.items() if name not in part}
        fitted = fit_libraries(family, _sampled(others), start.values, host=host)
        # Each part counts the same, however many machines it has.
        rows = sample([group for of_machine in part.values() for group in of_machine], ROWS_OF_MACHINE)
        ratio, regime = residuals(family, rows, fitted)
        # The mean over the other parts is itself uncertain: of n parts, the next one is off by sqrt(1 + 1 / n) as much.
        ratios.append(ratio * np.sqrt(1.0 + 1.0 / len(judged)))
        regimes.append(regime)
    return intervals(np.concatenate(ratios), np.concatenate(regimes), start.intervals)


def _sampled(groups: Groups) -> list[Group]:
    return [group for rows in groups.values() for group in sample(rows, ROWS_OF_MACHINE)]


def typical(family: Family) -> Constants:
    """Return the constants of a family before any fit."""
    values = {constant.name: constant.default for constant in family.all_constants}
    return Constants(values, dict.fromkeys(REGIMES, WIDEST), "never seen", "")


def under(table: LatencyTable, base: Constants) -> Constants:
    """Return the constants of a table over those of a base: the start of the next fit."""
    return Constants({**base.values, **table.without_library}, {**base.intervals, **table.intervals}, "", table.source)


def fit_family(
    family: Family, groups: Groups, origin: str, machines: Mapping[str, Hardware]
) -> dict[str, LatencyTable]:
    """Return a family's tables by file: the defaults from the widest to the narrowest, then each machine's."""
    generations = _parted(groups, machines, generation)
    tables = {"generic": shared(family, groups, typical(family), origin, list(generations.values()), host=True)}
    # From the widest to the narrowest, each from the one around it.
    around = {name: under(tables["generic"], typical(family)) for name in groups}
    for level in (vendor, product_line, generation):
        for name, members in _parted(groups, machines, level).items():
            by = generation if level is not generation else lambda machine: machine.name
            parts = list(_parted(members, machines, by).values())
            base = around[next(iter(members))]
            tables[name] = shared(family, members, base, origin, parts, host=level is vendor)
            around |= dict.fromkeys(members, under(tables[name], base))
    for name, rows in groups.items():
        source = f"fitted on {origin}, {min(sum(map(len, rows)), MOST_ROWS)} rows"
        calibrated = calibrate_family(family, rows, around[name], source, datetime.date.today().isoformat())
        tables[name] = calibrated.table
        error = 100 * np.abs(np.expm1(calibrated.log_ratio)).mean()
        print(f"  {name}: {error:.1f} % on rows not fitted; kept: {', '.join(calibrated.fit.unidentified) or 'none'}")
    return tables


def roofline_table(calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]) -> LatencyTable:
    """Return the interval of the sustained roofline, which has no constants, from products timed on the device."""
    ratios, regimes = [], []
    for call in calls:
        if call.op.op == "gemm" and call.timing != "event":
            machine = machines[call.hardware]
            terms = roofline.formula(call.op, Machine.of(machine, resolve_peak(call.op, machine)), {}, call.conditions)
            ratios.append(np.log(terms.time_s / call.time_s))
            regimes.append(regime_code(terms.adds, terms.time_s))
    spread = intervals(np.concatenate(ratios), np.concatenate(regimes), dict.fromkeys(REGIMES, WIDEST))
    source = f"measured over predicted of {sum(map(len, ratios))} products, {open_tables.ORIGINS['aic']}"
    return LatencyTable({}, intervals=spread, source=source, date=datetime.date.today().isoformat())


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
    """Write some tables into a file, replacing those of the same families; ``head`` is the text before them."""
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    before = msgspec.convert(document.get("latency", {}), dict[str, LatencySpec])
    specs = {**{name: spec for name, spec in before.items() if name not in dropped}, **made}
    ordered = {name: specs[name] for name in family_names() if name in specs}
    write_atomic(path, f"{head.rstrip()}\n\n{latency_text(ordered)}" if ordered else f"{head.rstrip()}\n")


def head_of(name: str, path: Path) -> str:
    """Return the text before the tables of a file."""
    if path.parent.name != "defaults":
        text = path.read_text(encoding="utf-8").split(MARK)[0].rstrip()
        return f"{text}\n\n{MARK}"
    whom = "GPUs of which no relative was measured" if name == "generic" else f"{name} GPUs that nobody measured"
    return HEAD.format(whom=whom)


def main(chosen: Sequence[str]) -> None:
    """Fit the chosen families, all by default."""
    chosen = chosen or family_names()
    for name, path in files().items():
        # A constant that the family has no more would make the file unreadable.
        if "[latency." in path.read_text(encoding="utf-8"):
            replace_tables(path, head_of(name, path), {}, chosen)
    opened = open_tables.load()
    fitted = open_tables.half(opened.calls, fitted=True)
    data, families, origins = open_tables.by_family(fitted, opened.machines)
    if "roofline" in chosen:
        path = shipped_folder() / "defaults" / "generic.toml"
        made = latency_specs({"roofline": roofline_table(fitted, opened.machines)})
        replace_tables(path, head_of("generic", path), made)
    for name in chosen:
        if name not in data:
            continue
        began = time.perf_counter()
        print(name, flush=True)
        for key, table in fit_family(families[name], data[name], origins[name], opened.machines).items():
            folder = shipped_folder() if key in opened.machines else shipped_folder() / "defaults"
            path = folder / f"{key}.toml"
            replace_tables(path, head_of(key, path), latency_specs({name: table}))
        print(f"  {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
