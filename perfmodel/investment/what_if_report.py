"""A path of changes as a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.investment.what_if import WhatIf


def what_if_report(made: WhatIf, context: Mapping[str, Any] | None = None) -> Report:
    """Return the steps as rows; see `perfmodel.investment.what_if.StepResult` for the keys."""
    rows = [{**dataclasses.asdict(step), "check": "doubtful" if step.flags else "ok"} for step in made.steps]
    last = made.steps[-1]
    decision = f"{format_si(made.profile.total_time_s, 's')} become {format_si(last.total_time_s, 's')}"
    batch = any(step.kind == "batch" for step in made.steps)
    total = f"{decision}: {last.speedup:.3f}x{' per item' if batch else ''} after {len(rows)} steps"
    flagged = sum(bool(step.flags) for step in made.steps)
    doubt = f"; {flagged} of them doubtful" if flagged else ""
    said = [f"Step {step.step}, {step.name}: {flag}." for step in made.steps for flag in step.flags]
    columns = (
        Column("step", "#"),
        Column("name"),
        Column("kind", drop=6),
        Column("targets", shown=False),
        Column("time_before_s", "targets before", "s", drop=4),
        Column("time_after_s", "after", "s", drop=4),
        Column("total_time_s", "total", "s"),
        Column("time_saved_s", "saved", "s", drop=5),
        Column("step_speedup", "step", "x", drop=3),
        Column("speedup", "so far", "x"),
        Column("throughput_per_s", f"{made.path.item}/s", drop=1),
        Column("bottleneck", "longest left", drop=2),
        Column("bottleneck_fraction", "share", "fraction", drop=2),
        Column("max_further_speedup", "without it", "x", drop=7),
        Column("max_overall_speedup", "overall at most", "x", drop=6),
        Column("check"),
        Column("flags", shown=False),
        Column("basis", "new time from", drop=8),
    )
    return Report("whatif", columns, rows, context or {}, (*said, *made.notes), f"What if: {total}{doubt}")
