"""The markers of a roofline plot, and the lines that join the kernels of one operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from perfmodel.render.plots import _roofline_layout as layout
from perfmodel.render.plots._roofline_ceilings import Place
from perfmodel.render.plots._roofline_points import Mark
from perfmodel.render.plots._roofline_styles import Styles
from perfmodel.render.plots.figure import LabelPlacer

#: Beyond so many markers an SVG or PDF draws them as one picture.
_VECTOR_MARKERS = 2000
#: Distance of two kernels' markers from which an arrow head fits between them [pt].
_ROOM_FOR_HEAD = 16.0
#: Ends a line within a series of points.
_GAP = (math.nan, math.nan)


def draw_marks(axes: Axes, marks: Sequence[Mark], styles: Styles, placer: LabelPlacer) -> None:
    """Draw attainable rates hollow and achieved ones filled, with the path from the slowest kernel to the bound."""
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
    """Join the kernels of each operator from the slowest to the fastest, and that one to what is attainable.

    The path is dark, with an arrow head on each step that has room for one; what is left to the bound is light.
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
    """Return the pieces of a line with gaps."""
    return [(start, end) for start, end in itertools.pairwise(line) if _GAP not in (start, end)]


def _middle(start: Place, end: Place) -> Place:
    """Return the point half-way up on a logarithmic axis."""
    return start[0], math.sqrt(start[1] * end[1])


def _height(placer: LabelPlacer, start: Place, end: Place) -> float:
    """Return the height of a step [pt]."""
    low, high = placer.points_of([start, end])[:, 1]
    return float(high - low)


def _add_markers(axes: Axes, marker: Line2D, places: Sequence[tuple[float, float]], placer: LabelPlacer) -> None:
    marker.set_data(*np.transpose(places))
    marker.set(clip_on=False, rasterized=len(places) > _VECTOR_MARKERS)
    axes.add_line(marker)
    placer.block(placer.points_of(places), marker.get_markersize() / 2 + 1, 2.0)
