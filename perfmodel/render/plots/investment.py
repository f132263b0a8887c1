"""Plots of investments: what each candidate of a ranking saves, and a run after each step of a scenario."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from perfmodel.core.report import report
from perfmodel.investment.decision import Decision
from perfmodel.investment.ranking import HEADROOM, Ranking
from perfmodel.investment.roi import RoiRow
from perfmodel.investment.verdict import days_text
from perfmodel.investment.what_if import StepResult, WhatIf
from perfmodel.render.plots import plot
from perfmodel.render.plots.diagnosis.bars import LEFT_OUT, PALE, USUAL, WHOLE, WORSE, Bar, bars_plot
from perfmodel.render.plots.diagnosis.styles import time_text

#: candidates or parts that a figure has, the first ones
_MOST_ROWS = 25
#: letters of the text beside a step
_LONGEST_TEXT = 48


@plot.register
def decision_plot(decision: Decision) -> Figure:
    """Return the plot of the ranking of a decision; see `ranking_plot`."""
    return ranking_plot(decision.ranking)


@plot.register
def ranking_plot(ranking: Ranking) -> Figure:
    """Return the time that each candidate saves alone, in the order of the ranking, within the time of its targets.

    The pale bar is the time of the targets, the most that a candidate can save. Without a plan the rows are the parts
    of the profile, each down to its bound; one without a bound has only the pale bar. Candidates that are left out are
    grey.

    Raises
    ------
    UsageError
        When no row has a time.
    """
    rows = ranking.rows[:_MOST_ROWS]
    parts = ranking.ranked_by == HEADROOM
    bars = [_candidate_bar(row, parts=parts) for row in rows]
    saved = "saved at its bound" if parts and ranking.hardware else "saved by it alone"
    legend = [(saved, USUAL, 1.0)] if any(bar.after_s is not None for bar in bars) else []
    legend.append(("time of the part" if parts else "time of its targets", USUAL, PALE))
    if any(bar.color == LEFT_OUT for bar in bars):
        legend.append(("left out", LEFT_OUT, 1.0))
    if any(bar.color == WORSE for bar in bars):
        legend.append(("slower", WORSE, 1.0))
    more = f"; the first {len(rows)} of {len(ranking.rows)}" if len(rows) < len(ranking.rows) else ""
    axis = f"time of the run of {time_text(ranking.profile.total_time_s)}"
    return bars_plot([f"{ranking.title}{more}", ranking.decision], bars, axis, legend, beside=False)


def _candidate_bar(row: RoiRow, *, parts: bool) -> Bar:
    saved_s = row.time_saved_s if math.isfinite(row.time_saved_s) else None
    facts = [f"{time_text(row.time_s)}, no bound" if saved_s is None else f"{row.overall_speedup:.4g}x"]
    facts += [] if saved_s is None else [f"saves {time_text(saved_s)}"]
    facts += [] if row.dev_days is None else [days_text(row.dev_days)]
    facts += [] if row.roi_per_day is None else [f"{row.roi_per_day:.3g} a day"]
    slower = saved_s is not None and saved_s < 0
    color = WORSE if slower else USUAL if parts or row.cumulative_time_s is not None else LEFT_OUT
    return Bar(
        row.name, ", ".join(facts), row.time_s, saved_s, color=color, heading=row.rank == 1, number=str(row.rank)
    )


@plot.register
def what_if_plot(result: WhatIf) -> Figure:
    """Return the time of a run now and after each step of a scenario, with the interval of a move to another machine.

    Doubtful steps, whose claims contradict the profile or the machine's limit, have another colour.

    Raises
    ------
    UsageError
        When the run takes no time.
    """
    begin_s = result.profile.total_time_s
    bars = [Bar("now", time_text(begin_s), None, begin_s, color=WHOLE, heading=True)]
    before_s = begin_s
    for step in result.steps:
        bars.append(_step_bar(step, before_s))
        before_s = step.total_time_s
    after = "after the step" + ", with its 80 % interval" * any(bar.low_s is not None for bar in bars)
    legend = [("now", WHOLE, 1.0), (after, USUAL, 1.0), ("before it", USUAL, PALE)]
    if any(step.flags for step in result.steps):
        legend.append(("doubtful", WORSE, 1.0))
    return bars_plot([report(result).title], bars, "time of the run", legend, beside=False)


def _step_bar(step: StepResult, before_s: float) -> Bar:
    """Return the row of a step: the time before it behind the time after it."""
    left = f"; then {step.bottleneck} {100 * step.bottleneck_fraction:.0f} %" if step.total_time_s else ""
    text = f"{time_text(step.total_time_s)}, {step.speedup:.3f}x{left}"
    text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
    color = WORSE if step.flags else USUAL
    return Bar(
        step.name, text, before_s, step.total_time_s, step.total_low_s, step.total_high_s, color, number=str(step.step)
    )
