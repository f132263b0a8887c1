"""The decision matrix: its rows, and their columns with units as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.core.report import Column, Report, short_name


@dataclass(frozen=True)
class RoiRow:
    """One candidate against the profile; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    rank : 1 for what to do first.
    name, targets, kind : the candidate and the entries that it makes faster.
    time_s, fraction : time of the targets together [s], and as a share of the total.
    claimed_local_speedup, local_speedup : of the targets, as claimed and as counted: no more than their floor allows;
        infinite where they are removed.
    attainable_time_s, efficiency : the bound of the targets on the machine [s], and bound over measured time; None
        without a machine, and where a target has no bound.
    max_local_speedup, bounded_overall_speedup : what that bound allows for the targets and for the whole run, as long
        as they compute the same; None where it is not known or the candidate makes something else of them.
    overall_speedup, time_saved_s : of the whole run, with this candidate alone [s].
    max_overall_speedup : of the whole run if the targets took no time.
    dev_days, risk : as the plan says.
    roi_per_day : (overall_speedup - 1) / dev_days, or None without dev_days.
    quadrant : "quick win", "big bet", "fill-in" or "avoid": low or high cost, high or low return.
    yearly_saving, payback_days, net_value : money in the currency of the prices, and calendar days; None
        without prices. ``net_value`` is the present value over the horizon, a year unless it is said.
    next_best, opportunity_gain, opportunity_cost : the best of the other candidates, and what it would have brought in
        the days spent here: gain in throughput, and present value in money.
    claimed_total_time_s, total_time_s : the claim, and the total after this candidate alone [s].
    cumulative_time_s, cumulative_time_saved_s, cumulative_speedup, cumulative_dev_days : after this candidate
        and all before it; None for one that is left out of the combination.
    verdict : what to do about it, see `perfmodel.investment.roi.rank`.
    """

    rank: int
    name: str
    targets: tuple[str, ...]
    time_s: float
    fraction: float
    local_speedup: float
    overall_speedup: float
    time_saved_s: float
    max_overall_speedup: float
    total_time_s: float
    dev_days: float | None = None
    risk: str = ""
    roi_per_day: float | None = None
    yearly_saving: float | None = None
    payback_days: float | None = None
    net_value: float | None = None
    claimed_total_time_s: float | None = None
    cumulative_time_s: float | None = None
    cumulative_time_saved_s: float | None = None
    cumulative_speedup: float | None = None
    cumulative_dev_days: float | None = None
    verdict: str = ""
    kind: str = ""
    claimed_local_speedup: float | None = None
    attainable_time_s: float | None = None
    efficiency: float | None = None
    max_local_speedup: float | None = None
    bounded_overall_speedup: float | None = None
    quadrant: str = ""
    next_best: str = ""
    opportunity_gain: float | None = None
    opportunity_cost: float | None = None


def ranking_report(
    rows: Sequence[dict[str, Any]],
    *,
    title: str,
    notes: tuple[str, ...],
    context: Mapping[str, Any],
    money: bool,
    bound: bool = True,
    more: Mapping[str, Report] | None = None,
) -> Report:
    """Return the rows of a ranking as a report; see `RoiRow` for the keys.

    Tables for people show what the decision rests on; JSON and CSV have every key. Where a name is too long
    for a table, the rows also get ``short_name``. ``money`` keeps the money longest where the terminal is narrow;
    ``bound`` shows the bound of the local speedup beside it (without a plan they are the same).
    """
    shorten = any(short_name(row["name"]) != row["name"] for row in rows)
    if shorten:
        rows = [{**row, "short_name": short_name(row["name"])} for row in rows]
    columns = _columns(shorten=shorten, money=money, bound=bound)
    return Report("roi", columns, rows, context, notes, title, more or {})


def _columns(*, shorten: bool, money: bool, bound: bool) -> tuple[Column, ...]:
    return (
        Column("rank", "#"),
        Column("name", shown=not shorten),
        *((Column("short_name", "name"),) if shorten else ()),
        Column("targets", shown=False),
        Column("kind", shown=False),
        Column("time_s", "time", "s", drop=6),
        Column("fraction", "share", "fraction"),
        Column("efficiency", "of bound", "fraction", drop=4),
        Column("claimed_local_speedup", shown=False, unit="x"),
        Column("local_speedup", "local", "x", drop=5),
        Column("max_local_speedup", "local bound", "x", shown=bound, drop=4),
        Column("overall_speedup", "overall", "x"),
        Column("bounded_overall_speedup", shown=False, unit="x"),
        Column("time_saved_s", "saved", "s", drop=4 if money else 0),
        Column("max_overall_speedup", "at most", "x", drop=3),
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
        Column("opportunity_cost", "forgone", drop=9),
        Column("attainable_time_s", shown=False, unit="s"),
        Column("claimed_total_time_s", shown=False, unit="s"),
        Column("cumulative_time_s", shown=False, unit="s"),
        Column("cumulative_time_saved_s", shown=False, unit="s"),
        Column("cumulative_speedup", "together", "x", drop=7),
        Column("cumulative_dev_days", shown=False),
        Column("verdict"),
    )
