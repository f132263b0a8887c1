"""Plots of projections: what the parts of a run, or the ranks of a job, take here and on another machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from perfmodel.core.report import report
from perfmodel.diagnosis.projection.project import ProjectedPart, Projection
from perfmodel.diagnosis.projection.report import parts_for_people
from perfmodel.diagnosis.ranks.projection import ProjectedJob
from perfmodel.render.plots.diagnosis.bars import PALE, USUAL, WHOLE, Bar, bars_plot
from perfmodel.render.plots.diagnosis.styles import time_text

#: parts that a figure has; the others are one row
_MOST_PARTS = 20


def projection_plot(projection: Projection) -> Figure:
    """Return the run and its longest parts on both machines, those there with their 80 % intervals.

    Raises
    ------
    UsageError
        When the run takes no time.
    """
    return _plot(report(projection).title, projection.whole, projection.parts, projection.source.name)


def projected_job_plot(projected: ProjectedJob) -> Figure:
    """Return a job and its ranks, each without its waits for others, on both machines.

    Raises
    ------
    UsageError
        When the job takes no time.
    """
    ranks = [rank.whole for rank in projected.ranks]
    return _plot(report(projected).title, projected.whole, ranks, projected.source.name)


def _plot(title: str, whole: ProjectedPart, parts: Sequence[ProjectedPart], source: str) -> Figure:
    by_time = sorted(parts_for_people(whole, parts), key=lambda part: -max(part.time_s, part.projected_time_s))
    shown, rest = by_time[:_MOST_PARTS], by_time[_MOST_PARTS:]
    bars = [_bar(whole, heading=True), *(_bar(part) for part in shown)]
    if rest:
        before_s = math.fsum(part.time_s for part in rest)
        after_s = math.fsum(part.projected_time_s for part in rest)
        label = f"rest: {len(rest)} {'parts' if len(rest) > 1 else 'part'}"
        bars.append(Bar(label, f"{time_text(before_s)} -> {time_text(after_s)}", before_s, after_s))
    legend = [(f"on {source}", USUAL, PALE), ("there, with its 80 % interval", USUAL, 1.0), ("the whole", WHOLE, 1.0)]
    return bars_plot([title], bars, "time", legend)


def _bar(part: ProjectedPart, *, heading: bool = False) -> Bar:
    ends = f"{time_text(part.low)} to {time_text(part.high)}"
    text = f"{time_text(part.time_s)} -> {time_text(part.projected_time_s)} ({ends})"
    color = WHOLE if heading else USUAL
    return Bar(part.name, text, part.time_s, part.projected_time_s, part.low, part.high, color, heading)
