"""Lines of a page: loads that were served, scaling, sweeps, and what a training step does over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.panel import Line, Panel
from perfmodel.core.report import Report, number
from perfmodel.render.html.packing import View
from perfmodel.render.html.timeline import pipeline_view
from perfmodel.training.timeline import held_over_time, passes_of

#: passes of a pipeline that a page draws
_MOST_PASSES = 50_000


def panels(report: Report) -> list[View]:
    """Return the lines of a report: its own, and those that its rows allow."""
    return [lines_view(panel) for panel in (*report.panels, *_loads(report), *_scaling(report), *_sweep(report))]


def pipeline(report: Report) -> list[View]:
    """Return the micro batches of a training step by stage, and the memory of its first and last stage over it."""
    facts = report.context.get("pipeline")
    if not isinstance(facts, Mapping) or not report.rows:
        return []
    passes = passes_of(facts, _MOST_PASSES)
    end_s = number(report.rows[0].get("time_s"))
    if not passes or not end_s:
        return []
    views = [pipeline_view(passes, end_s)]
    memory = report.more.get("memory")
    if memory is None:
        return views
    stages = {"first": 0, "last": max(one.gpu for one in passes)}
    lines = []
    for name, gpu in stages.items():
        parts = {str(row.get("part")): number(row.get(name)) or 0.0 for row in memory.rows}
        if sum(parts.values()):
            lines.append((name, *held_over_time(parts, gpu, passes, end_s)))
    return [*views, lines_view(_held(lines, report.rows[0]))] if lines else views


def _held(lines: Sequence[tuple[str, Any, Any]], row: Mapping[str, Any]) -> Panel:
    """Return what stages hold over time as one panel: each value at the times of all."""
    times = np.unique(np.concatenate([at for _, at, _ in lines]))
    drawn = [Line("each GPU" if len(lines) == 1 else f"{name} stage", _at(times, at, held)) for name, at, held in lines]
    capacity = number(row.get("memory_capacity_bytes"))
    if capacity:
        drawn.append(Line("capacity", [capacity] * times.size))
    return Panel("Memory of a GPU over the step", times.tolist(), "time [s]", "iB", tuple(drawn), steps=True)


def _at(times: np.ndarray[Any, Any], at: np.ndarray[Any, Any], held: np.ndarray[Any, Any]) -> list[float | None]:
    place = np.clip(np.searchsorted(at, times, side="right") - 1, 0, held.size - 1)
    return [float(value) for value in held[place]]


def lines_view(panel: Panel) -> View:
    """Return a panel of lines."""
    return {
        "kind": "lines", "title": panel.title, "x": [float(at) for at in panel.x], "x_label": panel.x_label,
        "unit": panel.unit, "steps": panel.steps,
        "series": [
            {"name": line.name, "values": list(line.values), "low": list(line.low), "high": list(line.high)}
            for line in panel.lines
        ],
    }  # fmt: skip


def _loads(report: Report) -> list[Panel]:
    """Return time to first token, time per token and throughput over the load, of loads that were served."""
    if report.command != "serve":
        return []
    by = "qps" if any(row.get("load") == "qps" for row in report.rows) else "concurrency"
    rows = [row for row in report.rows if number(row.get(by))]
    places = sorted({float(row[by]) for row in rows})
    if len(places) < 2:
        return []
    label = "requests/s" if by == "qps" else "users"
    shown = {
        "ttft_s": ("Time to first token", "s"),
        "tpot_s": ("Time per output token", "s"),
        "output_tokens_per_s": ("Output tokens/s", ""),
    }
    return [
        Panel(f"{title} over the load", places, label, unit, tuple(_load_lines(rows, by, places, key)))
        for key, (title, unit) in shown.items()
    ]


def _load_lines(rows: Sequence[Mapping[str, Any]], by: str, places: Sequence[float], key: str) -> list[Line]:
    lines = []
    for name in dict.fromkeys(str(row.get("deployment")) for row in rows):
        own = {float(row[by]): row for row in rows if str(row.get("deployment")) == name}
        ends = [[_end(own[at], key, end) if at in own else None for at in places] for end in ("", "_low", "_high")]
        known = any(value is not None for value in ends[1])
        lines.append(Line(name, ends[0], ends[1] if known else (), ends[2] if known else ()))
    return lines


def _end(row: Mapping[str, Any], key: str, end: str) -> float | None:
    value = row.get(key)
    return number(value.get(f"mean{end}")) if isinstance(value, Mapping) else number(row.get(f"{key}{end}"))


def _scaling(report: Report) -> list[Panel]:
    """Return speedup over GPUs beside the ideal, of a run on several numbers of them."""
    rows = [row for row in report.rows if number(row.get("gpus")) and number(row.get("speedup"))]
    if "serial_fraction" not in report.context or len(rows) < 2:
        return []
    gpus = [float(row["gpus"]) for row in rows]
    lines = (Line("expected", [float(row["speedup"]) for row in rows]), Line("ideal", [at / gpus[0] for at in gpus]))
    return [Panel("Speedup over GPUs", gpus, "GPUs", "x", lines)]


def _sweep(report: Report) -> list[Panel]:
    """Return time over size where the rows are one operator in sizes that differ in one dimension."""
    rows = [row for row in report.rows if isinstance(row.get("params"), Mapping) and number(row.get("bound_time_s"))]
    if len(rows) < 3 or len({(row.get("op"), row.get("hardware"), row.get("dtype")) for row in rows}) > 1:
        return []
    first = rows[0]["params"]
    varied = [key for key in first if len({str(row["params"].get(key)) for row in rows}) > 1]
    if len(varied) != 1 or len({number(row["params"].get(varied[0])) for row in rows} - {None}) != len(rows):
        return []
    (dim,) = varied
    rows = sorted(rows, key=lambda row: float(row["params"][dim]))
    places = [float(row["params"][dim]) for row in rows]

    def of(key: str) -> list[float | None]:
        return [number(row.get(key)) for row in rows]

    expected = Line("expected", of("predicted_time_s"), of("predicted_time_low_s"), of("predicted_time_high_s"))
    lines = [Line("bound", of("bound_time_s")), expected]
    if any(number(row.get("measured_time_s")) for row in rows):
        lines.append(Line("measured", of("measured_time_s")))
    return [Panel(f"Time of {rows[0].get('op')} over {dim}", places, dim, "s", tuple(lines))]
