"""The row "total" of a table, which must not count as an entry."""

from __future__ import annotations

import math

from perfmodel.core.units import format_si
from perfmodel.profile.profile import ProfileEntry

#: a total is printed with few digits, so it may differ a little from the sum of its rows
TOTAL_TOLERANCE = 1e-3
_TOTALS = {"total", "totals", "grand total", "total time"}
#: these may also be names of operators, so they are totals only where they equal the sum
_MAYBE_TOTALS = {"sum", "all", "overall"}


def may_be_total(name: str) -> bool:
    """Tell whether a row of this name may be the sum of the others."""
    return name.lower().rstrip(": ") in _TOTALS | _MAYBE_TOTALS


def without_total(entries: list[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Take the row "total" out, so that no time counts twice; keep what it holds beyond the other rows."""
    for position, entry in enumerate(entries):
        name = entry.name.lower().rstrip(": ")
        if name not in _TOTALS | _MAYBE_TOTALS or len(entries) < 2:
            continue
        rest = [*entries[:position], *entries[position + 1 :]]
        others_s = math.fsum(other.time_s for other in rest)
        said = f"The row {entry.name!r} ({format_si(entry.time_s, 's')})"
        if abs(entry.time_s - others_s) <= TOTAL_TOLERANCE * others_s:
            return rest, (f"{said} is the sum of the others and is left out.",)
        if name in _MAYBE_TOTALS:
            continue
        if entry.time_s < others_s:
            adds = f"the others add to {format_si(others_s, 's')}: they overlap or nest"
            return rest, (f"{said} is left out, but {adds}, so shares are of that sum.",)
        remainder = ProfileEntry("(not itemised)", entry.time_s - others_s)
        return [*rest, remainder], (f"{said} holds more than the others: the rest is '(not itemised)'.",)
    return entries, ()
