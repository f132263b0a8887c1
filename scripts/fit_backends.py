"""Constants of torch's kernels of attention, from our own records, about those of the serving libraries.

A record has a few dozen rows of each backend of scaled_dot_product_attention, the tables thousands of each library. The
constants of a backend start from those that its kernel borrows, which are its prior, and change no others: a table has
them beside its libraries, under "torch/fa2". They have no part in what machines and libraries differ by, nor in the
residual surfaces.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import open_tables
from fit_kernels import today
from fit_shared import Groups
from fit_surface import chain
from fit_usual import FittedFamily

from perfmodel.accuracy.fit import Group, fit
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency.constants import combined
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.libraries import known_libraries
from perfmodel.prediction.latency.nearest_tables import Found

#: a backend has constants of its own from this many rows on
FEWEST_ROWS = 4


def backend_of(family: Family, hardware: Hardware, group: Group) -> str:
    """Return the name that tables have for the kernel of some rows: "torch/fa2"; empty for one that is not named so."""
    if family.borrows is None:
        return ""
    name, _ = family.borrows(hardware, group.conditions.library, group.op.kernel_dtype)
    return name if "/" in name else ""


def _prior(family: Family, hardware: Hardware, name: str, dtype: str, tables: Sequence[Found]) -> Mapping[str, float]:
    """Return the constants that a backend borrows where it has none."""
    assert family.borrows is not None
    known = known_libraries([table for _, table in tables])
    _, candidates = family.borrows(hardware, name, dtype)
    lender = next((one for one in candidates if one in known and one != name), candidates[-1])
    return combined(family, tables, name, dtype, lender=lender).values


def _fitted(
    family: Family, hardware: Hardware, rows: Sequence[Group], tables: Sequence[Found]
) -> dict[str, dict[str, float]]:
    """Return the constants of each backend with enough rows, those that are a library's."""
    by_backend: dict[str, list[Group]] = defaultdict(list)
    for group in rows:
        if name := backend_of(family, hardware, group):
            by_backend[name].append(group)
    free = [constant.name for constant in family.constants if constant.library]
    found = {}
    for name, own in sorted(by_backend.items()):
        if sum(map(len, own)) >= FEWEST_ROWS:
            start = _prior(family, hardware, name, own[0].op.kernel_dtype, tables)
            made = fit(family, own, start, free)
            found[name] = {constant: made.values[constant] for constant in free}
            print(f"  {family.name} {name}: {made.rows} rows, {100 * made.scale:.1f} %", flush=True)
    return found


def _known(table: LatencyTable, libraries: Mapping[str, Mapping[str, float]], source: str) -> LatencyTable:
    """Return a table that knows some backends; without ``source`` another one has their constants."""
    return dataclasses.replace(
        table,
        libraries={**table.libraries, **libraries} if source else table.libraries,
        known_libraries=tuple(sorted({*table.known_libraries, *libraries})),
        source=f"{table.source}; {source}" if source else table.source,
        date=today(),
    )


def _bare(table: LatencyTable) -> LatencyTable:
    """Return a table without backends."""
    return dataclasses.replace(
        table,
        libraries={name: values for name, values in table.libraries.items() if "/" not in name},
        known_libraries=tuple(name for name in table.known_libraries if "/" not in name),
        source=table.source.partition("; torch's backends")[0],
    )


def with_backends(made: FittedFamily, family: Family, groups: Groups, machines: Mapping[str, Hardware]) -> FittedFamily:
    """Return the same tables with the constants of torch's backends, in those of the generation that was measured."""
    shared, own = dict(made.shared), dict(made.machines)
    for name in groups:
        level = generation(machines[name])
        if level not in shared or name not in own:
            continue
        members = [other for other in groups if generation(machines[other]) == level]
        own[name], bare = _bare(own[name]), _bare(shared[level].table)
        tables = chain(machines[name], {key: one.table for key, one in shared.items()} | {level: bare}, own[name])
        found = _fitted(family, machines[name], [group for other in members for group in groups[other]], tables)
        source = f"torch's backends on own records of {', '.join(members)}"
        shared[level] = dataclasses.replace(shared[level], table=_known(bare, found, source))
        own[name] = _known(own[name], found, "")
    return FittedFamily(shared, own)


def rows_of_backends(name: str, opened: open_tables.OpenTables) -> Groups:
    """Return the rows of a family by machine that torch's kernels ran, of the half that is fitted."""
    calls = [call for call in open_tables.half(opened.calls, fitted=True) if open_tables.is_of_framework(call)]
    return open_tables.by_family(calls, opened.machines, frameworks=True)[0].get(name, {})
