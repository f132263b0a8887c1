"""Rows of bars on one axis of time: what each part takes, pale before a change and full after it, with an interval."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from perfmodel.errors import UsageError
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.palette import COLORS

#: blue, vermilion, green, and grey for what does not count
USUAL, WORSE, WHOLE, LEFT_OUT = COLORS[0], COLORS[1], COLORS[2], "0.6"
#: opacity of the time before
PALE = 0.28
#: width of the axes, least room for texts right of them, height of a row and of a line, margins, width of a letter
#: [inches]
_AXES, _RIGHT, _ROW, _LINE, _TOP, _BELOW, _LETTER = 4.6, 2.7, 0.3, 0.18, 0.2, 0.85, 0.062
_LONGEST_LABEL, _LONGEST_LINE = 44, 108


@dataclass(frozen=True)
class Bar:
    """One row.

    Attributes
    ----------
    label, text : left of the axis, and right of the bars.
    before_s, after_s : lengths of the pale and the full bar [s]; None for no bar.
    low_s, high_s : interval of the full bar [s], or None.
    color : of both bars.
    heading : whether label and text are bold.
    number : place in a list, before the label; "" for none.
    """

    label: str
    text: str
    before_s: float | None
    after_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    color: str = USUAL
    heading: bool = False
    number: str = ""

    @property
    def shown_label(self) -> str:
        """Its number, if any, and its label, shortened to the room there is."""
        if not self.number:
            return styles.shortened(self.label, _LONGEST_LABEL)
        # A number before the name of a C++ kernel would be taken for the type of its function, and go with it.
        return f"{self.number}  {styles.shortened(self.label, _LONGEST_LABEL - len(self.number) - 2)}"

    @property
    def ends_s(self) -> list[float]:
        """Where its bars and its interval end [s]."""
        return [end for end in (self.before_s, self.after_s, self.low_s, self.high_s) if end is not None]


def bars_plot(
    title: Sequence[str],
    bars: Sequence[Bar],
    axis: str,
    legend: Sequence[tuple[str, str, float]],
    *,
    beside: bool = True,
) -> Figure:
    """Return a figure of rows of bars, the first one on top.

    Parameters
    ----------
    title : sentences above the axes.
    bars : the rows.
    axis : what the axis of time shows.
    legend : label, colour and opacity of each kind of bar.
    beside : whether the pale bar stands above the full one; else it lies behind it.

    Raises
    ------
    UsageError
        When no row has a time.
    """
    ends = [end for bar in bars for end in bar.ends_s]
    if not any(ends):
        raise UsageError("there is no time to draw.")
    lines = [line for text in title for line in textwrap.wrap(printable(text, 4 * _LONGEST_LINE), _LONGEST_LINE)]
    labels = [bar.shown_label for bar in bars]
    left = 0.3 + _LETTER * max(map(len, labels))
    right = max(_RIGHT, 0.2 + _LETTER * max(len(bar.text) for bar in bars))
    tall, top = _ROW * len(bars), _TOP + _LINE * len(lines)
    width, height = left + _AXES + right, top + tall + _BELOW
    figure = new_figure(width, height)
    for at, line in enumerate(lines):
        place = 1 - (_TOP / 2 + _LINE * (at + 0.5)) / height
        figure.text(0.12 / width, place, line, ha="left", va="center", fontsize=9, parse_math=False)
    axes = figure.add_axes((left / width, _BELOW / height, _AXES / width, tall / height))
    low, high = min(0.0, *ends), max(0.0, *ends)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    for place, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        _draw(axes, place, bar, label, beside=beside)
    axes.set_yticks([])
    axes.axvline(0.0, color="0.3", lw=0.8, zorder=2)
    axes.grid(axis="x", color="0.92", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    styles.time_axis(axes, (low, high), styles.time_unit(max(high, -low)), axis)
    handles = [Patch(color=color, alpha=opacity, label=text) for text, color, opacity in legend]
    figure.legend(handles=handles, loc="lower left", ncols=len(handles), fontsize=7.5, frameon=False,
                  bbox_to_anchor=(0.0, 0.0))  # fmt: skip
    return figure


def _draw(axes: Axes, place: int, bar: Bar, label: str, *, beside: bool) -> None:
    """Draw one row: its bars, the interval of the full one, its label and its text."""
    both = beside and bar.before_s is not None and bar.after_s is not None
    tall = 0.36 if both else 0.62
    above, below = (place - tall / 2, place + tall / 2) if both else (place, place)
    if bar.before_s is not None:
        axes.barh(above, bar.before_s, tall, color=bar.color, alpha=PALE, zorder=3, gid="before")
    if bar.after_s is not None:
        axes.barh(below, bar.after_s, tall, color=bar.color, zorder=4, gid="after")
    if not both and bar.before_s and bar.after_s is not None and bar.before_s < bar.after_s:
        # the full bar hides the pale one behind it, whose end is then a white line
        axes.plot([bar.before_s] * 2, [place - tall / 2, place + tall / 2], color="white", lw=1.4, zorder=5, gid="end")
    if bar.low_s is not None and bar.high_s is not None:
        axes.plot([bar.low_s, bar.high_s], [below, below], color="0.15", lw=1.1, zorder=5, gid="interval")
        axes.plot([bar.low_s, bar.high_s], [below, below], "|", color="0.15", ms=4, zorder=5)
    weight = "bold" if bar.heading else "normal"
    axes.annotate(label, (0, place), (-6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                  ha="right", va="center", fontsize=7.5, fontweight=weight, parse_math=False)  # fmt: skip
    axes.annotate(bar.text, (1, place), (6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                  ha="left", va="center", fontsize=7, fontweight=weight, annotation_clip=False,
                  parse_math=False)  # fmt: skip
