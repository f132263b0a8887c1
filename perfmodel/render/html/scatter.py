"""Points of a page: the roofline of operators, and the front of deployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Report, number
from perfmodel.render.html.packing import View

_ROOFLINE = ("arithmetic_intensity_flop_per_byte", "attainable_flop_per_s", "ridge_point_flop_per_byte", "dtype")
_LAUNCH = "launch"
#: points of a roofline beyond these are left out, those with the least time first
_MOST_POINTS = 1500


def roofline(report: Report) -> View | None:
    """Return the points of a roofline, with the ceilings that follow from them.

    At or above the ridge point an operator's attainable rate is the peak, below it intensity times bandwidth; rows that
    a launch limits say nothing about either. The page draws the ceilings of the machine's specification where it has
    one.
    """
    rows = [row for row in report.rows if all(row.get(key) for key in _ROOFLINE)]
    rows = [row for row in rows if number(row[_ROOFLINE[0]]) is not None]
    if not rows:
        return None
    left_out = max(0, len(rows) - _MOST_POINTS)
    if left_out:
        rows = sorted(rows, key=lambda row: -(number(row.get("predicted_time_s")) or 0.0))[:_MOST_POINTS]
    ceilings: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        intensity, attainable, ridge = (float(row[key]) for key in _ROOFLINE[:3])
        place = ceilings.setdefault(
            (str(row.get("hardware") or ""), str(row["dtype"])), {"peak": 0.0, "bandwidth": 0.0}
        )
        if row.get("limiter") != _LAUNCH:
            peak = attainable if intensity >= ridge else attainable / intensity * ridge
            place["peak"] = max(place["peak"], peak)
            place["bandwidth"] = max(place["bandwidth"], peak / ridge)
    drawn = [
        {"machine": machine, "dtype": dtype, **rates} for (machine, dtype), rates in ceilings.items() if rates["peak"]
    ]
    return {"kind": "roofline", "title": "Roofline", "points": [_point(row) for row in rows], "ceilings": drawn,
            "left_out": left_out}  # fmt: skip


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    resident = number(row.get("resident_bound_time_s"))
    return {
        "name": str(row.get("name") or row.get("op") or ""), "op": str(row.get("op") or ""),
        "dimensions": str(row.get("dimensions") or ""), "dtype": str(row["dtype"]),
        "engine": str(row.get("engine") or ""), "machine": str(row.get("hardware") or ""),
        "x": float(row[_ROOFLINE[0]]), "attainable": float(row["attainable_flop_per_s"]),
        "kernel": str(row.get("kernel") or ""), "achieved": number(row.get("achieved_flop_per_s")),
        "predicted": _rate(row, "predicted_time_s"), "limiter": str(row.get("limiter")),
        "fits_in": str(row.get("fits_in") or ""), "resident": _rate(row, "resident_bound_time_s") if resident else None,
        "resident_limiter": str(row.get("resident_limiter") or ""),
    }  # fmt: skip


def _rate(row: Mapping[str, Any], key: str) -> float | None:
    flop, time_s = number(row.get("flop")), number(row.get(key))
    return flop / time_s if flop and time_s else None


def _mean(value: Any) -> float | None:
    return number(value.get("mean")) if isinstance(value, Mapping) else number(value)


def front(report: Report) -> View | None:
    """Return deployments by throughput of a GPU and of a user, as points of a Pareto front."""
    points = []
    for at, row in enumerate(report.rows):
        tpot, rate = _mean(row.get("tpot_s")), number(row.get("tokens_per_s_per_gpu"))
        if tpot and tpot > 0 and rate is not None:
            users = number(row.get("concurrency"))
            points.append(
                {
                    "x": 1.0 / tpot, "y": rate, "row": at, "group": str(row.get("hardware") or ""),
                    "name": str(row.get("deployment") or row.get("plan") or ""), "users": users,
                    "ttft_s": _mean(row.get("ttft_s")), "limiter": str(row.get("limiter") or ""),
                    "met": row.get("slo_met"),
                }
            )  # fmt: skip
    if len(points) < 2:
        return None
    return {"kind": "front", "title": "Throughput of a GPU against that of a user", "points": points,
            "x": "tokens/s a user", "y": "tokens/s a GPU", "table": report.command}  # fmt: skip
