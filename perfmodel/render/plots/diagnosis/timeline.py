"""Plot of a traced run over time: GPU streams, idle reasons, calls of CPU threads; the whole run and its busiest part.

A lane is drawn as some hundred rectangles, or as the fraction of some hundred bins that its events cover, so that the
time to draw does not grow with the number of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.gaps import IdleReason
from perfmodel.diagnosis.result import Diagnosis
from perfmodel.errors import expect
from perfmodel.profile.timeline import Floats, Timeline
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.diagnosis.lanes import (
    Lane,
    Mark,
    Window,
    annotation_rows,
    busiest_stretch,
    fractions,
    lanes,
)
from perfmodel.render.plots.figure import new_figure

#: width of the figure, margins, heights of a lane, a row of annotations, a time axis and a title [inches]
WIDTH, _LEFT, _RIGHT, _LANE, _MARK, _BELOW, _TITLE = 11.0, 1.35, 0.25, 0.34, 0.2, 0.5, 0.26
#: height of the legend [inches]
LEGEND = 0.4
_MOST_IN_A_ROW = 9
#: most intervals of a lane that are drawn as rectangles, and most of them that may share a bin; with more, the bins
#: are filled by the fraction that the intervals cover
_MOST_RECTANGLES, _MOST_CROWDED, _BINS = 700, 30, 900
#: smallest height of a bin with any event, as a fraction of the lane
_LEAST_SHARE = 0.1
#: width of a character of the labels in lanes [inches], the shortest label [characters], and the size of its text [pt]
_LETTER, _SHORTEST, _LABEL_SIZE = 0.053, 5, 6.0
_LEGEND_NAMES = {
    Dimension.COMPUTE: "compute-bound kernel",
    Dimension.MEMORY: "memory-bound kernel",
    Dimension.OTHER: "other kernel",
    Dimension.TRANSFER: "copy",
    Dimension.LAUNCH: "launch",
    Dimension.SYNC: "sync",
    IdleReason.INPUT: "input pipeline",
    IdleReason.HOST_WORK: "idle: host work",
    IdleReason.UNTRACED: "idle: untraced host code",
    IdleReason.DELAYED: "idle: delayed start",
    styles.OPERATOR: "CPU in an operator",
}


@dataclass(frozen=True)
class TimelineBlock:
    """Contents and size of the panels of a time line.

    Attributes
    ----------
    timeline : the traced run.
    lanes : lanes from top to bottom.
    marks : rows of annotations above the lanes, the outermost first.
    zoom : the busiest stretch [s], or None if the whole window is readable.
    """

    timeline: Timeline
    lanes: tuple[Lane, ...]
    marks: tuple[tuple[Mark, ...], ...]
    zoom: Window | None

    @property
    def windows(self) -> list[Window]:
        """Start and end of each panel, from top to bottom [s]."""
        return [self.timeline.window_s, self.zoom] if self.zoom else [self.timeline.window_s]

    @property
    def panel_inches(self) -> float:
        """Height of the axes of a panel [inches]."""
        return _MARK * len(self.marks) + _LANE * sum(lane.height for lane in self.lanes)

    @property
    def height_inches(self) -> float:
        """Height of all panels and their legend [inches]."""
        return len(self.windows) * (_TITLE + self.panel_inches + _BELOW) + LEGEND


def timeline_plot(diagnosis: Diagnosis) -> Figure:
    """Return a traced run over time: the whole window, and below it the stretch in which the GPUs are busiest.

    From top to bottom: annotated ranges (ProfilerStep), streams of each GPU with kernels coloured by their limiter,
    idle time of each GPU coloured by its reason, and CPU threads with their calls of the runtime.

    Raises
    ------
    UsageError
        When the profile has no time line, and for what is no diagnosis.
    """
    check_diagnosis(diagnosis)
    block = timeline_block(diagnosis)
    figure = new_figure(WIDTH, block.height_inches + 0.1)
    draw_block(figure, block, 0.1)
    return figure


def check_diagnosis(diagnosis: object) -> None:
    """Raise a UsageError for what is no diagnosis."""
    expect(diagnosis, Diagnosis, "diagnosis", place="diagnosis", remedy="Write pm.diagnose(profile).")


def timeline_block(diagnosis: Diagnosis) -> TimelineBlock:
    """Return the panels of a diagnosis.

    Raises
    ------
    UsageError
        When the profile has no time line.
    """
    rows = lanes(diagnosis)
    timeline = diagnosis.profile.timeline
    assert timeline is not None
    return TimelineBlock(timeline, tuple(rows), annotation_rows(timeline), busiest_stretch(timeline))


def draw_block(figure: Figure, block: TimelineBlock, top_inches: float) -> None:
    """Draw the panels and their legend into a figure, from ``top_inches`` below its upper edge."""
    width, height = figure.get_size_inches()
    at = top_inches
    for window in block.windows:
        at += _TITLE
        place = (_LEFT / width, 1 - (at + block.panel_inches) / height, 0, block.panel_inches / height)
        axes = figure.add_axes((place[0], place[1], (width - _LEFT - _RIGHT) / width, place[3]))
        _panel(axes, block, window)
        at += block.panel_inches + _BELOW
    shown = dict.fromkeys(style for lane in block.lanes for style in (*lane.layers, *lane.behind))
    handles = [
        Patch(facecolor=styles.COLORS[style], edgecolor="0.6", lw=0.3, label=_LEGEND_NAMES.get(style, style))
        for style in styles.COLORS
        if style in shown
    ]
    figure.legend(
        handles=handles,
        loc="center",
        bbox_to_anchor=(0.5, 1 - (at + LEGEND / 2) / height),
        ncols=len(handles) if len(handles) <= _MOST_IN_A_ROW else -(-len(handles) // 2),
        fontsize=7,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.2,
        handletextpad=0.4,
    )


def _panel(axes: Axes, block: TimelineBlock, window: Window) -> None:
    """Draw one stretch of time; y grows downwards in lanes, from 0 at the top."""
    low, high = window
    origin_s = block.timeline.window_s[0]
    inches = axes.get_window_extent().width / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    scale = inches / (high - low) if high > low else 0.0
    bottom = 0.0
    for row in block.marks:
        _draw_marks(axes, row, window, bottom, scale)
        bottom += _MARK / _LANE
    ticks = []
    for lane in block.lanes:
        _draw_lane(axes, block.timeline, lane, window, bottom, scale)
        ticks.append(bottom + lane.height / 2)
        bottom += lane.height
        axes.axhline(bottom, color="0.85", lw=0.4, zorder=0)
    axes.set_ylim(bottom, 0.0)
    axes.set_yticks(ticks, [lane.label for lane in block.lanes], fontsize=7.5, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    span = styles.time_text(high - low)
    whole = window == block.timeline.window_s
    axes.set_title(f"whole window, {span}" if whole else f"busiest stretch, {span}", fontsize=8.5, loc="left", pad=3)
    if whole and block.zoom:
        axes.axvspan(*block.zoom, facecolor="none", edgecolor="black", lw=0.9, zorder=5, gid="zoom")
    unit = styles.time_unit(block.timeline.window_s[1] - origin_s)
    styles.time_axis(axes, window, unit, "time since the start of the window", origin_s=origin_s)


def _draw_lane(axes: Axes, timeline: Timeline, lane: Lane, window: Window, bottom: float, scale: float) -> None:
    """Draw the part of a lane in a window; ``scale`` is in inches per second."""
    inset = 0.08 * lane.height
    top, tall = bottom + inset, lane.height - 2 * inset
    _draw_layers(axes, lane.behind, window, top, tall, zorder=1)
    if lane.behind:  # calls are thinner than their background
        top, tall = top + 0.2 * tall, 0.6 * tall
    if _draw_layers(axes, lane.layers, window, top, tall, zorder=2) and lane.names.size:
        _label_events(axes, timeline, lane, window, top + tall / 2, scale)


def _draw_layers(
    axes: Axes, layers: Mapping[str, Floats], window: Window, top: float, tall: float, *, zorder: int
) -> bool:
    """Draw intervals as rectangles, or as filled bins if there are many; return whether they are rectangles."""
    low, high = window
    inside = {style: part[(part[:, 1] > low) & (part[:, 0] < high)] for style, part in layers.items()}
    inside = {style: part for style, part in inside.items() if len(part)}
    if not inside:
        return True
    if _are_distinct(np.concatenate(list(inside.values())), window):
        for style, part in inside.items():
            start, end = np.maximum(part[:, 0], low), np.minimum(part[:, 1], high)
            corners = np.stack((start, end, end, start), axis=1)
            heights = np.broadcast_to([top, top, top + tall, top + tall], corners.shape)
            color = styles.COLORS[style]
            # The outline keeps intervals visible that are narrower than a pixel.
            axes.add_collection(
                PolyCollection(list(np.stack((corners, heights), axis=2)), fc=color, ec=color, lw=0.4, zorder=zorder),
                autolim=False,
            )
        return True
    edges = np.linspace(low, high, _BINS + 1)
    shares = fractions(list(inside.values()), edges)
    total = shares.sum(axis=0)
    shares = shares * np.where(total > 0, np.maximum(total, _LEAST_SHARE) / np.maximum(total, 1e-300), 0.0)
    # y grows downwards: the bins start at the lower edge of the lane
    base = np.full(_BINS, top + tall)
    for style, share in zip(inside, shares, strict=True):
        over = base - tall * share
        axes.fill_between(
            edges, np.append(base, base[-1]), np.append(over, over[-1]), step="post", fc=styles.COLORS[style], lw=0,
            zorder=zorder,
        )  # fmt: skip
        base = over
    return False


def _are_distinct(intervals: Floats, window: Window) -> bool:
    """Whether intervals can be drawn as rectangles; the outlines of many narrow ones would overlap."""
    if len(intervals) > _MOST_RECTANGLES:
        return False
    low, high = window
    bins = ((intervals - low) / (high - low) * _BINS).astype(np.int64)
    narrow = bins[bins[:, 1] - bins[:, 0] <= 1, 0]
    return bool(narrow.size - np.unique(narrow).size <= _MOST_CROWDED)


def _label_events(axes: Axes, timeline: Timeline, lane: Lane, window: Window, middle: float, scale: float) -> None:
    """Write the names of the events that are wide enough, without overlap."""
    low, high = window
    start_s, end_s = np.maximum(lane.start_s, low), np.minimum(lane.end_s, high)
    letters = (end_s - start_s) * scale / _LETTER - 1
    reached = -np.inf
    for at in np.flatnonzero(letters >= _SHORTEST):
        if start_s[at] < reached:
            continue
        reached = end_s[at]
        text = styles.shortened(timeline.names[lane.names[at]], int(letters[at]))
        color = styles.text_color(str(lane.kinds[at]))
        _inner_text(axes, (start_s[at] + end_s[at]) / 2, middle, text, color)


def _draw_marks(axes: Axes, row: tuple[Mark, ...], window: Window, bottom: float, scale: float) -> None:
    """Draw a row of annotated ranges, with their names if they fit."""
    low, high = window
    tall = _MARK / _LANE
    for mark in row:
        start, end = max(mark.start_s, low), min(mark.end_s, high)
        if end <= start:
            continue
        axes.broken_barh([(start, end - start)], (bottom + 0.06, tall - 0.12), fc="0.96", ec="0.5", lw=0.5, zorder=1)
        letters = (end - start) * scale / _LETTER - 1
        if letters >= _SHORTEST:
            _inner_text(axes, (start + end) / 2, bottom + tall / 2, styles.shortened(mark.name, int(letters)), "black")


def _inner_text(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    axes.text(
        x, y, text, ha="center", va="center_baseline", fontsize=_LABEL_SIZE, color=color, clip_on=True, zorder=4,
        parse_math=False,
    )  # fmt: skip
