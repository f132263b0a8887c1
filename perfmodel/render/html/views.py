"""What a page shows, as data: tables, bars, a roofline, candidates, fronts and time lines, made of reports."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.report import Column, Report
from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import Timeline

View = dict[str, Any]
#: rows beyond these are left out of a page, and counted
MOST_ROWS = 20_000
#: events of a time line beyond these are left out, the shortest first
MOST_EVENTS = 400_000
_ROOFLINE = ("arithmetic_intensity_flop_per_byte", "attainable_flop_per_s", "ridge_point_flop_per_byte", "dtype")
_LAUNCH = "launch"


def report_views(report: Report) -> list[View]:
    """Return the views of a report: its sentences, the drawings that its rows allow, and its tables."""
    drawn = [
        view for view in (_bars(report), _roofline(report), _candidates(report), _front(report)) if view is not None
    ]
    tables = [table_view(report), *(table_view(table, key) for key, table in report.more.items())]
    return [_heading(report), *drawn, *tables]


def _heading(report: Report) -> View:
    notes = [*report.assumptions, *report.shown_notes]
    return {
        "kind": "heading",
        "title": report.title or f"perfmodel {report.command}",
        "decision": report.decision,
        "notes": notes,
        "context": {key: _plain(value) for key, value in report.context.items() if _is_short(value)},
    }


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool)) or (
        isinstance(value, (list, tuple))
        and len(value) < 12
        and all(isinstance(item, (str, int, float)) for item in value)
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def table_view(report: Report, key: str = "") -> View:
    """Return a table with every column; the texts of columns that format themselves stand beside their values."""
    columns = [column for column in report.columns if _has_values(column, report.rows)]
    custom = [column for column in columns if column.show is not None or column.show_row is not None]
    rows = []
    for row in list(report.rows)[:MOST_ROWS]:
        values = [_cell_value(row.get(column.key)) for column in columns]
        rows.append([*values, *(column.cell(row) for column in custom)])
    texts = {column.key: len(columns) + index for index, column in enumerate(custom)}
    return {
        "kind": "table",
        "key": key or report.command,
        "title": report.title if key else "Rows",
        "columns": [
            {
                "key": column.key, "title": column.heading, "unit": column.unit, "shown": column.shown,
                "text": texts.get(column.key), "prose": column.prose,
            }
            for column in columns
        ],
        "rows": rows,
        "left_out": max(0, len(report.rows) - MOST_ROWS),
    }  # fmt: skip


def _has_values(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get(column.key) not in (None, "", [], {}) for row in rows)


def _cell_value(value: Any) -> Any:
    """Return a value that JSON and the script can sort: lists and mappings become text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_cell_value(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(_cell_value(item)) for item in value)
    return str(value)


def _bars(report: Report) -> View | None:
    """Return time by dimension, with the evidence of each."""
    rows = [row for row in report.rows if row.get("dimension") and isinstance(row.get("time_s"), (int, float))]
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


def _roofline(report: Report) -> View | None:
    """Return the points of a roofline, with the ceilings that follow from them.

    At or above the ridge point an operator's attainable rate is the peak, below it intensity times bandwidth; rows that
    a launch limits say nothing about either.
    """
    rows = [row for row in report.rows if all(row.get(key) for key in _ROOFLINE)]
    rows = [row for row in rows if isinstance(row[_ROOFLINE[0]], (int, float)) and np.isfinite(row[_ROOFLINE[0]])]
    if not rows:
        return None
    ceilings: dict[tuple[str, str], dict[str, float]] = {}
    points = []
    for row in rows:
        intensity, attainable, ridge = (float(row[key]) for key in _ROOFLINE[:3])
        machine = str(row.get("hardware") or "")
        place = ceilings.setdefault((machine, str(row["dtype"])), {"peak": 0.0, "bandwidth": 0.0})
        if row.get("limiter") != _LAUNCH:
            peak = attainable if intensity >= ridge else attainable / intensity * ridge
            place["peak"] = max(place["peak"], peak)
            place["bandwidth"] = max(place["bandwidth"], peak / ridge)
        points.append(
            {
                "name": str(row.get("name") or row.get("op") or ""), "op": str(row.get("op") or ""),
                "dimensions": str(row.get("dimensions") or ""), "dtype": str(row["dtype"]), "machine": machine,
                "x": intensity, "attainable": attainable, "kernel": str(row.get("kernel") or ""),
                "achieved": row.get("achieved_flop_per_s"), "predicted": _rate(row), "limiter": str(row.get("limiter")),
            }
        )  # fmt: skip
    drawn = [
        {"machine": machine, "dtype": dtype, **rates} for (machine, dtype), rates in ceilings.items() if rates["peak"]
    ]
    return {"kind": "roofline", "title": "Roofline", "points": points, "ceilings": drawn}


