"""How much more, or less, the shapes of a library differ than those of all libraries of a machine.

A machine's interval holds 80 % of its rows, but 94 % of those of a library whose kernels the closed form follows well,
and 60 % of one whose kernels it does not. The factor of a library's half widths is

    spread = (Q_library / Q_all)^w,   w = n / (n + 20),

with Q the 80 % quantile of the half widths that each row needs to lie inside, ln(t / p) over the half width on its
side, and n the library's rows. Both are of rows that were fitted, whose ratio is that of new ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from perfmodel.accuracy.judge import JudgedCalls
from perfmodel.accuracy.libraries import ENOUGH_ROWS
from perfmodel.accuracy.measured import MeasuredCalls, Measurements
from perfmodel.accuracy.validate import judge
from perfmodel.core.hardware import Hardware
from perfmodel.prediction.latency.families import family as latency_family
from perfmodel.prediction.latency.tables import LARGEST_SPREAD

#: a library with fewer rows than this is judged without its own part of a residual surface
MANY_ROWS = 200
#: stated share of the rows that an interval holds
STATED = 0.8
#: a factor nearer to 1 than this says nothing
LEAST = 0.05


def spreads(family: str, machine: Hardware, calls: Sequence[MeasuredCalls]) -> dict[str, float]:
    """Return library -> factor of the half widths of its intervals on a machine; none where there is one library.

    Parameters
    ----------
    family : its name.
    machine : with the tables that hold.
    calls : of any family, machine and library.
    """
    own = [call for call in calls if call.hardware == machine.name]
    found = _needed_by(family, machine, own)
    if len(found) < 2:
        return {}
    # A surface follows the few rows of a library more closely than it will follow new ones.
    for library in [library for library, rows in found.items() if ENOUGH_ROWS <= rows.size < MANY_ROWS]:
        its = [call for call in own if latency_family(family).key_of(call.conditions) == library]
        found[library] = _needed_by(family, machine, its, without=library)[library]
    whole = float(np.quantile(np.concatenate(list(found.values())), STATED))
    factors = {
        library: _limited((float(np.quantile(rows, STATED)) / whole) ** (rows.size / (rows.size + ENOUGH_ROWS)))
        for library, rows in sorted(found.items())
        if rows.size >= ENOUGH_ROWS
    }
    return {library: factor for library, factor in factors.items() if abs(factor - 1.0) > LEAST}


def _needed_by(
    family: str, machine: Hardware, calls: Sequence[MeasuredCalls], without: str = ""
) -> dict[str, np.ndarray]:
    """Return the half widths that the rows of each library need; ``without`` the surface of one of them."""
    table = dataclasses.replace(machine.latency[family], spread={})
    if without and table.surface is not None:
        sheets = {key: sheet for key, sheet in table.surface.sheets.items() if key.split(" ")[0] != without}
        table = dataclasses.replace(table, surface=dataclasses.replace(table.surface, sheets=sheets))
    bare = dataclasses.replace(machine, latency=MappingProxyType({**machine.latency, family: table}))
    needed: dict[str, list[np.ndarray]] = {}
    for part in judge([Measurements("fitted", tuple(calls))], lambda name: bare).judged:
        chosen = np.broadcast_to(part.family, (len(part.calls),)) == family
        if chosen.any():
            key = latency_family(family).key_of(part.calls.conditions)
            needed.setdefault(key, []).append(_needed(part.take(chosen)))
    return {library: np.concatenate(parts) for library, parts in needed.items()}


def _limited(factor: float) -> float:
    return min(LARGEST_SPREAD, max(1.0 / LARGEST_SPREAD, factor))


def _needed(part: JudgedCalls) -> np.ndarray:
    """Return the half widths that each row needs to lie inside, over the stated ones."""
    off = np.log(part.calls.time_s / part.predicted_s)
    up, down = np.log(part.high_s / part.predicted_s), np.log(part.low_s / part.predicted_s)
    return np.asarray(np.where(off > 0.0, off / np.maximum(up, 1e-6), off / np.minimum(down, -1e-6)))


def with_spreads(
    machines: Mapping[str, Hardware], families: Sequence[str], calls: Sequence[MeasuredCalls]
) -> dict[tuple[str, str], dict[str, float]]:
    """Return (machine, family) -> the factors of its libraries."""
    return {
        (name, family): spreads(family, machine, calls)
        for name, machine in machines.items()
        for family in families
        if family in machine.latency
    }
