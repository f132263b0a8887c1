"""The reports of the room: a diagnosis with its candidates, and two diagnoses compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.kernel_name import LONGEST_NAME, function_of, short_name
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_count, format_si
from perfmodel.diagnosis.against import APPEARED, RENAMED, STEP, VANISHED, Change, DiagnosisComparison
from perfmodel.diagnosis.fusion import Fusion
from perfmodel.diagnosis.operator_table import operator_rows
from perfmodel.diagnosis.projection import report as _registers_projections  # noqa: F401
from perfmodel.diagnosis.ranks import report as ranks
from perfmodel.diagnosis.result import Advice, Diagnosis, Part, is_nothing

#: pieces of evidence that people see for each dimension
_SHOWN = 2
#: the longest name there in narrow lines, and what it leaves of wider ones [characters]
_LONGEST, _BESIDE = 44, 36
#: entries of a comparison that people see; JSON has all
_MOST_ENTRIES = 12


@report.register
def _diagnosis_report(result: Diagnosis, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the report of a diagnosis.

    The rows are the dimensions, with the keys dimension, time_s [s], fraction, evidence (a list of {what, time_s,
    count, detail}) and advice, and with the best candidate for the dimension and its saving: candidate, time_saved_s.
    ``candidates`` has one row for each piece of advice, with the keys that `roi` needs; ``operators``, which is the
    table of CSV, has one for each operator and shape (`perfmodel.diagnosis.operator_table.OperatorRow`).
    """
    return Report(
        "diagnose",
        _dimensions(result.total_s),
        [_dimension_row(result, part) for part in result.parts],
        context or {},
        (*result.notes, *result.not_advised, *result.profile.notes),
        _title(result),
        more={**({"candidates": _candidates(result)} if result.advice else {}), "operators": _operators(result)},
        csv_table="operators",
    )


def _dimensions(total_s: float) -> tuple[Column, ...]:
    """Return the columns of the dimensions of a run that takes some time [s]."""
    return (
        Column("dimension"),
        Column("time_s", "time", "s", show_row=lambda row: _dimension_time(row["time_s"], total_s)),
        Column("fraction", "share", "fraction"),
        Column("advice", shown=False),
        Column("candidate", "best candidate", drop=1, show=short_name),
        Column("time_saved_s", "saves", "s", digits=3, drop=1),
        Column("evidence", "largest parts", fit=_evidence_text, prose=True),
    )


def saved(table: Report) -> Report:
    """Return a diagnosis, two compared, a job or a projection that was read from JSON as its command shows it."""
    if table.command == "project":
        return ranks.saved_projection(table)
    if any("rank" in row for row in table.rows):
        return ranks.saved(table)
    if any("before_s" in row for row in table.rows):
        more = dict(table.more)
        if "summary" in more:
            more["summary"] = with_columns(more["summary"], _SUMMARY_COLUMNS, title="")
        if "entries" in more:
            more["entries"] = _changed_entries(more["entries"].rows)
        return with_columns(table, _DIMENSION_COLUMNS, more=more)
    tables = {"candidates": _candidate_table, "operators": _operator_table}
    more = {key: tables[key](one.rows) if key in tables else one for key, one in table.more.items()}
    columns = _dimensions(table.context.get("total_time_s") or 0.0)
    return with_columns(table, columns, more=more, csv_table="operators" if "operators" in more else "")


@report.register
def _fusion_report(result: Fusion) -> Report:
    """Return the report of a fusion: one row with its verdict, reason, bytes saved [B] and times [s]."""
    columns = (
        Column("verdict"),
        Column("bytes_saved", "bytes saved", "B"),
        Column("time_s", "apart", "s"),
        Column("fused_time_s", "fused", "s"),
        Column("speedup", unit="x", digits=3),
        Column("reason", prose=True),
    )
    return Report("fuse", columns, [{**dataclasses.asdict(result), "speedup": result.speedup}])


def _operators(diagnosis: Diagnosis) -> Report:
    """Return the whole table by operator and shape; the keys are the attributes of `OperatorRow`."""
    return _operator_table([dataclasses.asdict(row) for row in operator_rows(diagnosis)])


def _operator_table(rows: Sequence[Mapping[str, Any]]) -> Report:
    columns = (
        Column("name", "operator", fit=_name),
        Column("op", shown=False),
        Column("dimensions", shown=False),
        Column("calls"),
        Column("time_s", "time", "s"),
        Column("fraction", "share", "fraction"),
        *(Column(f"{key}_s", key, "s", digits=3) for key in ("min", "median", "max")),
        Column("flop_per_s", "FLOP/s", "FLOP/s", digits=3),
        Column("bytes_per_s", "B/s", "B/s", digits=3),
        Column("arithmetic_intensity_flop_per_byte", "FLOP/B", "FLOP/B", digits=3),
        Column("limiter"),
        Column("basis"),
        Column("bound_time_s", "bound", "s"),
        Column("efficiency", "of bound", "fraction"),
        Column("predicted_time_s", "predicted", "s"),
        Column("predicted_low_s", "low", "s", digits=3),
        Column("predicted_high_s", "high", "s", digits=3),
        Column("kernels", show=lambda names: ", ".join(map(short_name, names))),
        Column("flag"),
        Column("not_modelled"),
    )
    return Report("diagnose", columns, rows, title="By operator and shape", only_wide=True)


