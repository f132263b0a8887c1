"""Plot of achieved bandwidth over size: which memory level serves a kernel, and what share of its bandwidth it uses."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_binary
from perfmodel.errors import UsageError
from perfmodel.render.plots.ceilings import Slope, slopes
from perfmodel.render.plots.figure import drawable, label_right, spread
from perfmodel.render.plots.palette import CEILING_COLOR, DASHES, PALETTE, SHAPES
from perfmodel.render.plots.records import Pairs
from perfmodel.render.plots.records.rows import legend_entries, line_labels, rate_figure, rows_of_dtype, scale_rates

#: margins beside the axes, for the names of levels and of capacities [inches]
_RIGHT, _TOP = 2.0, 0.72
#: a cache's bandwidth is drawn if it is below this multiple of the largest achieved rate and of main memory's bandwidth
_NEAR = 3.0
_POINTS_PER_INCH = 72.0


def record_plot(pairs: Pairs, *, dtype: str | None, title: str | None) -> Figure:
    """Return the bandwidth plot of the rows of one machine.

    Raises
    ------
    UsageError
        When the rows belong to several machines or specifications of one, or no row has a bandwidth.
    """
    if len(pairs) > 1:
        of_rows = {str(row["hardware"]) for _, rows in pairs for row in rows}
        if len(of_rows) == 1:
            (name,) = of_rows
            raise UsageError(
                f"the records have {len(pairs)} specifications of {name}, which differ, as two calibrations do.",
                place="--kind bandwidth",
                remedy=f"Draw one at a time, or all under the figures of the first: --on {name}.",
            )
        names = ", ".join(machine.name for machine, _ in pairs)
        raise UsageError(
            f"the records belong to several machines: {names}.", place="--kind bandwidth", remedy="Draw one at a time."
        )
    ((machine, rows),) = pairs
    return bandwidth_plot(rows_of_dtype(rows, dtype), machine, title)


@dataclass
class _Line:
    """The points of one kernel on one operator: working set [B] and achieved rate [B/s]."""

    label: str
    op: str
    points: list[tuple[float, float]] = field(default_factory=list)


def bandwidth_plot(rows: Iterable[Mapping[str, Any]], hardware: Hardware, title: str | None = None) -> Figure:
    """Return achieved B/s over the working set, a line for each kernel, with the machine's bandwidths and cache sizes.

    The achieved rate counts compulsory traffic, each tensor once. A rate above the bandwidth of main memory means that
    a cache holds the data. Compute-bound rows do not show a bandwidth; they are left out, and a note counts them.
    More lines than there are colours have the colour and the marker of their operator.

    Parameters
    ----------
    rows : rows of a bench record.
    hardware : the machine.
    title : heading instead of the machine's name.

    Raises
    ------
    UsageError
        When no row can be drawn.
    """
    lines, notes = _collect(rows)
    if not lines:
        why = f" ({notes[0].removeprefix('Not drawn: ').rstrip('.')})" if notes else ""
        remedy = "Measure with: perfmodel bench elementwise numel=4096..268435456 -o record.json."
        raise UsageError(f"no row has a bandwidth to draw{why}.", remedy=remedy)
    levels = slopes(hardware)
    entries = legend_entries([(line.label, line.op, len(line.points)) for line in lines], notes)
    handles = _handles(lines, entries, any(level.sustained for level in levels))
    heading = title or f"Bandwidth over size: {hardware.title or hardware.name}"
    figure, axes = rate_figure(handles, notes, heading, right=_RIGHT, top=_TOP)
    _scale(axes, lines, levels)
    _draw_levels(axes, levels)
    _draw_capacities(axes, hardware)
    named = {str(handle.get_label()): handle for handle in handles}
    for line in lines:
        drawn = copy.copy(named[entries[line.label]])
        drawn.set_data(*np.transpose(line.points))
        drawn.set(zorder=4, gid=f"achieved {line.label}")
        axes.add_line(drawn)
    return figure


def _collect(rows: Iterable[Mapping[str, Any]]) -> tuple[list[_Line], list[str]]:
    """Return the lines to draw, and notes about the rows that are left out."""
    left: Counter[str] = Counter()
    usable = []
    for row in rows:
        if row.get("status", "ok") not in ("ok", None):
            left[str(row["status"])] += 1
        elif row.get("limiter") == "compute":
            left["compute-bound"] += 1
        elif not drawable(row.get("achieved_bytes_per_s"), row.get("working_set_bytes")):
            left["without a measured bandwidth"] += 1
        else:
            usable.append(row)
    lines: dict[str, _Line] = {}
    for row, label in zip(usable, line_labels(usable), strict=True):
        line = lines.setdefault(label, _Line(label, str(row.get("op"))))
        line.points.append((float(row["working_set_bytes"]), float(row["achieved_bytes_per_s"])))
    for line in lines.values():
        line.points.sort()
    reasons = ", ".join(f"{count} {reason}" for reason, count in left.items())
    return list(lines.values()), [f"Not drawn: {reasons}."] if reasons else []


def _scale(axes: Axes, lines: Sequence[_Line], levels: Sequence[Slope]) -> None:
    """Set limits and ticks so that all points, and all bandwidths that are not far above them, are visible."""
    sizes = [size for line in lines for size, _ in line.points]
    rates = [rate for line in lines for _, rate in line.points]
    main = [level.bytes_per_s for level in levels if level.main]
    near = [level.bytes_per_s for level in levels if level.bytes_per_s < _NEAR * max(rates + main)]
    low, high = min(rates), max(rates + main + near)
    scale_rates(axes, sizes, low, high)
    axes.set_xlabel("working set", fontsize=9)
    axes.set_ylabel("achieved bandwidth", fontsize=9)


def _draw_levels(axes: Axes, levels: Sequence[Slope]) -> None:
    """Draw the bandwidth of each level as a horizontal line, with its label to the right of the axes."""
    top = axes.get_ylim()[1]
    shown = [level for level in levels if level.bytes_per_s <= top]
    right = axes.get_xlim()[1]
    for level in shown:
        color = CEILING_COLOR if level.main else "0.5"
        dashes = DASHES if level.sustained else "-"
        axes.axhline(
            level.bytes_per_s, color=color, lw=0.9 if level.sustained else 1.4, ls=dashes, zorder=2, gid="level"
        )
    heights = [_height_points(axes, level.bytes_per_s) for level in shown]
    labels = [(f"{level.label}{' sustained' if level.sustained else ''}", level.bytes_per_s) for level in shown]
    label_right(axes, right, labels, heights, 10)


def _height_points(axes: Axes, rate: float) -> float:
    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = float(axes.transData.transform((axes.get_xlim()[0], rate))[1])
    return pixels * _POINTS_PER_INCH / figure.dpi


def _draw_capacities(axes: Axes, hardware: Hardware) -> None:
    """Mark the size of each cache by a vertical line, with its label above the axes."""
    low, high = axes.get_xlim()
    sizes = [
        (level.name.upper(), level.capacity_bytes)
        for level in hardware.caches
        if level.capacity_bytes and low < level.capacity_bytes < high
    ]
    figure = axes.get_figure(root=True)
    assert figure is not None
    top = axes.get_ylim()[1]
    across = [float(axes.transData.transform((size, top))[0]) * _POINTS_PER_INCH / figure.dpi for _, size in sizes]
    for (name, size), place, moved in zip(sizes, across, spread(across, 70.0), strict=True):
        axes.axvline(size, color="0.4", lw=0.8, ls=":", zorder=1, gid="capacity")
        axes.annotate(
            f"{name} {format_binary(size)}",
            (size, top),
            (moved - place, 10),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.4", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
        )


def _handles(lines: Sequence[_Line], entries: Mapping[str, str], sustained: bool) -> list[Line2D]:
    """Return the legend: one entry for each kernel, of many lines for each operator, and the meaning of dashes."""
    ops = list(dict.fromkeys(line.op for line in lines))
    by_label = {line.label: line for line in lines}
    shown = {entry: by_label[label] for label, entry in entries.items()}
    handles = [
        Line2D(
            [],
            [],
            color=PALETTE[index % len(PALETTE)],
            marker=SHAPES[ops.index(line.op) % len(SHAPES)],
            markersize=5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            lw=1.2 if len(shown) == len(lines) else 0.7,
            label=entry,
        )
        for index, (entry, line) in enumerate(shown.items())
    ]
    if sustained:
        handles.append(Line2D([], [], color=CEILING_COLOR, lw=1.4, label="datasheet"))
        handles.append(Line2D([], [], color=CEILING_COLOR, lw=0.9, ls=DASHES, label="sustained"))
    return handles
