"""The decision matrix: its rows, and their columns with units as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.core.report import Column, Report

#: longer names, as kernels with their template arguments have them, are shortened in tables for people
_LONGEST_NAME = 48


@dataclass(frozen=True)
class RoiRow:
    """One candidate against the profile; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    rank : 1 for what to do first.
    name, targets : the candidate and the entries that it makes faster.
    time_s, fraction : time of the targets together [s], and as a share of the total.
    local_speedup : of the targets; infinite where they are removed.
    overall_speedup, time_saved_s : of the whole run, with this candidate alone [s].
    max_overall_speedup : of the whole run if the targets took no time.
    dev_days, risk : as the plan says.
    roi_per_day : (overall_speedup - 1) / dev_days, or None without dev_days.
    yearly_saving, payback_days, net_value : money in the currency of the prices, and calendar days; None
        without prices. ``net_value`` is of the first year.
    claimed_total_time_s, total_time_s : the claim, and the total after this candidate alone [s].
    cumulative_time_s, cumulative_time_saved_s, cumulative_speedup, cumulative_dev_days : after this candidate
        and all before it; None for one that is left out of the combination.
    verdict : what to do about it, see `perfmodel.analysis.roi.rank`.
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


def ranking_report(
    rows: Sequence[dict[str, Any]], *, title: str, notes: tuple[str, ...], context: Mapping[str, Any], with_money: bool
) -> Report:
    """Return the rows of a ranking as a report; see `RoiRow` for the keys.

    Tables for people show what the decision rests on; JSON and CSV have every key. Where a name is too long
    for a table, the rows also get ``short_name``.
    """
    shorten = any(len(row["name"]) > _LONGEST_NAME for row in rows)
    if shorten:
        rows = [{**row, "short_name": short_name(row["name"])} for row in rows]
    return Report("roi", _columns(shorten=shorten, money=with_money), rows, context, notes, title)


def short_name(name: str) -> str:
    """Return a name of at most 48 characters: both ends of a longer one, which tell kernels apart.

    >>> short_name("void kernel<" + "int, " * 20 + "float>(Params)")
    'void kernel<int, int, int, int, ...loat>(Params)'
    """
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:32]}...{name[35 - _LONGEST_NAME :]}"


def _columns(*, shorten: bool, money: bool) -> tuple[Column, ...]:
    """Return the columns; with money, the money is kept longest where the terminal is narrow."""
    return (
        Column("rank", "#"),
        Column("name", shown=not shorten),
        *((Column("short_name", "name"),) if shorten else ()),
        Column("targets", shown=False),
        Column("time_s", "time", "s", drop=6),
        Column("fraction", "share", "fraction"),
        Column("local_speedup", "local", "x", drop=5),
        Column("overall_speedup", "overall", "x"),
        Column("time_saved_s", "saved", "s", drop=4 if money else 0),
        Column("max_overall_speedup", "at most", "x", drop=3),
        Column("total_time_s", shown=False, unit="s"),
        Column("dev_days", "days", drop=7 if money else 0),
        Column("risk", drop=8),
        Column("roi_per_day", "ROI/day", drop=2 if money else 0),
        Column("yearly_saving", "yearly"),
        Column("payback_days", "payback", "d"),
        Column("net_value", "net"),
        Column("claimed_total_time_s", shown=False, unit="s"),
        Column("cumulative_time_s", shown=False, unit="s"),
        Column("cumulative_time_saved_s", shown=False, unit="s"),
        Column("cumulative_speedup", "together", "x", drop=7),
        Column("cumulative_dev_days", shown=False),
        Column("verdict"),
    )
