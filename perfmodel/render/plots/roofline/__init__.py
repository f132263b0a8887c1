"""The roofline plot: ceilings of a machine, and the rates of operators and kernels under them.

Log-log axes as in Williams et al. 2009 (doi:10.1145/1498765.1498785). Hollow markers are attainable rates, filled
markers achieved rates; a line joins the kernels of one operator from the slowest to the fastest. Solid ceilings are
from the datasheet, dashed ceilings are sustained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perfmodel.core.hardware import Hardware
from perfmodel.core.roofline import ridge_point
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots.ceilings import Ceiling, Slope, ceilings, slopes
from perfmodel.render.plots.figure import (
    SlopeText,
    figure_format,
    label_right,
    new_figure,
    printable,
    save_figure,
    spread,
)
from perfmodel.render.plots.labels import LabelPlacer
from perfmodel.render.plots.palette import CEILING_COLOR, DASHES
from perfmodel.render.plots.roofline import layout
from perfmodel.render.plots.roofline.markers import Styles, draw_marks, legend_handles
from perfmodel.render.plots.roofline.points import Collected, Point, collect

__all__ = ["figure_format", "roofline_figure", "roofline_plot", "save_figure"]

#: cost of covering the name of a bandwidth: above that of any marks, so that two names never lie on each other
_NAMED = 100.0
#: how far the letters of such a name reach from its line [pt]
_LETTERS = 11.0


@dataclass(frozen=True)
class _Panel:
    """Contents of the axes of one machine."""

    hardware: Hardware
    collected: Collected
    ceilings: list[Ceiling]
    slopes: list[Slope]
    key: layout.Key = field(default_factory=layout.Key)

    @property
    def lines(self) -> Sequence[Ceiling | Slope]:
        return (*self.ceilings, *self.slopes)

    @property
    def title(self) -> str:
        dtypes = dict.fromkeys(mark.dtype for mark in self.collected.marks)
        return f"{printable(self.hardware.title, 60)}{': ' if dtypes else ''}{', '.join(dtypes)}"


def roofline_plot(
    hardware: Hardware, points: Iterable[Point], *, dtype: str | None = None, title: str | None = None
) -> Figure:
    """Return the roofline plot of one machine with operators and kernels.

    Parameters
    ----------
    hardware : the machine.
    points : predictions (a sweep gives many points), or rows of `analyze` or `bench` records. Rows without
        arithmetic or without a result are not drawn; a note below the plot names them.
    dtype : draw only points and ceilings of this dtype; by default all.
    title : heading above the machine's name.

    Raises
    ------
    UsageError
        When a point is neither a prediction nor a row of a record, or the dtype is unknown.
    """
    return roofline_figure([(hardware, points)], dtype=dtype, title=title)


def roofline_figure(
    pairs: Sequence[tuple[Hardware, Iterable[Point]]], *, dtype: str | None = None, title: str | None = None
) -> Figure:
    """Return one roofline plot for each machine, side by side with the same scales; see `roofline_plot`.

    Raises
    ------
    UsageError
        When there is no machine, and as in `roofline_plot`.
    """
    if not pairs:
        raise UsageError("a roofline plot needs a machine.")
    panels = []
    for hardware, points in pairs:
        collected = collect(points, dtype)
        engines = [(mark.engine, mark.dtype) for mark in collected.marks]
        roofs = ceilings(hardware, engines, dtype)
        panels.append(_Panel(hardware, collected, roofs, slopes(hardware), layout.key_of(collected)))
    styles = Styles.of([panel.collected.marks for panel in panels])
    handles = legend_handles(styles, any(line.sustained for panel in panels for line in panel.lines))
    names = [ceiling.label for panel in panels for ceiling in panel.ceilings]
    legend = [str(handle.get_label()) for handle in handles]
    places = layout.Layout.of([panel.key for panel in panels], legend, names, bool(title))
    figure = new_figure(places.width, places.height)
    if title:
        figure.text(0.5, places.heading, printable(title, 110), ha="center", va="center", fontsize=12, parse_math=False)
    limits = _limits(panels)
    for index, panel in enumerate(panels):
        axes = figure.add_axes(places.axes(index))
        _draw(axes, panel, styles, limits)
        places.write_below(axes, panel.key, handles)
    return figure


def _limits(panels: Sequence[_Panel]) -> tuple[float, float, float, float]:
    """Return the limits of both axes, with a margin around all points, ceilings and ridge points."""
    marks = [mark for panel in panels for mark in panel.collected.marks]
    roofs = [ceiling.flop_per_s for panel in panels for ceiling in panel.ceilings]
    rates = [rate for mark in marks for rate in (mark.attainable_flop_per_s, *(m.flop_per_s for m in mark.measured))]
    mains = [slope.bytes_per_s for panel in panels for slope in panel.slopes if slope.main]
    ridges = [
        float(ridge_point(ceiling.flop_per_s, slope.bytes_per_s))
        for panel in panels
        for ceiling in panel.ceilings
        for slope in panel.slopes
        if slope.main and not ceiling.sustained
    ]
    across = [mark.intensity for mark in marks] + ridges
    left = min([mark.intensity / 4 for mark in marks] + [ridge / 60 for ridge in ridges], default=0.1)
    right = 8 * max(across, default=100.0)
    top = 3 * max(rates + roofs, default=1e12)
    bottom = min([rate / 3 for rate in rates] + [left * rate for rate in mains] + [top / 1e3])
    return left, right, bottom, top


def _draw(axes: Axes, panel: _Panel, styles: Styles, limits: tuple[float, float, float, float]) -> None:
    axes.set(xscale="log", yscale="log", xlim=limits[:2], ylim=limits[2:])
    axes.set_xlabel("Arithmetic intensity [FLOP/B]")
    axes.set_ylabel("Performance [FLOP/s]")
    axes.set_title(panel.title, fontsize=11, pad=26, parse_math=False)
    for axis, text in ((axes.xaxis, _plain), (axes.yaxis, _rate)):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_major_formatter(FuncFormatter(text))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="0.92", linewidth=0.6, zorder=0)
    placer = LabelPlacer(axes)
    _draw_ceilings(axes, panel, placer)
    _draw_ridges(axes, panel, placer)
    draw_marks(axes, panel.collected.marks, styles, placer)
    _name_slopes(axes, panel, placer)
    layout.name_marks(panel.collected.marks, panel.key, placer)


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e6 else f"1e{round(math.log10(value))}"


def _rate(value: float, _position: int | None = None) -> str:
    return format_si(value, "FLOP/s").removesuffix("FLOP/s").strip()


def _draw_ceilings(axes: Axes, panel: _Panel, placer: LabelPlacer) -> None:
    """Draw the slopes up to the highest ceiling, and the ceilings with their labels to the right of the axes."""
    right = axes.get_xlim()[1]
    highest = max((ceiling.flop_per_s for ceiling in panel.ceilings), default=axes.get_ylim()[1])
    fastest = max((slope.bytes_per_s for slope in panel.slopes), default=math.inf)
    lines = [(*slope.visible(axes, highest), slope.sustained, slope.main) for slope in panel.slopes]
    for ceiling in panel.ceilings:
        start = max(axes.get_xlim()[0], ceiling.flop_per_s / fastest)
        lines.append(((start, ceiling.flop_per_s), (right, ceiling.flop_per_s), ceiling.sustained, True))
    for start_point, end_point, sustained, main in lines:
        axes.plot(
            *zip(start_point, end_point, strict=True),
            color=CEILING_COLOR if main else "0.5",
            linewidth=0.9 if sustained or not main else 1.5,
            linestyle=DASHES if sustained else "-",
            zorder=2,
        )
        placer.block_line((start_point, end_point), 1.5)
    heights = [float(placer.points_of((right, ceiling.flop_per_s))[1]) for ceiling in panel.ceilings]
    label_right(axes, right, [(one.label, one.flop_per_s) for one in panel.ceilings], heights, 12)


def _draw_ridges(axes: Axes, panel: _Panel, placer: LabelPlacer) -> None:
    """Mark the ridge point of each ceiling and main memory, with its value above the axes."""
    main = next((slope for slope in panel.slopes if slope.main and not slope.sustained), None)
    if main is None:
        return
    roofs = [ceiling for ceiling in panel.ceilings if not ceiling.sustained]
    ridges = [float(ridge_point(ceiling.flop_per_s, main.bytes_per_s)) for ceiling in roofs]
    axes.plot(
        ridges, [c.flop_per_s for c in roofs], ls="", marker="o", ms=3.5, color=CEILING_COLOR, zorder=3, gid="ridge"
    )
    top = axes.get_ylim()[1]
    figure = axes.get_figure(root=True)
    assert figure is not None
    across = [float(axes.transData.transform((ridge, top))[0]) * 72 / figure.dpi for ridge in ridges]
    for ridge, ceiling, place, moved in zip(ridges, roofs, across, spread(across, 34.0), strict=True):
        axes.plot([ridge, ridge], [ceiling.flop_per_s, top], color="0.4", ls=":", lw=0.8, zorder=1)
        placer.block_line([(ridge, ceiling.flop_per_s), (ridge, top)], 2.0)
        axes.annotate(
            format_si(ridge, ""),
            (ridge, top),
            (moved - place, 12),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.4", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
        )
    axes.annotate(
        "ridge point\n[FLOP/B]", (0, 1), (-8, 12), "axes fraction", "offset points", ha="right", va="center", fontsize=8
    )


def _has_room_below(slope: Slope, slopes: Sequence[Slope]) -> bool:
    """Return whether the next line below is further away than the next above, on a scale of logarithms."""
    above = [other.bytes_per_s / slope.bytes_per_s for other in slopes if other.bytes_per_s > slope.bytes_per_s]
    under = [slope.bytes_per_s / other.bytes_per_s for other in slopes if other.bytes_per_s < slope.bytes_per_s]
    return min(under, default=math.inf) > min(above, default=math.inf)


def _drawn_length(axes: Axes, slope: Slope, highest_flop_per_s: float, placer: LabelPlacer) -> float:
    """Return the length of a line as it is drawn [pt]."""
    first, last = placer.points_of(slope.visible(axes, highest_flop_per_s))
    return float(np.hypot(*(last - first)))


def _name_slopes(axes: Axes, panel: _Panel, placer: LabelPlacer) -> None:
    """Write each bandwidth along its line where it covers least and leaves marks room; some sustained ones below it.

    A line that is shorter than its name has none, since the frame would cut it. Where the axes reach so far that the
    slopes are a corner of them, only the main memory is named.
    """
    highest = max((ceiling.flop_per_s for ceiling in panel.ceilings), default=axes.get_ylim()[1])
    cornered = any(
        _drawn_length(axes, slope, highest, placer) < 2 * placer.width_of(slope.label, 8.0)
        for slope in panel.slopes
        if slope.main
    )
    for slope in panel.slopes:
        start, end = slope.visible(axes, highest)
        first, last = placer.points_of((start, end))
        along = (last - first) / np.hypot(*(last - first))
        below = slope.sustained and _has_room_below(slope, panel.slopes)
        across = np.array([-along[1], along[0]]) * (-9.0 if below else 7.0)
        length = placer.width_of(slope.label, 8.0)
        room = _drawn_length(axes, slope, highest, placer) - length
        if not slope.main and (room < 0 or cornered):
            continue
        # letters above a steep line lean over what is left of it
        least = 4.0 if below else max(4.0, (1.0 + _LETTERS * along[1]) / along[0])
        choices = np.linspace(least, max(least, room), 120)
        steps = np.arange(0, length, 5.0)[:, None] * along + across
        costs = [placer.crowding(first + choice * along + steps, 7.0, 18.0) for choice in choices]
        begin = first + float(choices[int(np.argmin(costs))]) * along
        aside = across * (0.4 if below else 0.25)
        line = placer.data_of([begin + aside, begin + aside + 50 * along])
        SlopeText(
            axes,
            (line[0, 0], line[0, 1]),
            (line[1, 0], line[1, 1]),
            slope.label,
            va="top" if below else "bottom",
            fontsize=8,
            color=CEILING_COLOR if slope.main else "0.35",
            zorder=6,
        )
        placer.block(begin + steps, 5.0, _NAMED)
