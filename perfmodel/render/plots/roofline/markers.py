"""Markers of a roofline plot: shapes and colours, lines that join the kernels of one operator, legend."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from perfmodel.render.plots.ceilings import Place
from perfmodel.render.plots.figure import printable
from perfmodel.render.plots.labels import LabelPlacer
from perfmodel.render.plots.palette import CEILING_COLOR, COLORS, DASHES, PALETTE, SHAPES, shared_names
from perfmodel.render.plots.roofline import layout
from perfmodel.render.plots.roofline.points import Mark

#: colour of hollow markers if kernels were measured
_NEUTRAL = "0.35"
_SIZE = 7.0
#: more markers are embedded in an SVG or PDF as one bitmap
_VECTOR_MARKERS = 2000
#: smallest distance of two kernels' markers with an arrow head between them [pt]
_ROOM_FOR_HEAD = 16.0
#: separates two lines within a series of points
_GAP = (math.nan, math.nan)


@dataclass(frozen=True)
class Styles:
    """A shape for each operator; a colour for each kernel, or for each operator if nothing was measured.

    No two share one. Kernels that are more than there are colours are told apart by whose they are alone, and of more
    operators than there are shapes those with the fewest points share the last.

    Attributes
    ----------
    ops : name in the legend of each operator's shape.
    kernels : name in the legend of each kernel's colour.
    """

    ops: Mapping[str, str]
    kernels: Mapping[str, str]

    @classmethod
    def of(cls, panels: Iterable[Iterable[Mark]]) -> Styles:
        """Return the shapes and colours of the operators and kernels of all panels, in order of appearance."""
        marks = [mark for panel in panels for mark in panel]
        kernels = {measured.kernel: measured.kind for mark in marks for measured in mark.measured}
        if len(kernels) <= len(PALETTE):
            kernels = {name: name for name in kernels}
        return cls(shared_names(Counter(mark.op for mark in marks), len(SHAPES)), kernels)

    def color(self, op: str, kernel: str | None = None) -> str:
        """Return the colour of a kernel's filled marker, or of an operator's hollow marker."""
        if kernel is not None:
            return PALETTE[_place(self.kernels, kernel)]
        return _NEUTRAL if self.kernels else COLORS[_place(self.ops, op) % len(COLORS)]

    def marker(self, op: str, kernel: str | None, size: float) -> Line2D:
        """Return a marker without positions: filled for a kernel, else hollow."""
        color = self.color(op, kernel)
        return Line2D(
            [],
            [],
            linestyle="",
            marker=SHAPES[_place(self.ops, op)],
            markersize=size,
            markeredgecolor="white" if kernel is not None else color,
            markerfacecolor=color if kernel is not None else "none",
        )


def _place(names: Mapping[str, str], name: str) -> int:
    """Return the place of a name's label among the different labels."""
    return list(dict.fromkeys(names.values())).index(names[name])


def legend_handles(styles: Styles, sustained: bool) -> list[Line2D]:
    """Return the legend: shapes of operators, colours of kernels, and the meaning of hollow and dashed."""
    handles = []
    for label, op in {label: op for op, label in styles.ops.items()}.items():
        handle = styles.marker(op, None, _SIZE)
        handle.set_label(label)
        handles.append(handle)
    # A kernel's colour is shown as a bar: a marker would look like an operator's.
    handles += [
        Line2D([], [], color=styles.color("", kernel), linewidth=6, label=printable(label, 40), solid_capstyle="butt")
        for label, kernel in {label: kernel for kernel, label in styles.kernels.items()}.items()
    ]
    if styles.ops:
        handles.append(_circle(False, "hollow: attainable"))
    if styles.kernels:
        handles.append(_circle(True, "filled: achieved"))
    if sustained:
        handles.append(Line2D([], [], color=CEILING_COLOR, linewidth=1.5, label="datasheet"))
        handles.append(Line2D([], [], color=CEILING_COLOR, linewidth=0.9, linestyle=DASHES, label="sustained"))
    return handles


def _circle(filled: bool, label: str) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="",
        marker="o",
        markersize=_SIZE,
        color=_NEUTRAL,
        markerfacecolor=_NEUTRAL if filled else "none",
        label=label,
    )


def draw_marks(axes: Axes, marks: Sequence[Mark], styles: Styles, placer: LabelPlacer) -> None:
    """Draw attainable rates hollow and achieved rates filled, with lines from the slowest kernel to the bound."""
    hollow: dict[str, list[Place]] = {}
    filled: dict[tuple[str, str], list[Place]] = {}
    for mark in marks:
        hollow.setdefault(mark.op, []).append((mark.intensity, mark.attainable_flop_per_s))
        for measured in mark.measured:
            filled.setdefault((mark.op, measured.kernel), []).append((mark.intensity, measured.flop_per_s))
    _join(axes, marks, placer)
    size = 7.0 if len(marks) <= layout.MOST_NUMBERS else 5.0
    for op, places in hollow.items():
        marker = styles.marker(op, None, size)
        marker.set(zorder=4, gid=f"attainable {op}")
        _add_markers(axes, marker, places, placer)
    for (op, kernel), places in filled.items():
        marker = styles.marker(op, kernel, size - 0.5)
        marker.set(zorder=5, gid=f"achieved {op} {kernel}")
        _add_markers(axes, marker, places, placer)


def _join(axes: Axes, marks: Sequence[Mark], placer: LabelPlacer) -> None:
    """Join the kernels of each operator from the slowest to the fastest, and the fastest to the attainable rate.

    Lines between kernels are dark, with an arrow head if there is space; the line to the bound is light.
    """
    path: list[Place] = []
    left: list[Place] = []
    for mark in marks:
        if mark.measured:
            steps = [(mark.intensity, rate) for rate in sorted(measured.flop_per_s for measured in mark.measured)]
            path += [*steps, _GAP]
            left += [steps[-1], (mark.intensity, mark.attainable_flop_per_s), _GAP]
    if not path:
        return
    axes.plot(*np.transpose(left), color="0.7", linewidth=0.8, zorder=3, gid="joined")
    axes.plot(*np.transpose(path), color="0.3", linewidth=0.9, zorder=3, gid="variants")
    heads = [_middle(*step) for step in _steps(path) if _height(placer, *step) > _ROOM_FOR_HEAD]
    if heads:
        axes.plot(*np.transpose(heads), ls="", marker="^", ms=3.5, mec="none", color="0.3", zorder=3, gid="faster")
    if len(marks) <= layout.MOST_NUMBERS:
        for step in (*_steps(path), *_steps(left)):
            placer.block_line(step, 0.5)


def _steps(line: Sequence[Place]) -> list[tuple[Place, Place]]:
    """Return the segments of a line with gaps."""
    return [(start, end) for start, end in itertools.pairwise(line) if _GAP not in (start, end)]


def _middle(start: Place, end: Place) -> Place:
    """Return the midpoint on a logarithmic axis."""
    return start[0], math.sqrt(start[1] * end[1])


def _height(placer: LabelPlacer, start: Place, end: Place) -> float:
    """Return the height of a step [pt]."""
    low, high = placer.points_of([start, end])[:, 1]
    return float(high - low)


def _add_markers(axes: Axes, marker: Line2D, places: Sequence[tuple[float, float]], placer: LabelPlacer) -> None:
    marker.set_data(*np.transpose(places))
    marker.set(clip_on=False, rasterized=len(places) > _VECTOR_MARKERS)
    axes.add_line(marker)
    placer.mark(placer.points_of(places), marker.get_markersize() / 2 + 1)
