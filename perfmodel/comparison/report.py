"""A comparison of two benchmark records as a report: rows, summary, and the sentences below them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.comparison.compare import SAME, SLOWER, UNCLEAR, VERDICTS, Change, Comparison, Overall
from perfmodel.comparison.pairing import IDENTITY, BenchRow, BenchRun, differing_facts
from perfmodel.core.report import Column, Report


def signed(share: float | None) -> str:
    """Return a share in per cent with its sign, with one decimal.

    >>> signed(0.0312)
    '+3.1'
    """
    return "-" if share is None else f"{100 * share:+.1f}"


def _interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a row's change for people."""
    known = row["low"] is not None and row["high"] is not None
    return f"{signed(row['low'])} to {signed(row['high'])} %" if known else "unknown"


COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator"),
    Column("dimensions"),
    Column("dtype", drop=3),
    Column("kernel"),
    Column("device", drop=1),
    Column("before_s", "before", "s", drop=2),
    Column("after_s", "after", "s", drop=1),
    Column("change", unit="fraction", show=lambda change: f"{signed(change)} %"),
    Column("interval", "95 % interval", drop=4, show_row=_interval),
    Column("low", unit="fraction", shown=False),
    Column("high", unit="fraction", shown=False),
    Column("verdict"),
    *(Column(key, shown=False) for key in ("cache", "timing")),
    *(Column(key, shown=False) for key in ("before_samples", "after_samples", "noise", "drift", "basis")),
)
SUMMARY_COLUMNS = (
    Column("rows_of", "geometric mean of"),
    Column("rows"),
    Column("ratio", "after / before"),
    Column("low"),
    Column("high"),
)
_MOST_LISTED = 8


def compare_report(
    found: Comparison,
    before: Sequence[BenchRun],
    after: Sequence[BenchRun],
    context: Mapping[str, Any] | None = None,
    *,
    everything: bool = False,
) -> Report:
    """Return the report of a comparison.

    Parameters
    ----------
    found : the changes.
    before, after : the records of both sides, for what differs between them.
    context : what goes into the report's context besides the records.
    everything : show people every row; else only those that changed or are unclear.

    Notes
    -----
    Row keys: op, name, before_s, after_s [s], change = after / before - 1, low and high (its interval), verdict,
    kernel, dimensions, dtype, cache, timing, device; before_samples, after_samples; noise and drift, the standard
    errors of ln(after / before); basis, what the noise was taken from.
    """
    rows = [_row(change) for change in found.changes]
    listed = [row for row in rows if everything or row["verdict"] != SAME]
    hidden = len(rows) - len(listed)
    counted = Counter(change.verdict for change in found.changes)
    said = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    places = (", ".join(run.place for run in side) for side in (before, after))
    several = len({row["device"] for row in rows}) > 1
    return Report(
        "compare",
        tuple(replace(column, shown=several) if column.key == "device" else column for column in COLUMNS),
        rows,
        {"before": [run.place for run in before], "after": [run.place for run in after], **(context or {})}
        | {"only_before": _labels(found.pairs.only_before), "only_after": _labels(found.pairs.only_after)}
        | {"drift": found.drift.basis, "threshold": found.rules.threshold},
        notes=tuple(_notes(found, before, after)),
        title=f"Change of time from {next(places)} to {next(places)}: {said or 'no row has a time on both sides'}",
        more={"summary": _summary(found)},
        people_rows=sorted(listed, key=_urgency),
        unlisted=f"Rows that did not change: {hidden}; pass --all to list them." if hidden else "",
    )


def _urgency(row: Mapping[str, Any]) -> tuple[int, float]:
    """Return the sort key for people: by verdict, then the largest change first."""
    return VERDICTS.index(row["verdict"]), -abs(row["change"])


def _row(change: Change) -> dict[str, Any]:
    identity = {key: change.pair.before.identity.get(key, "") for key in IDENTITY}
    sides = (change.pair.centres_before, change.pair.centres_after)
    first = {"op": identity["op"], "name": identity["name"], "before_s": change.before_s, "after_s": change.after_s}
    figures = {"change": change.change, "low": change.low, "high": change.high, "verdict": change.verdict}
    order = ("kernel", "dimensions", "dtype", "cache", "timing", "device")
    return {
        **first,
        **figures,
        **{key: _either(change, key) for key in order},
        "before_samples": sum(centre.samples for centre in sides[0]),
        "after_samples": sum(centre.samples for centre in sides[1]),
        "noise": change.noise,
        "drift": change.drift,
        "basis": ", ".join(dict.fromkeys(centre.basis for side in sides for centre in side)),
    }


