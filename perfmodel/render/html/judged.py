"""Drawings of errors and changes: predicted against measured, intervals that hold, and what two records differ by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.accuracy.drawn import group_name
from perfmodel.core.report import Report, number
from perfmodel.core.units import format_count, format_si
from perfmodel.render.html.packing import View

#: label of what is not divided into groups
_ALL = "all"
#: groups, and changes, beyond these are in the table alone
_MOST_GROUPS, _MOST_WHOLES = 30, 5
_MOST_CHANGES = 40
#: endings of quantities -> unit
_UNITS = {"_bytes": "iB", "_per_s": "", "_s": "s"}


def judged(report: Report) -> View | None:
    """Return measured rows beside their predictions and intervals, as points by quantity and group."""
    facts = report.context.get("drawn")
    if report.command != "validate" or not isinstance(facts, Mapping):
        return None
    groups, quantities = (list(facts.get(key) or ()) for key in ("groups", "quantities"))
    columns = [_numbers(facts.get(key)) for key in ("group", "measured", "predicted", "low", "high")]
    points = [
        {"group": int(at), "measured": measured, "predicted": predicted, "low": _above_0(low), "high": _above_0(high)}
        for at, measured, predicted, low, high in zip(*columns, strict=False)
        if 0 <= at < min(len(groups), len(quantities)) and _above_0(measured) and _above_0(predicted)
    ]
    if not points:
        return None
    counts = Counter(str(quantities[point["group"]]) for point in points)
    return {
        "kind": "judged", "title": "Predicted against measured", "groups": [str(name) for name in groups],
        "quantities": [
            {
                "name": name,
                "unit": next((unit for end, unit in _UNITS.items() if name.endswith(end)), ""),
                "points": [point for point in points if str(quantities[point["group"]]) == name],
            }
            for name, _ in counts.most_common()
        ],
        "left_out": max(0, int(number(facts.get("rows")) or 0) - len(points)),
    }  # fmt: skip


def _numbers(text: Any) -> list[float]:
    """Return the numbers of a text with blanks between them; a file with anything else there has none."""
    try:
        return [float(word) for word in str(text or "").split()]
    except ValueError:
        return []


def _above_0(value: float) -> float | None:
    return value if 0.0 < value < math.inf else None


def coverage(report: Report) -> View | None:
    """Return which share of each group's rows lies inside the stated 80 % interval: wholes, then the least first."""
    rows = [row for row in report.rows if number(row.get("rows")) and number(row.get("mape")) is not None]
    if report.command != "validate" or not rows:
        return None
    keys = list(rows[0])[: list(rows[0]).index("rows")]
    labels = [key for key in keys if any(row.get(key) != _ALL for row in rows)]
    groups = [_group(row, labels) for row in rows]
    wholes = sorted((group for group in groups if group["whole"]), key=lambda group: -group["rows"])
    wholes = wholes[:_MOST_WHOLES] if len(groups) > 1 else []
    parts = [group for group in groups if not group["whole"]] or groups
    known = sorted((group for group in parts if group["inside"] is not None), key=lambda group: group["inside"])
    kept = [*known, *(group for group in parts if group["inside"] is None)][:_MOST_GROUPS]
    return {
        "kind": "coverage", "title": "Rows inside their 80 % interval", "groups": [*wholes, *kept],
        "left_out": len(parts) - len(kept),
    }  # fmt: skip


def _group(row: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    named = {key: str(row.get(key) or "") for key in labels if row.get(key) != _ALL}
    return {
        "name": group_name(named), "whole": len(named) < len(labels) or not labels, "rows": int(row["rows"]),
        "inside": number(row.get("coverage_80")), "mape": float(row["mape"]), "bias": number(row.get("bias")),
        "width": number(row.get("width_80")),
    }  # fmt: skip


def changes(report: Report) -> View | None:
    """Return after over before of each row of two records, those first that change the time of all rows most."""
    devices = {str(row.get("device")) for row in report.rows}
    pairs = [
        _change(row, with_device=len(devices) > 1)
        for row in report.rows
        if _above_0(number(row.get("before_s")) or 0.0) and _above_0(number(row.get("after_s")) or 0.0)
    ]
    if report.command != "compare" or not pairs:
        return None
    pairs.sort(key=lambda pair: -abs(pair["after_s"] - pair["before_s"]))
    before, after = (sum(pair[key] for pair in pairs) for key in ("before_s", "after_s"))
    return {
        "kind": "changes", "title": "After over before, by what changes most of the time",
        "decision": _sentence(pairs, before, after), "before_s": before, "after_s": after,
        "threshold": number(report.context.get("threshold")), "limit": number(report.context.get("fail_on")),
        "rows": pairs[:_MOST_CHANGES], "left_out": max(0, len(pairs) - _MOST_CHANGES),
    }  # fmt: skip


def _change(row: Mapping[str, Any], *, with_device: bool) -> dict[str, Any]:
    before, after = float(row["before_s"]), float(row["after_s"])
    low, high = (number(row.get(key)) for key in ("low", "high"))
    keys = ("name", "dimensions", "dtype", "kernel", *(["device"] if with_device else []))
    words = (row.get(key) for key in keys)
    return {
        "name": " ".join(dict.fromkeys(str(word) for word in words if word)), "before_s": before, "after_s": after,
        "ratio": after / before, "low": None if low is None else _above_0(1.0 + low),
        "high": None if high is None else 1.0 + high, "verdict": str(row.get("verdict") or ""),
    }  # fmt: skip


def _sentence(pairs: Sequence[Mapping[str, Any]], before_s: float, after_s: float) -> str:
    """Return what all rows together take, and the row that most of the difference comes from."""
    together = f"{format_count(len(pairs), 'row')} together: " if len(pairs) > 1 else ""
    times = f"{together}{format_si(before_s, 's', 4)} become {format_si(after_s, 's', 4)}, "
    times += f"{after_s / before_s:.3g} times as long."
    most = pairs[0]
    difference = most["after_s"] - most["before_s"]
    if len(pairs) == 1 or not difference:
        return times
    sign = "+" if difference > 0 else "-"
    return f"{times} The largest difference: {most['name']}, {sign}{format_si(abs(difference), 's', 3)}."
