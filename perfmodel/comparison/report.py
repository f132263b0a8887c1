"""A comparison of two benchmark records as a report: rows, summary and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.comparison.compare import (
    FASTER,
    SAME,
    SLOWER,
    UNCLEAR,
    VERDICTS,
    Change,
    Comparison,
    Overall,
    beyond,
    format_change,
    format_interval,
    format_ratio,
)
from perfmodel.comparison.pairing import IDENTITY, BenchRow, differing_facts
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_count

_MOST_LISTED = 8
#: repeats that somebody may do, and those that are asked for where even they do not suffice
_MOST_RUNS, _SOME_RUNS = 20, 5


COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator"),
    Column("dimensions"),
    Column("dtype", drop=3),
    Column("kernel"),
    Column("device", drop=1),
    Column("before_s", "before", "s", drop=2),
    Column("after_s", "after", "s", drop=1),
    Column("change", unit="fraction", show=format_change),
    Column("interval", "95 % interval", drop=4, show_row=lambda row: format_interval(row["low"], row["high"])),
    Column("low", unit="fraction", shown=False),
    Column("high", unit="fraction", shown=False),
    Column("verdict"),
    *(Column(key, shown=False) for key in ("cache", "timing")),
    *(Column(key, shown=False) for key in ("before_samples", "after_samples", "noise", "drift")),
    Column("smallest", unit="fraction", shown=False),
    Column("basis", shown=False),
)
SUMMARY_COLUMNS = (
    Column("rows_of", "geometric mean over"),
    Column("rows"),
    Column("ratio", "after / before", show=format_ratio),
    Column("low", show=format_ratio),
    Column("high", show=format_ratio),
    Column("verdict"),
)


@report.register
def _(comparison: Comparison, *, context: Mapping[str, Any] | None = None, everything: bool = False) -> Report:
    """Return a comparison as a report.

    Row keys: op, name, before_s, after_s [s], change = after / before - 1, low and high (its interval), verdict,
    kernel, dimensions, dtype, cache, timing, device; before_samples, after_samples; noise and drift, the standard
    errors of ln(after / before); basis, what the noise was computed from.

    Parameters
    ----------
    comparison : the changes.
    context : facts for JSON besides the records.
    everything : show people every row; by default only those that changed or are unclear.
    """
    rows = [_row(change) for change in comparison.changes]
    counts = Counter(change.verdict for change in comparison.changes)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    before, after = ([run.place for run in side] for side in (comparison.before, comparison.after))
    table = Report(
        "compare",
        COLUMNS,
        rows,
        {"before": before, "after": after, **(context or {})}
        | {"only_before": _labels(comparison.pairs.only_before), "only_after": _labels(comparison.pairs.only_after)}
        | {"drift": comparison.drift.basis, "threshold": comparison.rules.threshold}
        | {"what_to_do": _next_step(comparison)},
        notes=tuple(_notes(comparison)),
        title=f"Change of time from {', '.join(before)} to {', '.join(after)}: "
        f"{verdicts or 'no row has a time on both sides'}{_whole(comparison)}",
        more={"summary": _summary(comparison)},
    )
    return _for_people(table, everything=everything)


def saved(table: Report) -> Report:
    """Return a comparison that was read from JSON as the command shows it."""
    summary = table.more.get("summary")
    steps = (str(table.context.get("what_to_do") or ""),)
    more = {"summary": with_columns(summary, SUMMARY_COLUMNS, title="", notes=steps)} if summary else {}
    return _for_people(with_columns(table, COLUMNS, more=more))


def _for_people(table: Report, *, everything: bool = False) -> Report:
    """Return the rows of which people see those that changed, the most urgent first, and the device of several."""
    listed = [row for row in table.rows if everything or row["verdict"] != SAME]
    hidden = len(table.rows) - len(listed)
    several = len({row["device"] for row in table.rows}) > 1
    return replace(
        table,
        columns=tuple(replace(column, shown=several) if column.key == "device" else column for column in COLUMNS),
        people_rows=sorted(listed, key=_urgency),
        unlisted=f"Rows that did not change: {hidden}; compare --all lists them." if hidden else "",
    )


def _whole(comparison: Comparison) -> str:
    """Return the verdict on the run as a whole, for a title; empty where a single row is the whole."""
    whole = comparison.overall()
    if whole is None or whole.rows < 2:
        return ""
    return f"; the whole {format_change(whole.ratio - 1)} ({whole.interval}): {whole.verdict}"


def _urgency(row: Mapping[str, Any]) -> tuple[int, float]:
    """Return the sort key for people: by verdict, then the largest change first."""
    return VERDICTS.index(row["verdict"]), -abs(row["change"])


def _row(change: Change) -> dict[str, Any]:
    """Return one row of JSON."""
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
        "smallest": change.smallest,
        "basis": ", ".join(dict.fromkeys(centre.basis for side in sides for centre in side)),
    }


def _either(change: Change, key: str) -> str:
    """Return a value that identifies a row; "fp16 -> fp8" if the sides differ."""
    a, b = (row.identity.get(key, "") for row in (change.pair.before, change.pair.after))
    return a if a == b else f"{a or '-'} -> {b or '-'}"


def _summary(comparison: Comparison) -> Report:
    """Return the geometric mean of the ratios: over all rows, and over each operator if there are several."""
    groups: dict[str, list[Change]] = {}
    for change in comparison.changes:
        groups.setdefault(change.pair.before.identity.get("op", ""), []).append(change)
    rows = [_summary_row("all rows", comparison.overall())]
    if 1 < len(groups) < len(comparison.changes):
        rows += [_summary_row(op, comparison.overall(changes)) for op, changes in groups.items()]
    return Report("compare", SUMMARY_COLUMNS, [row for row in rows if row], notes=(_next_step(comparison),))


def _summary_row(name: str, overall: Overall | None) -> dict[str, Any]:
    if overall is None:
        return {}
    return {
        "rows_of": name,
        "rows": overall.rows,
        "ratio": overall.ratio,
        "low": overall.low,
        "high": overall.high,
        "verdict": overall.verdict,
    }


def _notes(comparison: Comparison) -> list[str]:
    pairs = comparison.pairs
    notes = _rules(comparison)
    notes += [f"{row.label}: had a time before, now {now.outcome}." for row, now in pairs.lost]
    notes += [f"{row.label}: has a time now, before {row.outcome}." for row, _ in pairs.gained]
    for rows, where in (
        (_labels(pairs.only_before), "Only before"),
        (_labels(pairs.only_after), "Only after"),
        ([_untimed(*sides) for sides in pairs.untimed], "Without a time on either side"),
    ):
        if rows:
            more = f"; and {len(rows) - _MOST_LISTED} more" if len(rows) > _MOST_LISTED else ""
            notes.append(f"{where} ({len(rows)}): {'; '.join(rows[:_MOST_LISTED])}{more}.")
    runs = (*comparison.before, *comparison.after)
    notes += [f"The machine was busy: {run.place}: {run.busy}." for run in runs if run.busy]
    notes += _undecided(comparison)
    differences = differing_facts(comparison.before, comparison.after)
    if differences:
        notes.append(f"The records differ in {'; '.join(differences)}.")
    rough = sum(map(_is_rough, comparison.changes))
    if rough:
        notes.append(f"Noise estimated from the spread, without samples or interval: {format_count(rough, 'row')}.")
    return notes


def _untimed(before: BenchRow, after: BenchRow) -> str:
    """Return a row that has no time on either side, with the reason, or both where they differ."""
    reasons = dict.fromkeys((before.outcome, after.outcome))
    return f"{after.label} ({', now '.join(reasons)})"


def _labels(rows: Sequence[BenchRow]) -> list[str]:
    return [row.label for row in rows]


def _rules(comparison: Comparison) -> list[str]:
    """Return what the verdicts mean, the drift, and the smallest change that would show."""
    known = sorted(c.smallest for c in comparison.changes if c.smallest is not None)
    return [
        f"slower, faster: the interval (95 %, over all rows together) excludes 0, and the change is beyond "
        f"{100 * comparison.rules.threshold:g} %. same: a change of {100 * comparison.rules.margin:g} % is ruled out, "
        "or the times are equal. unclear: neither.",
        f"Allowance for drift: {comparison.drift.basis}.{_detected(known)}",
    ]


def _detected(smallest: Sequence[float]) -> str:
    """Return the smallest changes that rows would have shown, as a sentence."""
    if not smallest:
        return ""
    low, high = (format_change(end).removeprefix("+") for end in (smallest[0], smallest[-1]))
    return f" Slowdowns from {low if low == high else f'{low} to {high}, by row,'} are detected."


def _next_step(comparison: Comparison) -> str:
    """Return what to do, in one sentence: keep or look, or repeat, and how often."""
    counts = Counter(change.verdict for change in comparison.changes)
    whole, needed = comparison.overall(), comparison.repeats_needed()
    busy = [run.place for run in (*comparison.before, *comparison.after) if run.busy]
    parts = []
    if counts[SLOWER] or (whole and whole.verdict == SLOWER):
        rows = f" in {format_count(counts[SLOWER], 'row')}" if counts[SLOWER] else " as a whole"
        parts.append(f"B is slower{rows}: find out why before you keep it")
    elif counts[FASTER] or (whole and whole.verdict == FASTER):
        parts.append("B is faster: keep it, once its results are checked")
    if needed is not None:
        parts.append(_repeat(comparison, needed, counts[UNCLEAR], " on an idle machine" if busy else ""))
    if not parts:
        parts.append(_nothing_changed(comparison.changes))
    return f"What to do: {'; '.join(parts)}."


def _nothing_changed(changes: Sequence[Change]) -> str:
    """Return what follows where no row changed and none is unclear."""
    if not changes:
        return "measure both sides: no row has two times"
    if all(change.before_s == change.after_s for change in changes):
        return "measure again, if this was meant to be two runs: all times are equal, as in a record and its copy"
    return "nothing: the sides are the same"


def _repeat(comparison: Comparison, needed: int, rows: int, idle: str) -> str:
    """Return how often to repeat so that the unclear rows are told, or what a few repeats tell where that is too often.

    Repeats measure the drift, which may be less than is assumed, so that a few are worth it in any case.
    """
    how = f"runs{idle}, in alternation (--repeat-before, --repeat-after)"
    wanted = f"to tell a change of {100 * comparison.rules.margin:g} % in {format_count(rows, 'unclear row')}"
    if needed <= _MOST_RUNS:
        return f"{wanted}, measure each side in {needed} {how}"
    change = comparison.smallest_after(_SOME_RUNS)
    smallest = beyond(change) or f"{100 * change:.0f} %"
    some = f"measure each side in {_SOME_RUNS} {how}; with the drift assumed they tell changes from {smallest}"
    return f"{some}, and {wanted} the machine has to be quieter" if comparison.rules.margin else some


def _undecided(comparison: Comparison) -> list[str]:
    """Return in how many rows the gate's limit cannot be ruled out."""
    limit = comparison.rules.limit
    if limit is None:
        return []
    rows = sum(c.verdict != SLOWER and (c.high is None or c.high > limit) for c in comparison.changes)
    return [f"A slowdown of {100 * limit:g} % cannot be ruled out in {format_count(rows, 'row')}."] if rows else []


def _is_rough(change: Change) -> bool:
    """Whether the noise of a change is estimated from a spread."""
    sides = (*change.pair.centres_before, *change.pair.centres_after)
    return change.verdict != UNCLEAR and any(
        centre.basis not in ("samples", "interval of the median", "one sample") for centre in sides
    )
