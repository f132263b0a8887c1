"""The drawings that the rows of a report allow, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Report, number
from perfmodel.render.html.judged import changes, coverage, judged
from perfmodel.render.html.packing import View
from perfmodel.render.html.panels import panels, pipeline
from perfmodel.render.html.scatter import front, roofline

#: operators that are drawn as bars
_MOST_TIMES = 12
_MOST_TERMS = 40


def charts(report: Report) -> list[View]:
    """Return the drawings of a report, in the order in which they are shown."""
    views = [
        _path(report), _projected(report), _bars(report), _terms(report), _ranks(report), *pipeline(report),
        _times(report), roofline(report), front(report), *panels(report), _candidates(report),
        judged(report), coverage(report), changes(report),
    ]  # fmt: skip
    return [view for view in views if view is not None]


def _bars(report: Report) -> View | None:
    """Return time by dimension, with the evidence of each."""
    rows = [row for row in report.rows if row.get("dimension") and number(row.get("time_s")) is not None]
    if not rows or len(rows) != len({row["dimension"] for row in rows}):
        return None
    bars = [
        {
            "name": str(row["dimension"]),
            "time_s": float(row["time_s"]),
            "parts": [
                {"what": str(item["what"]), "time_s": item["time_s"], "detail": str(item.get("detail") or "")}
                for item in (row.get("evidence") or [])[:8]
                if isinstance(item, Mapping) and item.get("time_s") is not None
            ],
        }
        for row in rows
    ]
    return {"kind": "bars", "title": "Time by dimension", "bars": bars}


def _terms(report: Report) -> View | None:
    """Return the terms that the time of each set-up is made of: a stacked bar each."""
    found = [row for row in report.rows if isinstance(row.get("terms_s"), Mapping) and row["terms_s"]]
    rows = found[:_MOST_TERMS]
    if not rows:
        return None
    several = len(rows) > 1
    return {
        "kind": "terms",
        "title": "What the time is made of",
        "unit": "time of a step" if "time_s" in rows[0] else "time of the mean step of the engine",
        "bars": [
            {
                "name": _set_up(row) if several else "",
                "terms": {str(name): number(time) or 0.0 for name, time in row["terms_s"].items()},
                "low_s": number(row.get("time_low_s")),
                "high_s": number(row.get("time_high_s")),
            }
            for row in rows
        ],
        "left_out": len(found) - len(rows),
    }


def _ranks(report: Report) -> View | None:
    """Return what the time of each rank of a job is made of: a stacked bar each."""
    times: dict[str, dict[str, float]] = {}
    for row in report.rows:
        if row.get("rank") is not None and row.get("dimension"):
            times.setdefault(str(row["rank"]), {})[str(row["dimension"])] = number(row.get("time_s")) or 0.0
    if report.command != "diagnose" or not times:
        return None
    bars = [{"name": f"rank {rank}", "terms": terms} for rank, terms in times.items()][:_MOST_TERMS]
    return {
        "kind": "terms", "title": "Time of each rank", "unit": "time of what was traced", "bars": bars,
        "left_out": len(times) - len(bars),
    }  # fmt: skip


def _set_up(row: Mapping[str, Any]) -> str:
    name = row.get("deployment") or f"{row.get('plan') or row.get('name') or ''}"
    loads = [f"{key} {row[key]:g}" for key in ("concurrency",) if number(row.get(key))]
    return ", ".join([str(name), *loads]) if name else str(row.get("hardware") or "")


def _times(report: Report) -> View | None:
    """Return bound, expected and measured time of the operators that take most of it, all calls together."""
    keys = {"bound_time_s", "predicted_time_s"}
    table = report if report.rows and keys <= report.rows[0].keys() else report.more.get("operators")
    rows = [row for row in (table.rows if table is not None else ()) if number(row.get("predicted_time_s"))]
    if len(rows) < 2:
        return None
    several = len({str(row.get("hardware")) for row in rows}) > 1
    bars = [_time_bar(row, with_machine=several) for row in rows]
    bars.sort(key=lambda bar: -(bar["measured_s"] or bar["expected_s"]))
    return {
        "kind": "times",
        "title": "Where the time goes: bound, expected, measured",
        "bars": bars[:_MOST_TIMES],
        "left_out": max(0, len(bars) - _MOST_TIMES),
    }


def _time_bar(row: Mapping[str, Any], *, with_machine: bool) -> dict[str, Any]:
    """Return the times of an operator; rows of a trace hold the times of all calls already."""
    traced = "calls" in row
    factor = 1.0 if traced else number(row.get("count")) or 1.0

    def time(*keys: str) -> float | None:
        value = next((found for key in keys if (found := number(row.get(key))) is not None), None)
        return None if value is None else factor * value

    name = str(row.get("name") or row.get("op"))
    return {
        "name": name if traced else f"{name} {row.get('dimensions') or ''}".strip(),
        "machine": str(row.get("hardware")) if with_machine else "",
        "calls": number(row.get("calls") or row.get("count")) or 1.0,
        "limiter": str(row.get("limiter") or ""),
        "bound_s": time("bound_time_s"),
        "expected_s": time("predicted_time_s"),
        "low_s": time("predicted_time_low_s", "predicted_low_s"),
        "high_s": time("predicted_time_high_s", "predicted_high_s"),
        "measured_s": time("time_s" if traced else "measured_time_s"),
    }


def _projected(report: Report) -> View | None:
    """Return how much longer or shorter the parts of a profile take on another machine."""
    pairs: list[dict[str, Any]] = [
        {"name": str(row.get("name")), "before_s": here, "after_s": there, "state": ""}
        for row in report.rows
        if (here := number(row.get("time_s"))) is not None
        and (there := number(row.get("projected_time_s"))) is not None
    ]
    if report.command != "project" or not pairs:
        return None
    pairs.sort(key=lambda pair: -abs(pair["after_s"] - pair["before_s"]))
    return {
        "kind": "pair", "title": "What changes between the machines", "difference": "There less here",
        "ends": ["here", "there"], "before_s": sum(pair["before_s"] for pair in pairs),
        "after_s": sum(pair["after_s"] for pair in pairs), "rows": pairs[:_MOST_TIMES],
        "left_out": max(0, len(pairs) - _MOST_TIMES),
    }  # fmt: skip


def _candidates(report: Report) -> View | None:
    """Return the changes that the page lets a reader vary: time of the targets, speedup, days."""
    own = report.command == "roi" and report.rows and "local_speedup" in report.rows[0]
    table = report if own else report.more.get("candidates") or report.more.get("ranking")
    if table is None:
        return None
    target = "time_s" if own else "target_time_s"
    rows = [
        {
            "name": str(row.get("name")), "target_time_s": float(row[target]),
            "speedup": _speedup(row, float(row[target])), "days": number(row.get("dev_days")) or 1.0,
            "targets": list(row.get("targets") or []),
        }
        for row in table.rows
        if number(row.get(target))
    ]  # fmt: skip
    parts = [float(row["time_s"]) for row in report.rows if number(row.get("time_s")) is not None]
    total = number(report.context.get("total_time_s")) if own else sum(parts)
    if not rows or not total or total <= 0:
        return None
    return {"kind": "candidates", "title": "What if: choose changes", "rows": rows, "total_s": total}


def _speedup(row: Mapping[str, Any], target: float) -> float | None:
    """Return the local speedup of a candidate: its own, or its targets' time over what is left; None for nothing."""
    own = number(row.get("local_speedup"))
    if own is not None:
        return max(own, 1e-3)
    saved = number(row.get("time_saved_s")) or 0.0
    return max(1.0, target / (target - saved)) if saved < target else None


def _path(report: Report) -> View | None:
    """Return the steps of a scenario as a waterfall, with what the page needs to leave some out."""
    rows = report.rows
    if report.command != "whatif" or not rows or not all(number(row.get("total_time_s")) for row in rows):
        return None
    steps = [
        {
            "name": str(row.get("name")), "kind": str(row.get("kind") or ""), "targets": list(row.get("targets") or []),
            "before_s": number(row.get("time_before_s")) or 0.0, "after_s": number(row.get("time_after_s")) or 0.0,
            "total_s": float(row["total_time_s"]), "saved_s": number(row.get("time_saved_s")) or 0.0,
            "step_speedup": number(row.get("step_speedup")) or 1.0, "low_s": number(row.get("total_low_s")),
            "high_s": number(row.get("total_high_s")), "flags": list(row.get("flags") or []),
            "basis": str(row.get("basis") or ""),
        }
        for row in rows
    ]  # fmt: skip
    return {"kind": "path", "title": "What-if path: one change upon the other", "steps": steps,
            "begin_s": float(rows[0]["total_time_s"]) + (number(rows[0].get("time_saved_s")) or 0.0)}  # fmt: skip