def _either(change: Change, key: str) -> str:
    """Return what a row is known by; "fp16 -> fp8" where the sides differ."""
    a, b = (row.identity.get(key, "") for row in (change.pair.before, change.pair.after))
    return a if a == b else f"{a or '-'} -> {b or '-'}"


def _summary(found: Comparison) -> Report:
    """Return the geometric mean of the ratios: of all rows, and of each operator where there are several."""
    groups: dict[str, list[Change]] = {}
    for change in found.changes:
        groups.setdefault(change.pair.before.identity.get("op", ""), []).append(change)
    rows = [_summed("all rows", found.overall())]
    if 1 < len(groups) < len(found.changes):
        rows += [_summed(op, found.overall(changes)) for op, changes in groups.items()]
    return Report("compare", SUMMARY_COLUMNS, [row for row in rows if row])


def _summed(name: str, overall: Overall | None) -> dict[str, Any]:
    if overall is None:
        return {}
    return {
        "rows_of": name,
        "rows": overall.rows,
        "ratio": overall.ratio,
        "low": overall.low,
        "high": overall.high,
    }


def _notes(found: Comparison, before: Sequence[BenchRun], after: Sequence[BenchRun]) -> list[str]:
    notes = _rule(found)
    notes += [f"{row.label}: had a time before, now {_lost(now)}." for row, now in found.pairs.lost]
    for rows, side in ((found.pairs.only_before, "before"), (found.pairs.only_after, "after")):
        if rows:
            notes.append(f"Only {side} ({len(rows)}): {'; '.join(_labels(rows[:_MOST_LISTED]))}{_more(rows)}.")
    notes += [f"The machine was busy: {run.place}: {run.busy}." for run in (*before, *after) if run.busy]
    notes += _blind(found)
    different = differing_facts(before, after)
    if different:
        notes.append(f"The records differ in {'; '.join(different)}.")
    rough = [change for change in found.changes if _is_rough(change)]
    if rough:
        notes.append(f"Taken from the spread, for want of samples or an interval of the median: {_rows(len(rough))}.")
    return notes


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"


def _rule(found: Comparison) -> list[str]:
    halves = [(c.high - c.low) / 2 for c in found.changes if c.high is not None and c.low is not None]
    shown = f" A change shows from about {100 * statistics.median(halves):.1f} % on." if halves else ""
    return [
        f"slower, faster: 0 lies outside of the interval (95 %, of all rows together), and the change is beyond "
        f"{100 * found.rules.threshold:g} %. unclear: samples too few or too scattered.",
        f"Drift that was allowed for: {found.drift.basis}.{shown}",
    ]


def _lost(row: BenchRow) -> str:
    return f"{row.status}: {row.reason}" if row.reason else row.status


def _labels(rows: Sequence[BenchRow]) -> list[str]:
    return [row.label for row in rows]


def _more(rows: Sequence[BenchRow]) -> str:
    return f"; and {len(rows) - _MOST_LISTED} more" if len(rows) > _MOST_LISTED else ""


def _blind(found: Comparison) -> list[str]:
    """Say how many rows could hide what the gate asks about."""
    limit = found.rules.limit
    if limit is None:
        return []
    hiding = [c for c in found.changes if c.verdict != SLOWER and (c.high is None or c.high > limit)]
    return [f"A slowdown of {100 * limit:g} % cannot be ruled out in {_rows(len(hiding))}."] if hiding else []


def _is_rough(change: Change) -> bool:
    sides = (*change.pair.centres_before, *change.pair.centres_after)
    return change.verdict != UNCLEAR and any(
        centre.basis not in ("samples", "interval of the median", "one sample") for centre in sides
    )


def gate(found: Comparison, limit: float) -> list[str]:
    """Return a sentence for each row that fails the gate: slower beyond the limit, or without a time by now."""
    slower = [
        f"{change.pair.after.label}: slower by {signed(change.change)} % "
        f"({signed(change.low)} to {signed(change.high)} %), beyond {100 * limit:g} %."
        for change in found.beyond(limit)
    ]
    lost = [f"{row.label}: had a time before, now {_lost(now)}." for row, now in found.pairs.lost]
    return slower + lost