def _rate(row: Mapping[str, Any]) -> float | None:
    flop, time_s = row.get("flop"), row.get("predicted_time_s")
    return float(flop) / float(time_s) if flop and time_s else None


def _candidates(report: Report) -> View | None:
    """Return the changes that the page lets a reader vary: time of the targets, speedup, days."""
    table = report.more.get("candidates") or report.more.get("ranking")
    if table is None:
        return None
    rows = [
        {
            "name": str(row.get("name")), "target_time_s": float(row["target_time_s"]),
            "speedup": _speedup(row), "days": float(row.get("dev_days") or 1.0),
            "targets": list(row.get("targets") or []),
        }
        for row in table.rows
        if row.get("target_time_s")
    ]  # fmt: skip
    total = sum(float(row["time_s"]) for row in report.rows if isinstance(row.get("time_s"), (int, float)))
    return {"kind": "candidates", "title": "What if", "rows": rows, "total_s": total} if rows and total > 0 else None


def _speedup(row: Mapping[str, Any]) -> float:
    """Return the local speedup of a candidate: time of its targets over what is left of it."""
    target, saved = float(row["target_time_s"]), float(row.get("time_saved_s") or 0.0)
    left = target - min(saved, 0.999 * target)
    return max(1.0, target / left) if left > 0 else 1000.0


def _front(report: Report) -> View | None:
    """Return deployments by throughput of a GPU and of a user, as points of a Pareto front."""
    points = []
    for row in report.rows:
        tpot, rate = row.get("tpot_s"), row.get("tokens_per_s_per_gpu")
        mean = tpot.get("mean") if isinstance(tpot, Mapping) else tpot
        if isinstance(mean, Mapping):
            mean = mean.get("value")
        if isinstance(mean, (int, float)) and mean > 0 and isinstance(rate, (int, float)):
            label = ", ".join(
                f"{key}={row[key]}" for key in ("hardware", "plan", "deployment", "concurrency", "qps") if row.get(key)
            )
            points.append({"x": 1.0 / float(mean), "y": float(rate), "name": label})
    if len(points) < 2:
        return None
    return {"kind": "front", "title": "Throughput of a GPU against that of a user", "points": points,
            "x": "tokens/s a user", "y": "tokens/s a GPU"}  # fmt: skip


def timeline_view(timeline: Timeline, entries: Sequence[str]) -> View | None:
    """Return the work of the GPUs over time, packed: start and duration [us], row, name and entry of each event.

    Parameters
    ----------
    timeline : of a profile.
    entries : names of the profile's entries.
    """
    gpu = timeline.gpu
    low, high = timeline.window_s
    chosen = np.flatnonzero(timeline.overlaps_window())
    if not chosen.size:
        return None
    left_out = max(0, chosen.size - MOST_EVENTS)
    if left_out:
        chosen = np.sort(chosen[np.argsort(-gpu.duration_s[chosen], kind="stable")[:MOST_EVENTS]])
    lanes, lane = np.unique(np.column_stack((gpu.device[chosen], gpu.stream[chosen])), axis=0, return_inverse=True)
    names, name = np.unique(gpu.name[chosen], return_inverse=True)
    entry = gpu.entry[chosen] if gpu.entry.size else np.full(chosen.size, -1)
    columns = {
        "start": (1e6 * (gpu.start_s[chosen] - low)).astype("<f4"),
        "length": (1e6 * gpu.duration_s[chosen]).astype("<f4"),
        "lane": lane.ravel().astype("<u2"),
        "name": name.ravel().astype("<u4"),
        "kind": gpu.category[chosen].astype("<u1"),
        "entry": entry.astype("<i4"),
    }
    return {
        "kind": "timeline",
        "title": "Time line",
        "window_us": 1e6 * (high - low),
        "count": int(chosen.size),
        "left_out": left_out,
        "lanes": [f"GPU {device} stream {stream}" for device, stream in lanes.tolist()],
        "names": [timeline.names[number] for number in names.tolist()],
        "kinds": [str(kind) for kind in EventKind],
        "entries": list(entries),
        "columns": {key: _packed(values) for key, values in columns.items()},
        "types": {key: values.dtype.str for key, values in columns.items()},
    }


def _packed(values: np.ndarray[Any, Any]) -> str:
    """Return an array as gzip in base64; equal arrays give equal texts."""
    return base64.b64encode(gzip.compress(values.tobytes(), compresslevel=6, mtime=0)).decode("ascii")
