"""Plot of the panels of a report: lines over one axis each, with their bands."""

from __future__ import annotations

import datetime
import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import HOURLY, MINUTELY, SECONDLY, AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from perfmodel.core.panel import Panel
from perfmodel.core.report import Column
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.palette import PALETTE

#: size of a panel, and room for heading and notes [inches]
_WIDTH, _HEIGHT, _HEADING, _NOTE = 5.2, 2.1, 0.5, 0.2
_COLUMNS = 2
_MOST_LINES, _LONGEST = 8, 30
#: letters that heading and legend of a panel have side by side, those of a row of the legend, and height of such a row
#: as a share of the panel's
_HEADING_LETTERS, _ROW_LETTERS, _LEGEND_ROW = 75, 72, 0.13
#: what the day of an axis is written as, from years to seconds
_DAYS = ["", "%Y", "%Y-%m", "%Y-%m-%d UTC", "%Y-%m-%d UTC", "%Y-%m-%d %H:%M UTC"]
#: hours, minutes and seconds between the labels of an axis: matplotlib's, and those for spans that had but one label
_STEPS = {HOURLY: [1, 2, 3, 4, 6, 12, 24], **{each: [1, 2, 5, 10, 15, 20, 30] for each in (MINUTELY, SECONDLY)}}
#: characters of a line of notes under each column of panels, and lines of notes
_LONGEST_NOTE, _MOST_NOTES = 75, 6


def panels_plot(panels: Sequence[Panel], title: str = "", notes: Sequence[str] = ()) -> Figure:
    """Return a figure with the panels of a report, two in a row.

    Parameters
    ----------
    panels : of the report.
    title : heading.
    notes : sentences below the heading.

    Raises
    ------
    UsageError
        When there is no panel.
    """
    if not panels:
        raise UsageError("there are no two readings to draw a line between.", remedy="Record for longer.")
    rows = math.ceil(len(panels) / _COLUMNS)
    columns = min(_COLUMNS, len(panels))
    longest = _LONGEST_NOTE * columns
    wrapped = [line for note in notes for line in textwrap.wrap(printable(note, 4 * longest), longest)]
    shown = wrapped[:_MOST_NOTES]
    top = _HEADING + _NOTE * len(shown)
    width, height = columns * _WIDTH + 0.2, top + rows * _HEIGHT
    figure = new_figure(width, height)
    figure.text(0.12 / width, 1 - 0.22 / height, printable(title, 80), fontsize=12, va="center")
    for number, note in enumerate(shown):
        figure.text(0.12 / width, 1 - (0.48 + _NOTE * number) / height, note, fontsize=8, va="center", parse_math=False)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        left, bottom = column * _WIDTH + 0.85, height - top - (row + 1) * _HEIGHT + 0.42
        axes = figure.add_axes((left / width, bottom / height, (_WIDTH - 1.0) / width, (_HEIGHT - 0.75) / height))
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    clock = panel.x_label == "time"
    x = np.asarray(panel.x, dtype=float)
    if clock:
        x = np.asarray(date2num([datetime.datetime.fromtimestamp(at, tz=datetime.UTC) for at in panel.x]))  # type: ignore[no-untyped-call]
    style = "steps-post" if panel.steps else "default"
    for number, line in enumerate(panel.lines[:_MOST_LINES]):
        color = PALETTE[number % len(PALETTE)]
        axes.plot(x, _numbers(line.values), color=color, linewidth=1.2, label=printable(line.name, _LONGEST),
                  drawstyle=style)  # fmt: skip
        if len(line.low):
            axes.fill_between(x, _numbers(line.low), _numbers(line.high), color=color, alpha=0.2, linewidth=0)
    several = len(panel.lines)
    some = f" (the first {_MOST_LINES} of {several} lines)" if several > _MOST_LINES else ""
    axes.set_title(panel.title + some, fontsize=9, loc="left")
    axes.tick_params(labelsize=7.5)
    if clock:
        locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
        locator.intervald = {**locator.intervald, **_STEPS}
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, offset_formats=_DAYS))  # type: ignore[no-untyped-call]
        axes.xaxis.get_offset_text().set_fontsize(7.5)
    else:
        axes.set_xlabel(panel.x_label, fontsize=8)
    _scale(axes, panel)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    if len(panel.lines) > 1 or panel.lines[0].name:
        _name_lines(axes, panel)


def _name_lines(axes: Axes, panel: Panel) -> None:
    """Name the lines beside the heading, or where that is too long, inside above the lines."""
    names = [line.name[:_LONGEST] for line in panel.lines[:_MOST_LINES]]
    if sum(map(len, names)) + 4 * len(names) + len(panel.title) < _HEADING_LETTERS:
        axes.legend(fontsize=7, ncol=4, frameon=False, columnspacing=1.0, handlelength=1.2, loc="lower right",
                    bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)  # fmt: skip
        return
    columns = max(1, min(4, _ROW_LETTERS // (max(map(len, names)) + 4)))
    _, top = axes.get_ylim()
    axes.set_ylim(0.0, top * (1.0 + _LEGEND_ROW * -(-len(names) // columns)))
    axes.legend(fontsize=7, ncol=columns, frameon=False, columnspacing=1.0, handlelength=1.2, loc="upper left",
                borderaxespad=0.1, labelspacing=0.2)  # fmt: skip


def _scale(axes: Axes, panel: Panel) -> None:
    """Let the axis begin at 0, with room for the legend, and write its values in their unit."""
    most = max(
        (value for line in panel.lines for value in (*line.values, *line.high) if value is not None), default=0.0
    )
    column = Column("value", unit="" if panel.unit == "°C" else panel.unit, digits=3)
    suffix = " °C" if panel.unit == "°C" else ""
    axes.set_ylim(0.0, 1.12 * most if most > 0 else 1.0)
    if panel.unit == "iB" and most > 0:
        axes.yaxis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2(most / 4))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: column.text(float(value)) + suffix))


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
