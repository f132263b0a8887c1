"""The interval of a machine that nobody measured is no narrower than those of measured machines of its generation.

The table that machines of a generation share is fitted to the rows of all of them, and its interval may come out
narrower than that of a member, which is stated by fewer rows, or by those of libraries that differ more than others.
A sibling without rows would then be surer than the machine that lent it the constants. `nested` judges shared tables as
they are fitted, so that its intervals are narrower than those that ship.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.hardware_catalog import load_all
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency.effects import widest_interval
from perfmodel.prediction.latency.tables import default_tables

Intervals = Mapping[str, tuple[float, float]]


def no_narrower(shared: LatencyTable, own: Sequence[LatencyTable]) -> LatencyTable:
    """Return the table of a generation with intervals that hold those of its members, and their largest spreads.

    A regime that a member does not state has the shared interval there, too; so has one without calls told apart.
    """
    apart = {**shared.intervals, **shared.apart}
    told = bool(shared.apart) or any(table.apart for table in own)
    return dataclasses.replace(
        shared,
        intervals=_widest(shared.intervals, [table.intervals for table in own]),
        apart=_widest(apart, [{**table.intervals, **table.apart} for table in own]) if told else shared.apart,
        spread={
            library: max(table.spread.get(library, 1.0) for table in (shared, *own))
            for library in sorted({name for table in (shared, *own) for name in table.spread})
        },
    )


def _widest(shared: Intervals, own: Sequence[Intervals]) -> dict[str, tuple[float, float]]:
    stated = {regime: [table[regime] for table in (shared, *own) if regime in table] for regime in REGIMES}
    return {regime: widest_interval(*ends) for regime, ends in stated.items() if ends}


def siblings(chosen: Collection[str]) -> Iterator[tuple[str, str, LatencyTable]]:
    """Yield (generation, family, table) for the shared tables of some families that are narrower than a member's."""
    members: dict[str, list[Mapping[str, LatencyTable]]] = {}
    for machine in load_all():
        members.setdefault(generation(machine), []).append(machine.latency)
    for key, machines in members.items():
        for name, shared in default_tables(key).items():
            own = [tables[name] for tables in machines if name in tables]
            if name in chosen and own and (table := no_narrower(shared, own)) != shared:
                yield key, name, table
