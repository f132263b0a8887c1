"""Before and after as a report: dimensions, the whole, and the entries that changed most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.diagnosis.against import APPEARED, RENAMED, STEP, VANISHED, Against, Change

_TIMES = (
    Column("before_s", "before", "s"),
    Column("after_s", "after", "s"),
    Column("change_s", "after - before", "s", drop=1),
    Column("change", unit="fraction"),
    Column("share", "share of the whole before", "fraction", drop=2),
)
COLUMNS = (Column("dimension"), *_TIMES)
ENTRY_COLUMNS = (
    Column("name", "entry"),
    Column("status", drop=3),
    *_TIMES,
    Column("after_name", shown=False),
    Column("before_calls", "calls before", drop=4),
    Column("after_calls", "calls after", drop=4),
)
#: entries that people see; JSON has all
_MOST_ENTRIES = 12
SUMMARY_COLUMNS = (
    Column("per"),
    Column("before_s", "before", "s"),
    Column("after_s", "after", "s"),
    Column("speedup"),
    Column("before_steps", "steps before"),
    Column("after_steps", "steps after"),
)


def against_report(found: Against, context: Mapping[str, Any] | None = None) -> Report:
    """Return the report of a comparison of two diagnoses.

    Parameters
    ----------
    found : what changed.
    context : what goes into the report's context.

    Notes
    -----
    Row keys: dimension, before_s, after_s, change_s = after - before [s], change = after / before - 1, share =
    change_s / whole before, which adds up to the change of the whole. ``summary`` has the whole: per ("run" or "step"),
    before_s, after_s [s], speedup = before / after, before_steps, after_steps; ``entries`` the same keys as the
    rows by name, with status (both, renamed, appeared, vanished), after_name, before_calls, after_calls.
    """
    places = [one.profile.source for one in (found.before, found.after)]
    entries = [_entry(change) for change in found.entries]
    hidden = len(entries) - _MOST_ENTRIES
    summary = {
        "per": found.per,
        "before_s": found.before_s,
        "after_s": found.after_s,
        "speedup": found.speedup,
        "before_steps": found.steps[0] or None,
        "after_steps": found.steps[1] or None,
    }
    return Report(
        "diagnose",
        COLUMNS,
        [{"dimension": change.name, **_times(change)} for change in found.dimensions],
        {"before": places[0], "after": places[1], **(context or {})},
        notes=(*_said(found), *found.notes),
        title=f"From {places[0]} (before) to {places[1]} (after): {headline(found)}",
        more={
            "summary": Report("diagnose", SUMMARY_COLUMNS, [summary]),
            "entries": Report(
                "diagnose",
                ENTRY_COLUMNS,
                entries,
                title="Entries that changed most",
                people_rows=entries[:_MOST_ENTRIES],
                unlisted=f"Entries that changed less: {hidden}; JSON has them." if hidden > 0 else "",
            ),
        },
    )


def headline(found: Against) -> str:
    """Return the change of the whole in words: "929 ms -> 770 ms, 1.21x as fast"."""
    whole = f"{format_si(found.before_s, 's', 3)} -> {format_si(found.after_s, 's', 3)}"
    per = " a step" if found.per == STEP else ""
    return f"{whole}{per}" + (f", {found.speedup:.3g}x as fast" if found.speedup else "")


def _times(change: Change) -> dict[str, Any]:
    return {
        "before_s": change.before_s,
        "after_s": change.after_s,
        "change_s": change.change_s,
        "change": change.change,
        "share": change.share,
    }


def _entry(change: Change) -> dict[str, Any]:
    return {
        "name": change.name,
        "status": change.status,
        **_times(change),
        "after_name": change.after_name,
        "before_calls": change.before_calls,
        "after_calls": change.after_calls,
    }


def _said(found: Against) -> list[str]:
    """Say what the times are of, how entries were matched, and what one run each cannot tell."""
    said = []
    if found.per == STEP:
        said.append(f"Times are of one step: {found.steps[0]} steps before, {found.steps[1]} after.")
    elif all(found.steps):
        first, second = (format_si(one.total_s / found.steps[0], "s") for one in (found.before, found.after))
        said.append(f"{found.steps[0]} steps on both sides, of {first} before and {second} after.")
    counted = {status: sum(change.status == status for change in found.entries) for status in (APPEARED, VANISHED)}
    said.append(f"{len(found.entries)} entries: {counted[APPEARED]} only after, {counted[VANISHED]} only before.")
    renamed = [change for change in found.entries if change.status == RENAMED]
    if renamed:
        pairs = "; ".join(f"{change.name} -> {change.after_name}" for change in renamed[:2])
        rest = f" and {len(renamed) - 2} more" if len(renamed) > 2 else ""
        said.append(f"Taken for the same work under two names: {pairs}{rest}.")
    said.append("One run on each side: how far two runs of the same code differ is not known.")
    return said
