"""The report of a profile: its entries, the longest first."""

from __future__ import annotations

import math
from typing import Any

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.kernel_name import short_name
from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_count, format_si
from perfmodel.profile.profile import Profile

#: entries that people see, JSON and CSV have all
_MOST_ENTRIES = 20

COLUMNS = (
    Column("name", "entry", show=short_name),
    Column("calls"),
    Column("time_s", "time", "s"),
    Column("fraction", "share", "fraction"),
    Column("category", drop=1),
    Column("op", "operator", drop=2),
)


@report.register
def _(profile: Profile) -> Report:
    """Return the report of a profile.

    Row keys: name, calls, time_s [s], fraction (of the sum of all entries), category, op (the operator's name, or
    empty). Of a trace, times are those of the work, which may overlap and leave gaps.
    """
    total_s = profile.total_time_s
    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "calls": entry.calls,
            "time_s": entry.time_s,
            "fraction": entry.time_s / total_s if total_s else None,
            "category": str(entry.category),
            "op": entry.op.op if entry.op is not None else "",
        }
        for entry in sorted(profile.entries, key=lambda entry: -entry.time_s)
    ]
    rest = rows[_MOST_ENTRIES:]
    rest_s = format_si(math.fsum(row["time_s"] for row in rest), "s")
    traced = ("Times are those of the work, which may overlap; a diagnosis has the wall time.",)
    return Report(
        "profile",
        COLUMNS,
        rows,
        {"profile": profile.source, "device": profile.device, "total_time_s": total_s},
        (*(traced if profile.timeline is not None else ()), *profile.notes),
        profile_summary(profile),
        people_rows=rows[:_MOST_ENTRIES],
        unlisted=f"Shorter entries: {len(rest)} ({rest_s})." if rest else "",
    )


def profile_summary(profile: Profile, hardware: Hardware | None = None) -> str:
    """Return a profile's file, machine, time and number of entries that take some of it, for a heading."""
    name = storage.name_of(profile.source) or "the profile"
    machine = f" on {hardware.name}" if hardware else ""
    taking = sum(entry.time_s > 0 for entry in profile.entries)
    rest = len(profile.entries) - taking
    others = f" ({rest} more {'adds' if rest == 1 else 'add'} 0 s)" if rest else ""
    entries = format_count(taking, "entry", "entries")
    return f"{name}{machine}: {format_si(profile.total_time_s, 's')} in {entries}{others}"
