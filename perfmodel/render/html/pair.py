"""Two reports side by side: what changed from the first to the second, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Report
from perfmodel.core.units import format_si
from perfmodel.render.html.packing import View

#: keys that say what a row is about, the first that a row has; the others tell equal names apart
_NAMES = ("dimension", "deployment", "plan", "name", "metric", "op")
_APART = ("dimensions", "dtype", "kernel", "concurrency", "of")
#: keys of the time of a row, the first that both reports have
_TIMES = ("measured_time_s", "time_s", "predicted_time_s", "total_time_s")
_MOST = 15


def pair_view(before: Report, after: Report) -> View | None:
    """Return the times of two reports' rows, matched by what they are about; None where nothing matches."""
    key = next((key for key in _TIMES if _has(before, key) and _has(after, key)), None)
    if key is None:
        return None
    first, second = _times(before, key), _times(after, key)
    names = dict.fromkeys([*first, *second])
    if not first.keys() & second.keys():
        return None
    rows: list[dict[str, Any]] = [
        {"name": name, "before_s": first.get(name, 0.0), "after_s": second.get(name, 0.0),
         "state": "" if name in first and name in second else ("new" if name in second else "gone")}
        for name in names
    ]  # fmt: skip
    rows.sort(key=lambda row: -abs(row["after_s"] - row["before_s"]))
    totals = sum(first.values()), sum(second.values())
    return {
        "kind": "pair",
        "title": "Before and after",
        "decision": _sentence(rows, *totals),
        "before_s": totals[0],
        "after_s": totals[1],
        "rows": rows[:_MOST],
        "left_out": max(0, len(rows) - _MOST),
    }


def _has(report: Report, key: str) -> bool:
    return any(isinstance(row.get(key), (int, float)) for row in report.rows)


def _times(report: Report, key: str) -> dict[str, float]:
    times: dict[str, float] = {}
    machines = {str(row.get("hardware")) for row in report.rows}
    for row in report.rows:
        value = row.get(key)
        if isinstance(value, (int, float)):
            name = _name(row) + (f" {row.get('hardware')}" if len(machines) > 1 else "")
            times[name] = times.get(name, 0.0) + float(value) * float(row.get("count") or 1.0)
    return times


def _name(row: Mapping[str, Any]) -> str:
    name = next((str(row[key]) for key in _NAMES if row.get(key)), "")
    more = [str(row[key]) for key in _APART if row.get(key) and not isinstance(row[key], (list, dict)) and key != name]
    return " ".join([name, *more]) if "dimension" not in row else name


def _sentence(rows: list[dict[str, Any]], before_s: float, after_s: float) -> str:
    if not before_s or not after_s:
        return ""
    times = f"{format_si(before_s, 's', 4)} become {format_si(after_s, 's', 4)}"
    if abs(after_s / before_s - 1) < 5e-4:
        return f"{times}: no change."
    faster = f"{before_s / after_s:.3g} x faster" if after_s < before_s else f"{after_s / before_s:.3g} x slower"
    most = rows[0]
    change = most["after_s"] - most["before_s"]
    return (
        f"{times}: {faster}. Most of it: {most['name']}, {'+' if change > 0 else '-'}{format_si(abs(change), 's', 3)}."
    )
