"""Ranges of a program projected to the GPU: ``nvtx_gpu_proj_trace`` and ``nvtx_gpu_proj_sum`` of ``nsys stats``.

The projection of a range lasts from the start of the first piece of GPU work that was launched in it to the end of the
last one (Nsight Systems, "Post-Collection Analysis"), gaps included. Ranges contain one another, so that only the time
of a range outside the ranges in it counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfmodel.core.units import format_si
from perfmodel.formats.kernel_names import NO_SHAPES
from perfmodel.formats.nsys.reports import PROJECTED_SUM, PROJECTED_TRACE, column, seconds
from perfmodel.formats.nsys.trace import Tables
from perfmodel.formats.text.double_counting import own_times
from perfmodel.profile.profile import ProfileEntry

_PROJECTED = (
    "These are times of ranges (NVTX) on the GPU, from the first to the last piece of work in each, gaps included; "
    "only the time outside the ranges in a range counts."
)
#: entry for the time of ranges that contain others, as far as those do not account for it
AROUND = "(outside the innermost ranges)"
#: both sums are of rounded numbers
_ROUNDING = 1e-9

_Entries = tuple[list[ProfileEntry], tuple[str, ...]]


def projected_trace(tables: Tables) -> _Entries:
    """Return the ranges of ``nvtx_gpu_proj_trace`` by name, each without the ranges in it, and notes.

    Raises
    ------
    InputFileError
        When a duration is negative or not a number.
    """
    own: list[tuple[str, float]] = []
    over_s = 0.0
    nested = True
    for table in tables.by_report[PROJECTED_TRACE]:
        name, time = column(table, "name"), column(table, "projected duration")
        number, parent = column(table, "rangeid"), column(table, "parentid")
        if name is None or time is None:
            continue
        nested = nested and number is not None and parent is not None
        rows = []
        inside: dict[str, float] = {}
        for line, cells in table.rows:
            time_s = seconds(tables.numbers, cells[time.index], time, table, f"{tables.place}, line {line}")
            if time_s is None:
                tables.skipped["range without a time"] += 1
                continue
            rows.append((cells[name.index], time_s, cells[number.index] if number else ""))
            if parent is not None and cells[parent.index]:
                inside[cells[parent.index]] = inside.get(cells[parent.index], 0.0) + time_s
        over_s += math.fsum(max(0.0, inside.get(key, 0.0) - time_s) for _, time_s, key in rows if key)
        own.extend((label, max(0.0, time_s - (inside.get(key, 0.0) if key else 0.0))) for label, time_s, key in rows)
    notes = [_PROJECTED]
    if not nested:
        notes.append("The columns RangeId and ParentId are missing: where ranges nest, time counts twice.")
    if over_s > _ROUNDING * math.fsum(time_s for _, time_s in own):
        notes.append(f"Ranges within one range overlap on the GPU by {format_si(over_s, 's')}, which counts twice.")
    return _by_name(own), tuple(notes)


def projected_sum(tables: Tables) -> _Entries:
    """Return the innermost ranges of ``nvtx_gpu_proj_sum``, what is around them, and notes.

    The report has no range by itself. Names without children ("Avg Num Child" of 0) are the innermost ranges; the rest
    of the outermost ones ("Avg Range Lvl" of 0) is one entry, `AROUND`. Errors are those of `projected_trace`.
    """
    inner: list[ProfileEntry] = []
    every: list[ProfileEntry] = []
    outer_s: list[float] = []
    levels = True
    for table in tables.by_report[PROJECTED_SUM]:
        name, time = column(table, "range"), column(table, "total proj time")
        calls = column(table, "range instances")
        level, children = column(table, "avg range lvl"), column(table, "avg num child")
        if name is None or time is None:
            continue
        levels = levels and level is not None and children is not None
        for line, cells in table.rows:
            time_s = seconds(tables.numbers, cells[time.index], time, table, f"{tables.place}, line {line}")
            if time_s is None:
                tables.skipped["range without a time"] += 1
                continue
            count = None if calls is None else tables.numbers.count(cells[calls.index])
            entry = ProfileEntry(cells[name.index] or "(unnamed)", time_s, count, not_modelled=NO_SHAPES)
            every.append(entry)
            if level is not None and tables.numbers.parse(cells[level.index]) == 0:
                outer_s.append(time_s)
            if children is not None and tables.numbers.parse(cells[children.index]) == 0:
                inner.append(entry)
    if not levels or not inner:
        entries, notes = own_times(every)
        return entries, (_PROJECTED, *notes)
    around_s = math.fsum(outer_s) - math.fsum(entry.time_s for entry in inner)
    if around_s > _ROUNDING * math.fsum(outer_s):
        inner.append(ProfileEntry(AROUND, around_s, not_modelled=NO_SHAPES))
    listed = "The innermost ranges count by name, since sums do not say which range is in which"
    return inner, (_PROJECTED, f"{listed}: nvtx_gpu_proj_trace does.")


def _by_name(own: Sequence[tuple[str, float]]) -> list[ProfileEntry]:
    """Return ranges as entries, those of one name together, the longest first."""
    times: dict[str, list[float]] = {}
    for label, time_s in own:
        times.setdefault(label or "(unnamed)", []).append(time_s)
    entries = [ProfileEntry(name, math.fsum(t), len(t), not_modelled=NO_SHAPES) for name, t in times.items()]
    return sorted(entries, key=lambda entry: -entry.time_s)
