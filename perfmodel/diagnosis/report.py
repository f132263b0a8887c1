"""A diagnosis as a report: one row a dimension, and the candidates as a second table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report, short_name
from perfmodel.core.units import format_si
from perfmodel.diagnosis.result import Advice, Diagnosis, Evidence, Part

#: evidence that a table for people shows of each dimension, and how long a name may be there
_SHOWN, _LONGEST = 2, 44


def diagnosis_report(made: Diagnosis, context: Mapping[str, Any] | None = None) -> Report:
    """Return the dimensions as rows with the contract's keys, the candidates under ``candidates``.

    JSON has all evidence as a list of {what, time_s, count, detail}; tables and CSV have the first two as text.
    """
    rows = [_row(made, part) for part in made.parts]
    columns = (
        Column("dimension"),
        Column("time_s", "time", "s"),
        Column("fraction", "share", "fraction"),
        Column("evidence_text", "mostly", drop=2),
        Column("advice", shown=False),
        Column("advice_text", "advice", drop=1),
    )
    candidates = {"candidates": _candidates(made)} if made.advice else {}
    notes = (*made.notes, *(f"Leave it: {text}" for text in made.left_alone), *made.profile.notes)
    return Report("diagnose", columns, rows, context or {}, notes, _title(made), more=candidates)


def _title(made: Diagnosis) -> str:
    if not made.total_s:
        return "Where the time goes is not listed: there are calls of the CPU alone"
    on = f" on {made.hardware.title or made.hardware.name}" if made.hardware else ""
    what = "wall time" if made.decomposition else "listed time, without a time line"
    return f"Where {format_si(made.total_s, 's')} go{on} ({what})"


def _row(made: Diagnosis, part: Part) -> dict[str, Any]:
    best = next((one for one in made.advice if one.dimension == part.dimension), None)
    short = f"{best.candidate.name}: saves {format_si(best.time_saved_s, 's', 3)}" if best else ""
    return {
        "dimension": part.dimension,
        "time_s": part.time_s,
        "fraction": part.fraction,
        "evidence": [dataclasses.asdict(one) for one in part.evidence],
        "evidence_text": _shown(part),
        "advice": best.text if best else "",
        "advice_text": short,
    }


def _shown(part: Part) -> str:
    unknown = ["unknown without a time line"] if part.time_s is None else []
    return "; ".join([*unknown, *(_line(one, whole=number == 0) for number, one in enumerate(part.evidence[:_SHOWN]))])


def _line(one: Evidence, *, whole: bool) -> str:
    """Return one piece of evidence in a few words, with its detail where it is shown whole."""
    name = one.what if len(one.what) <= _LONGEST else f"{one.what[: _LONGEST - 3]}..."
    time = f" {format_si(one.time_s, 's', 3)}" if one.time_s is not None else ""
    count = f" in {one.count}" if one.count and one.count > 1 else ""
    return f"{name}{time}{count}{f' ({one.detail})' if one.detail and whole else ''}"


def _candidates(made: Diagnosis) -> Report:
    """Return the advice as rows, each with what `roi` needs."""
    rows = [_advice_row(made, rank, one) for rank, one in enumerate(made.advice, start=1)]
    columns = (
        Column("rank", "#"),
        Column("kind", drop=4),
        Column("name", shown=False),
        Column("short_name", "candidate"),
        Column("dimension", shown=False),
        Column("time_saved_s", "saves", "s"),
        Column("overall_speedup", "overall", "x"),
        Column("targets", shown=False),
        Column("target_time_s", "of", "s", drop=3),
        Column("new_time_s", shown=False, unit="s"),
        Column("dev_days", "days", drop=2),
        Column("risk", drop=2),
        Column("advice", shown=False),
        Column("basis", "why", drop=1),
    )
    notes = (
        *(f"{rank}. {one.candidate.name}: {one.text}." for rank, one in enumerate(made.advice, start=1)),
        "Each saving is estimated for the candidate alone; `perfmodel roi` counts those on the same time jointly. "
        "Days and risk are assumptions by kind of change (--effort KIND=DAYS:RISK).",
    )
    return Report("diagnose", columns, rows, {}, notes, "What would bring time back")


def _advice_row(made: Diagnosis, rank: int, one: Advice) -> dict[str, Any]:
    target_s = sum(entry.time_s for entry in made.wall.entries if entry.name in one.candidate.targets)
    left_s = made.total_s - one.time_saved_s
    return {
        "rank": rank,
        "kind": one.kind,
        "name": one.candidate.name,
        "short_name": short_name(one.candidate.name),
        "dimension": one.dimension,
        "time_saved_s": one.time_saved_s,
        "overall_speedup": made.total_s / left_s if left_s > 0 else None,
        "targets": list(one.candidate.targets),
        "target_time_s": target_s,
        "new_time_s": one.candidate.new_time_s,
        "dev_days": one.candidate.dev_days,
        "risk": one.candidate.risk,
        "advice": one.text,
        "basis": one.basis,
    }
