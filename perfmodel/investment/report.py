"""Rankings, decisions, sensitivities and scenarios as reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel import storage
from perfmodel.core.kernel_name import short_name
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns, with_tables
from perfmodel.core.units import format_count, format_si
from perfmodel.investment.amdahl import ScalingFit, parallel_efficiency
from perfmodel.investment.chains import PAYBACK, ROI, TIME
from perfmodel.investment.decision import Decision
from perfmodel.investment.ranking import HEADROOM, Ranking
from perfmodel.investment.sensitivity import Sensitivity, sensitivity
from perfmodel.investment.what_if import WhatIf

#: parts of a profile that people see, JSON and CSV have all
_PARTS = 10
#: what a column of `whatif`, and one of the headroom of parts, means
_CEILING = (
    "Overall ceiling: the speedup if everything that the steps so far touch took no time (Amdahl); none where they "
    "touch the whole run."
)
_REMOVED = "Ceiling: this part removed."
_FLIPS = (
    Column("candidate", shown=False),
    Column("assumption"),
    Column("value", "now"),
    Column("net_zero_value", "net value 0 at"),
    Column("net_zero_factor", "factor", "x"),
    Column("rank_change_value", "rank changes at"),
    Column("rank_change_factor", "factor", "x"),
    Column("instead", "then first"),
)
_RANKED_BY = {ROI: "gain per day", PAYBACK: "payback", TIME: "time saved", HEADROOM: "what the bounds allow"}


@report.register
def _(
    ranking: Ranking,
    *,
    context: Mapping[str, Any] | None = None,
    top: int | None = None,
    more: Mapping[str, Report] | None = None,
) -> Report:
    """Return a ranking as a report; see `perfmodel.investment.roi.RoiRow` for the keys.

    Of the parts of a profile people see the first ones, unless ``top`` states how many.

    Parameters
    ----------
    ranking : the ranking.
    context : facts for JSON.
    top : only the first rows.
    more : further tables.
    """
    all_rows = [dataclasses.asdict(row) for row in ranking.rows]
    rows, notes = all_rows[:top], ranking.notes
    if len(rows) < len(all_rows):
        verb = "is" if len(all_rows) - len(rows) == 1 else "are"
        notes = (f"{_rest(all_rows, len(rows))} {verb} not shown.", *notes)
    table = Report(
        "roi",
        _ranking_columns(money=ranking.economics is not None, bound=ranking.ranked_by != HEADROOM),
        rows,
        {**(context or {}), "decision": ranking.decision, "ranked_by": ranking.ranked_by},
        notes,
        ranking.title,
        more or {},
        decision=ranking.decision,
        assumptions=_assumptions(ranking),
    )
    return _first_parts(table) if ranking.ranked_by == HEADROOM and top is None else table


def _first_parts(table: Report) -> Report:
    """Return the parts of a profile of which people see the first ones."""
    rows = table.rows
    unlisted = f"{_rest(rows, _PARTS)}: --top {len(rows)} lists them." if len(rows) > _PARTS else ""
    return dataclasses.replace(table, people_rows=rows[:_PARTS], unlisted=unlisted)


def saved(table: Report) -> Report:
    """Return a ranking or a scenario that was read from JSON as `roi` or `whatif` shows it."""
    if table.command == "whatif":
        return with_columns(table, _step_columns(str(table.context.get("item") or "item")))
    more = dict(table.more)
    if "parts" in more:
        more["parts"] = dataclasses.replace(_saved_ranking(more["parts"], HEADROOM), title="Headroom of each part")
    ranked = dataclasses.replace(_saved_ranking(table, str(table.context.get("ranked_by"))), more=more)
    return with_tables(ranked, sensitivity=("Sensitivity of the decision, each assumption changed alone", _FLIPS))


def _saved_ranking(table: Report, ranked_by: str) -> Report:
    money = any(row.get("yearly_saving") is not None for row in table.rows)
    ranked = with_columns(table, _ranking_columns(money=money, bound=ranked_by != HEADROOM))
    return _first_parts(ranked) if ranked_by == HEADROOM else ranked


def _rest(rows: Sequence[Mapping[str, Any]], listed: int) -> str:
    """Return how many rows follow the listed ones, and their time, unless several of them change one entry."""
    rest = rows[listed:]
    targets = [target for row in rest for target in row["targets"]]
    overlap = len(set(targets)) < len(targets)
    time = "" if overlap else f" ({format_si(math.fsum(row['time_s'] for row in rest), 's')})"
    return f"{format_count(len(rest), 'more row')}{time}"


def _assumptions(ranking: Ranking) -> tuple[str, ...]:
    """Return what the figures of a ranking rest on: profile, machine, order, prices."""
    profile, hardware = ranking.profile, ranking.hardware
    device = f", measured on {profile.device}" if profile.device else ""
    kind = f" ({profile.format}{device})" if profile.format or device else ""
    machine = hardware.title or hardware.name if hardware else "none named, so nothing is bounded"
    lines = [
        f"Profile: {storage.name_of(profile.source) or 'made in Python'}{kind}, {format_si(profile.total_time_s, 's')}",
        f"Machine for the bounds: {machine}",
        f"Ranked by: {_RANKED_BY[ranking.ranked_by]}",
    ]
    if ranking.economics:
        lines.append(f"Prices: {ranking.economics}")
    return tuple(lines)


def _ranking_columns(*, money: bool, bound: bool) -> tuple[Column, ...]:
    """Return the columns of a ranking.

    ``money`` drops the columns of money last in a narrow terminal; ``bound`` shows the bound of the local speedup
    (without a plan, the local speedup is the bound, and a ceiling that of one part).
    """
    return (
        Column("rank", "#"),
        Column("name", show=short_name),
        Column("targets", shown=False),
        Column("kind", shown=False),
        Column("time_s", "time", "s", drop=6),
        Column("fraction", "share", "fraction"),
        Column("efficiency", unit="fraction", drop=4),
        Column("claimed_local_speedup", shown=False, unit="x"),
        Column("local_speedup", "local", "x", drop=5),
        Column("max_local_speedup", "local bound", "x", shown=bound, drop=4),
        Column("overall_speedup", "overall", "x"),
        Column("bounded_overall_speedup", shown=False, unit="x"),
        Column("time_saved_s", "saved", "s", drop=4 if money else 0),
        Column("max_overall_speedup", "ceiling", "x", drop=3, note="" if bound else _REMOVED),
        Column("total_time_s", shown=False, unit="s"),
        Column("dev_days", "days", drop=7 if money else 0),
        Column("risk", drop=8),
        Column("roi_per_day", "ROI/day", drop=2 if money else 0),
        Column("quadrant", "cost/return", shown=money, drop=9),
        Column("yearly_saving", "yearly"),
        Column("payback_days", "payback", "d"),
        Column("net_value", "net"),
        Column("next_best", shown=False),
        Column("opportunity_gain", shown=False),
        Column("opportunity_cost", "opportunity cost", drop=9),
        Column("attainable_time_s", shown=False, unit="s"),
        Column("claimed_total_time_s", shown=False, unit="s"),
        Column("cumulative_time_s", shown=False, unit="s"),
        Column("cumulative_time_saved_s", shown=False, unit="s"),
        Column("cumulative_speedup", "cumulative", "x", drop=7),
        Column("cumulative_dev_days", shown=False),
        Column("verdict", prose=True),
    )


@report.register
def _(
    decision: Decision,
    *,
    context: Mapping[str, Any] | None = None,
    top: int | None = None,
    flips: bool = False,
) -> Report:
    """Return the ranking as a report, with the headroom of each part and where assumptions flip the decision.

    Parameters
    ----------
    decision : what is worth doing.
    context : facts for JSON.
    top : only the first rows of each table.
    flips : whether the report has the table of assumptions.
    """
    more = {}
    if decision.parts is not None:
        more["parts"] = report(decision.parts, top=top)
    ranking = decision.ranking
    if flips and ranking.ranked_by == HEADROOM:
        note = "No candidate is ranked, so there is no decision whose sensitivity could be shown: give a plan (--plan)."
        ranking = dataclasses.replace(ranking, notes=(note, *ranking.notes))
    elif flips:
        more["sensitivity"] = report(sensitivity(ranking))
    return report(ranking, context=context, top=top, more=more)


@report.register
def _(found: Sensitivity) -> Report:
    """Return the assumptions as a table; the note names the one that flips the decision soonest."""
    note = "No single assumption flips the decision." if found.flips else "No candidate is to be done."
    if found.tightest is not None:
        flip, factor, event = found.tightest
        note = f"The tightest assumption: {flip.assumption}; at {factor:.3g}x of its value now, {event}."
    name = f" for {found.flips[0].candidate!r}" if found.flips else ""
    title = f"Sensitivity of the decision{name}, each assumption changed alone"
    return Report("roi", _FLIPS, [dataclasses.asdict(flip) for flip in found.flips], notes=(note,), title=title)


@report.register
def _(result: WhatIf, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the steps of a scenario as rows; see `perfmodel.investment.what_if.StepResult` for the keys."""
    last = result.steps[-1]
    per_item = " per item" if any(step.kind == "batch" for step in result.steps) else ""
    total = f"{format_si(result.profile.total_time_s, 's')} become {format_si(last.total_time_s, 's')}"
    doubtful = sum(bool(step.flags) for step in result.steps)
    suffix = f"; {doubtful} of them doubtful" if doubtful else ""
    flagged = tuple(f"Step {step.step}, {step.name}: {flag}." for step in result.steps for flag in step.flags)
    speedup = f"{last.speedup:.3f}x" if math.isfinite(last.speedup) else "no time left"
    return Report(
        "whatif",
        _step_columns(result.scenario.item),
        [dataclasses.asdict(step) for step in result.steps],
        {**(context or {}), "item": result.scenario.item},
        (*flagged, *result.notes),
        f"What if: {total}: {speedup}{per_item} after {format_count(len(result.steps), 'step')}{suffix}",
    )


