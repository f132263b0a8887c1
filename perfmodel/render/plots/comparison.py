"""Plot of changes between two benchmark records: a dot with an interval for each row, the largest slowdown on top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from perfmodel.comparison.compare import (
    FASTER,
    SAME,
    SLOWER,
    UNCLEAR,
    VERDICTS,
    Change,
    Comparison,
    format_change,
)
from perfmodel.errors import UsageError
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable

#: most rows of a figure; of more rows, those with the largest changes are drawn
MOST_ROWS = 60
#: Okabe and Ito's vermilion, blue and orange; grey for unchanged rows
COLORS = {SLOWER: "#D55E00", FASTER: "#0072B2", UNCLEAR: "#E69F00", SAME: "0.55"}
_SHAPES = {SLOWER: "o", FASTER: "s", UNCLEAR: "D", SAME: "o"}
#: width of the axes, height of a row, width of a character, margins above, below and right [inches]
_AXES, _ROW, _LETTER, _TOP, _BELOW, _RIGHT = 5.2, 0.24, 0.068, 0.62, 0.85, 0.75
_LONGEST_LABEL = 64
#: intervals wider than this multiple of the median width do not extend the axis; they end in an arrow
_TOO_WIDE = 3.0
#: largest change on the axis (four times the time), unless the median change is above half of it
_FURTHEST = 3.0
#: changes from this one on are written as a factor
_AS_FACTOR = 9.0


@plot.register
def comparison_plot(comparison: Comparison) -> Figure:
    """Return a plot of all rows with a time in both records: changes, intervals, threshold and gate.

    Raises
    ------
    UsageError
        When no row has a time in both records.
    """
    if not comparison.changes:
        raise UsageError("a plot of changes needs a row that has a time on both sides.")
    by_size = sorted(comparison.changes, key=lambda change: -abs(change.change))[:MOST_ROWS]
    changes = sorted(by_size, key=lambda change: -change.change)
    several = len({change.pair.after.identity.get("device") for change in comparison.changes}) > 1
    labels = [printable(_label(change, several), _LONGEST_LABEL) for change in changes]
    left = 0.35 + _LETTER * max(map(len, labels))
    tall = max(1.0, _ROW * len(changes))
    width, height = left + _AXES + _RIGHT, _TOP + tall + _BELOW
    figure = new_figure(width, height)
    axes = figure.add_axes((left / width, _BELOW / height, _AXES / width, tall / height))
    _draw(axes, comparison, changes)
    axes.set_yticks(range(len(changes)), labels, fontsize=8, parse_math=False)
    more = len(comparison.changes) - len(changes)
    title = (
        f"{len(changes)} of {len(comparison.changes)} rows, the largest changes"
        if more
        else f"{len(changes)} row{'s' * (len(changes) > 1)}"
    )
    overall = comparison.overall()
    assert overall is not None
    mean = f"{format_change(overall.ratio - 1)} ({overall.interval})"
    heading = f"Change of time: {title}\ngeometric mean of all rows: {mean}"
    figure.text(0.5, 1 - 0.3 / height, heading, ha="center", va="center", fontsize=10)
    _legend(figure, comparison, changes)
    return figure


def _label(change: Change, with_device: bool) -> str:
    row = change.pair.after
    return f"{row.label}, {row.identity.get('device', '')}" if with_device else row.label


def _draw(axes: Axes, comparison: Comparison, changes: Sequence[Change]) -> None:
    low, high = _limits(comparison, changes)
    axes.set(xlim=(low, high), ylim=(len(changes) - 0.4, -0.6))
    axes.axvspan(-comparison.rules.threshold, comparison.rules.threshold, color="0.93", lw=0, zorder=0, gid="threshold")
    axes.axvline(0.0, color="0.3", lw=0.8, zorder=1)
    if comparison.rules.limit is not None:
        axes.axvline(comparison.rules.limit, color=COLORS[SLOWER], lw=0.9, ls=(0, (5, 3)), zorder=1, gid="limit")
    for place, change in enumerate(changes):
        _draw_row(axes, place, change, low, high)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{_whole(100 * value, '+')} %" if value else "0"))
    axes.set_xlabel("after / before - 1, with its 95 % interval", fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.92", zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_row(axes: Axes, place: int, change: Change, low: float, high: float) -> None:
    """Draw one change with its interval; an arrow marks an end that lies beyond the axis."""
    color = COLORS[change.verdict]
    first = change.change if change.low is None else change.low
    last = change.change if change.high is None else change.high
    ends = np.clip([first, last], low, high)
    axes.plot(ends, [place, place], color=color, lw=1.6, zorder=3, solid_capstyle="butt", gid="interval")
    for end, marker in [(low, "<")] * (first < low) + [(high, ">")] * (last > high):
        axes.plot([end], [place], marker, color=color, ms=5, zorder=3, clip_on=False, gid="cut")
    if change.change <= high:
        shape = _SHAPES[change.verdict]
        axes.plot([change.change], [place], shape, color=color, ms=5.5, zorder=4, clip_on=False, gid="change")
    text = f"x {_whole(1 + change.change)}" if change.change >= _AS_FACTOR else format_change(change.change)
    axes.annotate(text, (1, place), (8, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8)


def _whole(value: float, sign: str = "-") -> str:
    """Return a number with three digits, and from 1000 on without decimals: never with an exponent.

    >>> _whole(12.345), _whole(1000.2), _whole(2e4, "+")
    ('12.3', '1,000', '+20,000')
    """
    return f"{value:{sign},.0f}" if abs(value) >= 999.5 else f"{value:{sign}.3g}"


def _limits(comparison: Comparison, changes: Sequence[Change]) -> tuple[float, float]:
    """Return the limits of the axis, which includes zero, the gate, and all changes and intervals of usual size."""
    points = np.array([change.change for change in changes])
    lows = np.array([change.change if change.low is None else change.low for change in changes])
    highs = np.array([change.change if change.high is None else change.high for change in changes])
    widths = highs - lows
    usual = widths <= _TOO_WIDE * np.median(widths)
    low = min(float(lows[usual].min()), float(points.min()), -comparison.rules.threshold)
    rules = comparison.rules
    high = max(float(highs[usual].max()), float(points.max()), rules.threshold, rules.limit or 0.0)
    if float(np.median(points)) < _FURTHEST / 2:
        high = min(high, _FURTHEST)
    room = 0.04 * (high - low)
    return max(low - room, -1.0), high + room


def _legend(figure: Figure, comparison: Comparison, changes: Sequence[Change]) -> None:
    shown = {change.verdict for change in changes}
    handles = [
        Line2D([], [], color=COLORS[verdict], marker=_SHAPES[verdict], ms=5.5, lw=1.6, label=verdict)
        for verdict in VERDICTS
        if verdict in shown
    ]
    handles.append(Line2D([], [], color="0.9", lw=7, label=f"below {100 * comparison.rules.threshold:g} %"))
    if comparison.rules.limit is not None:
        label = f"gate: {100 * comparison.rules.limit:g} %"
        handles.append(Line2D([], [], color=COLORS[SLOWER], lw=0.9, ls=(0, (5, 3)), label=label))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=8, frameon=False, columnspacing=1.4)