def _dimension_time(time_s: float | None, total_s: float) -> str:
    """Return the time of a dimension for people: 0 for what rounding left."""
    return Column("time_s", unit="s").text(0.0 if is_nothing(time_s, total_s) else time_s)


def _title(diagnosis: Diagnosis) -> str:
    if not diagnosis.total_s:
        return "The profile lists only calls of the CPU, so the GPU time is unknown"
    on = f" on {diagnosis.hardware.title or diagnosis.hardware.name}" if diagnosis.hardware else ""
    kind = "wall time" if diagnosis.decomposition else "listed time, without a time line"
    return f"Where {format_si(diagnosis.total_s, 's')} go{on} ({kind})"


def _dimension_row(diagnosis: Diagnosis, part: Part) -> dict[str, Any]:
    best = next((item for item in diagnosis.advice if item.dimension == part.dimension), None)
    return {
        "dimension": part.dimension,
        "time_s": part.time_s,
        "fraction": part.fraction,
        "evidence": [dataclasses.asdict(item) for item in part.evidence],
        "advice": best.text if best else "",
        "candidate": best.candidate.name if best else "",
        "time_saved_s": best.time_saved_s if best else None,
    }


def _evidence_text(row: Mapping[str, Any], width: int) -> str:
    """Return the largest pieces of evidence as text, the first one with its detail, for lines of a width."""
    unknown = ["unknown without a time line"] if row["time_s"] is None else []
    longest = max(_LONGEST, width - _BESIDE)
    shown = enumerate(row["evidence"][:_SHOWN])
    texts = [_piece(item, longest, with_detail=place == 0) for place, item in shown]
    return "; ".join([*unknown, *texts])


def _piece(evidence: Mapping[str, Any], longest: int, *, with_detail: bool) -> str:
    what, time_s, count, detail = (evidence[key] for key in ("what", "time_s", "count", "detail"))
    name = function_of(what)
    name = name if len(name) <= longest else f"{name[: longest - 3]}..."
    time = f" {format_si(time_s, 's', 3)}" if time_s is not None else ""
    times = f", {count} times" if count and count > 1 else ""
    return f"{name}{time}{times}{f': {detail}' if detail and with_detail else ''}"


