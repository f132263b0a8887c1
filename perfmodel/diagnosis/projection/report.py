"""The report of a profile on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.core.kernel_name import short_name
from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_si
from perfmodel.diagnosis.projection.project import ProjectedPart, Projection
from perfmodel.diagnosis.result import is_nothing

#: parts that people see, JSON and CSV have all; and their longest names [characters]
_MOST_PARTS, _LONGEST = 20, 32

COLUMNS = (
    Column("name", "part", show=lambda name: short_name(name, _LONGEST)),
    Column("calls", shown=False),
    Column("time_s", "here", "s"),
    Column("projected_time_s", "there", "s"),
    Column("low", unit="s", digits=3),
    Column("high", unit="s", digits=3),
    Column("limiter", drop=1),
    Column("speedup", unit="x", digits=3, drop=2),
    Column("basis", shown=False),
)


@report.register
def _projection_report(result: Projection, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the report of a projection.

    Row keys: name, calls, time_s, projected_time_s, low, high (80 % interval) [s], speedup, limiter, basis. ``whole``
    has one row with the same keys: the run.
    """
    rows = [part_row(part) for part in result.parts]
    whole = result.whole
    table = Report(
        "project",
        COLUMNS,
        rows,
        context or {},
        (*result.notes, *result.profile.notes),
        f"From {result.source.name} to {result.target.name}: {times(whole)}, {whole.speedup:.3g}x as fast",
        more={"whole": Report("project", COLUMNS, [part_row(whole)])},
    )
    return longest_parts(table, whole.time_s)


def longest_parts(table: Report, total_s: float) -> Report:
    """Return the parts of a run of which people see the longest ones that are not nothing."""
    some = [row for row in table.rows if not is_nothing(max(row["time_s"], row["projected_time_s"]), total_s)]
    shown = some[:_MOST_PARTS]
    hidden = len(table.rows) - len(shown)
    unlisted = f"Shorter parts: {hidden}; JSON and CSV have them." if hidden > 0 else ""
    return replace(table, people_rows=shown, unlisted=unlisted)


def times(whole: ProjectedPart) -> str:
    """Return the time of a run here and there, with its interval: "1.2 s -> 0.5 s (0.4 s to 0.6 s)"."""
    here, there = format_si(whole.time_s, "s"), format_si(whole.projected_time_s, "s")
    return f"{here} -> {there} ({format_si(whole.low, 's', 3)} to {format_si(whole.high, 's', 3)})"


def parts_for_people(whole: ProjectedPart, parts: Sequence[ProjectedPart]) -> list[ProjectedPart]:
    """Return the parts of a run without those that take no time, here or there, but what rounding left."""
    return [part for part in parts if not is_nothing(max(part.time_s, part.projected_time_s), whole.time_s)]


def part_row(part: ProjectedPart) -> dict[str, Any]:
    """Return the row of a part."""
    return {
        "name": part.name,
        "time_s": part.time_s,
        "projected_time_s": part.projected_time_s,
        "low": part.low,
        "high": part.high,
        "limiter": part.limiter,
        "basis": part.basis,
        "calls": part.calls,
        "speedup": part.speedup,
    }