def _step_columns(item: str) -> tuple[Column, ...]:
    """Return the columns of the steps of a scenario, whose throughput counts some items."""
    return (
        Column("step", "#"),
        Column("name"),
        Column("kind", drop=6),
        Column("targets", shown=False),
        Column("time_before_s", "targets before", "s", drop=4),
        Column("time_after_s", "targets after", "s", drop=4),
        Column("total_time_s", "total", "s"),
        Column("total_low_s", shown=False, unit="s"),
        Column("total_high_s", shown=False, unit="s"),
        Column("time_saved_s", "saved", "s", drop=5),
        Column("step_speedup", "step", "x", drop=3),
        Column("speedup", "cumulative", "x"),
        Column("throughput_per_s", f"{item}/s", drop=1),
        Column("bottleneck", drop=2),
        Column("bottleneck_fraction", "share", "fraction", drop=2),
        Column("max_further_speedup", "without it", "x", drop=7),
        Column("max_overall_speedup", "overall ceiling", "x", drop=6, note=_CEILING),
        Column("flags", "check", show=lambda flags: "doubtful" if flags else "ok"),
        Column("basis", "basis of new time", drop=8),
    )


@report.register
def _(fit: ScalingFit) -> Report:
    """Return the points of a scaling curve: measured and fitted speedup, efficiency, and each point's serial share."""
    each = iter(fit.each)
    rows = [
        {
            "processors": n,
            "speedup": measured,
            "fitted_speedup": float(fit.speedup(n)),
            "efficiency": float(parallel_efficiency(measured, n)),
            "serial_fraction": next(each) if n > 1 else None,
        }
        for n, measured in zip(fit.processors, fit.speedups, strict=True)
    ]
    columns = (
        Column("processors"),
        Column("speedup", unit="x"),
        Column("fitted_speedup", "fitted", "x"),
        Column("efficiency", unit="fraction"),
        Column("serial_fraction", "serial share", "fraction"),
    )
    most = f"at most {fit.max_speedup:.4g}x" if math.isfinite(fit.max_speedup) else "no limit"
    title = f"Scaling: {100 * fit.serial_fraction:.3g} % serial, {most}"
    return Report("scaling", columns, rows, title=title)