def _name(row: Mapping[str, Any], width: int) -> str:
    """Return the name of a kernel or candidate, of which a wide line shows more."""
    return short_name(str(row["name"]), max(LONGEST_NAME, width // 2))


def _candidates(diagnosis: Diagnosis) -> Report:
    """Return the advice as a table, each row with the keys that `roi` needs."""
    return _candidate_table([_advice_row(diagnosis, rank, item) for rank, item in enumerate(diagnosis.advice, start=1)])


def _candidate_table(rows: Sequence[Mapping[str, Any]]) -> Report:
    columns = (
        Column("rank", "#"),
        Column("kind", drop=4),
        Column("name", "candidate", fit=_name),
        Column("dimension", shown=False),
        Column("time_saved_s", "saves", "s"),
        Column("time_saved_low_s", "low", "s", digits=3, drop=1),
        Column("time_saved_high_s", "high", "s", digits=3, drop=1),
        Column("overall_speedup", "overall speedup", "x"),
        Column("targets", shown=False),
        Column("target_time_s", "time of targets", "s", drop=3),
        Column("new_time_s", shown=False, unit="s"),
        Column("dev_days", "days", drop=2),
        Column("risk", drop=2),
        Column("advice", "what to do", prose=True),
        Column("basis", "how the saving was estimated", prose=True),
    )
    notes = (
        "Each saving is an estimate for the candidate alone; `perfmodel roi` combines candidates for the same time. "
        "Days and risk are assumptions for the kind of change (--effort KIND=DAYS:RISK).",
    )
    return Report("diagnose", columns, rows, {}, notes, "Changes that save time")


def _advice_row(diagnosis: Diagnosis, rank: int, advice: Advice) -> dict[str, Any]:
    candidate = advice.candidate
    left_s = diagnosis.total_s - advice.time_saved_s
    return {
        "rank": rank,
        "kind": advice.kind,
        "name": candidate.name,
        "dimension": advice.dimension,
        "time_saved_s": advice.time_saved_s,
        "time_saved_low_s": advice.time_saved_low_s,
        "time_saved_high_s": advice.time_saved_high_s,
        "overall_speedup": diagnosis.total_s / left_s if left_s > 0 else None,
        "targets": list(candidate.targets),
        "target_time_s": sum(entry.time_s for entry in diagnosis.wall.entries if entry.name in candidate.targets),
        "new_time_s": candidate.new_time_s,
        "dev_days": candidate.dev_days,
        "risk": candidate.risk,
        "advice": advice.text,
        "basis": advice.basis,
    }


_TIMES = (
    Column("before_s", "before", "s"),
    Column("after_s", "after", "s"),
    Column("change_s", "after - before", "s", drop=1),
    Column("change", unit="fraction"),
    Column("share", "share of total before", "fraction", drop=2),
)
_DIMENSION_COLUMNS = (Column("dimension"), *_TIMES)
_ENTRY_COLUMNS = (
    Column("name", "entry"),
    Column("status", drop=3),
    *_TIMES,
    Column("after_name", shown=False),
    Column("before_calls", "calls before", drop=4),
    Column("after_calls", "calls after", drop=4),
)
_SUMMARY_COLUMNS = (
    Column("per"),
    Column("before_s", "before", "s"),
    Column("after_s", "after", "s"),
    Column("speedup"),
    Column("before_steps", "steps before"),
    Column("after_steps", "steps after"),
)


@report.register
def _comparison_report(result: DiagnosisComparison, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the report of a comparison of two diagnoses.

    Row keys: dimension, before_s, after_s, change_s = after - before [s], change = after / before - 1, share =
    change_s / total before, which adds up to the change of the total. ``summary`` has the total: per ("run" or "step"),
    before_s, after_s [s], speedup = before / after, before_steps, after_steps. ``entries`` has the same keys as the
    rows, by name, with status (both, renamed, appeared, vanished), after_name, before_calls, after_calls.
    """
    before, after = result.before.profile.source, result.after.profile.source
    summary = {
        "per": result.per,
        "before_s": result.before_s,
        "after_s": result.after_s,
        "speedup": result.speedup,
        "before_steps": result.steps[0] or None,
        "after_steps": result.steps[1] or None,
    }
    return Report(
        "diagnose",
        _DIMENSION_COLUMNS,
        [{"dimension": change.name, **_times(change)} for change in result.dimensions],
        {"before": before, "after": after, **(context or {})},
        notes=(*_comparison_notes(result), *result.notes),
        title=f"From {before} (before) to {after} (after): {result.headline}",
        more={
            "summary": Report("diagnose", _SUMMARY_COLUMNS, [summary]),
            "entries": _changed_entries([_entry_row(change) for change in result.entries]),
        },
    )


def _changed_entries(rows: Sequence[Mapping[str, Any]]) -> Report:
    """Return the entries of which people see those that changed most."""
    hidden = len(rows) - _MOST_ENTRIES
    return Report(
        "diagnose",
        _ENTRY_COLUMNS,
        rows,
        title="Entries that changed most",
        people_rows=rows[:_MOST_ENTRIES],
        unlisted=f"Entries that changed less: {hidden}; JSON has them." if hidden > 0 else "",
    )


def _times(change: Change) -> dict[str, Any]:
    return {
        "before_s": change.before_s,
        "after_s": change.after_s,
        "change_s": change.change_s,
        "change": change.change,
        "share": change.share,
    }


def _entry_row(change: Change) -> dict[str, Any]:
    return {
        "name": change.name,
        "status": change.status,
        **_times(change),
        "after_name": change.after_name,
        "before_calls": change.before_calls,
        "after_calls": change.after_calls,
    }


def _comparison_notes(result: DiagnosisComparison) -> list[str]:
    """Return notes that say what the times refer to, how entries were matched, and what one run each cannot tell."""
    notes = []
    if result.per == STEP:
        notes.append(
            f"Times are those of one step: {format_count(result.steps[0], 'step')} before, {result.steps[1]} after."
        )
    elif all(result.steps):
        first, second = (format_si(side.total_s / result.steps[0], "s") for side in (result.before, result.after))
        steps = format_count(result.steps[0], "step")
        notes.append(f"{steps} on both sides: {first} per step before, {second} after.")
    counts = {status: sum(change.status == status for change in result.entries) for status in (APPEARED, VANISHED)}
    notes.append(f"{len(result.entries)} entries: {counts[APPEARED]} only after, {counts[VANISHED]} only before.")
    renamed = [change for change in result.entries if change.status == RENAMED]
    if renamed:
        pairs = "; ".join(f"{change.name} -> {change.after_name}" for change in renamed[:2])
        rest = f" and {len(renamed) - 2} more" if len(renamed) > 2 else ""
        notes.append(f"Matched as the same work under two names: {pairs}{rest}.")
    notes.append("Each side is a single run, so the variation between runs of the same code is unknown.")
    return notes
