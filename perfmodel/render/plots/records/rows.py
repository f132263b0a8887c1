"""Rows of a bench record for plots: selection by dtype, labels, axes of rates over sizes, a legend below the axes."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.core.units import format_binary, format_si
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.legend import add_legend, legend_height
from perfmodel.render.plots.palette import OTHERS, PALETTE, shared_names
from perfmodel.render.plots.records import Rows

LONGEST_LABEL = 72
#: words that say which operation it is: "elementwise add", "memcpy h2d"
_OPERATIONS = ("kind", "direction")
#: lines that a legend names: as many as there are colours
MOST_LINES = len(PALETTE)
#: width and height of the axes, margin to their left, room for the label below, height of a line of notes, and of one
#: of the heading [inches]
_AXES, _TALL, _LEFT, _XLABEL, _NOTE, _HEADING = 6.6, 4.2, 0.95, 0.7, 0.18, 0.2
#: letters of a line of the heading, and of the whole: two lines
_LONGEST_LINE, _LONGEST_HEADING = 76, 150
#: the axis of rates is logarithmic if they differ by more than this factor
_UNEQUAL = 30.0


def rows_of_dtype(rows: Rows, dtype: str | None) -> Rows:
    """Return the rows with a dtype; None returns all rows."""
    canonical = canonical_dtype(dtype, place="--dtype") if dtype else None
    return [row for row in rows if canonical in (None, row["dtype"])]


def row_label(row: Mapping[str, Any], dimensions: str | None = None) -> str:
    """Return "gemm m=64 n=64 k=64 fp16 torch.matmul" for a row; ``dimensions`` replaces the row's own."""
    sizes = str(row.get("dimensions") or "") if dimensions is None else dimensions
    words = (row.get("name") or row.get("op"), sizes, row.get("dtype"), row.get("kernel"))
    return printable(" ".join(str(word) for word in words if word), LONGEST_LABEL)


def line_labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the label of each row's line: operator, dimensions that identify the line, dtype and kernel.

    The numeric dimension with the most values varies along the line; the other dimensions identify it.
    """
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    dimensions = [dict(word.partition("=")[::2] for word in str(row.get("dimensions") or "").split()) for row in rows]
    keys = [tuple(str(row.get(key) or "") for key in ("name", "op", "dtype", "kernel")) for row in rows]
    for key, facts in zip(keys, dimensions, strict=True):
        groups.setdefault(key, []).append(facts)
    return [
        row_label(row, " ".join(_word(name, value) for name, value in facts.items() if name in _fixed(groups[key])))
        for row, facts, key in zip(rows, dimensions, keys, strict=True)
    ]


def _fixed(group: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the dimensions that identify a line: words, and numbers that differ, except the one along the line."""
    names = dict.fromkeys(name for facts in group for name in facts)
    values = {name: {facts.get(name, "") for facts in group} for name in names}
    running = [name for name in names if len(values[name]) > 1 and all(v[:1].isdigit() for v in values[name])]
    along = max(running, key=lambda name: len(values[name]), default="")
    words = {name for name in names if not all(v[:1].isdigit() for v in values[name])}
    return words | {name for name in running if name != along}


def _word(name: str, value: str) -> str:
    """Return a dimension of a label: the value alone where it says which operation it is, else with its name."""
    return value if name in _OPERATIONS else f"{name}={value}"


def legend_entries(lines: Sequence[tuple[str, str, int]], notes: list[str]) -> dict[str, str]:
    """Return label of a line -> its entry in the legend, in order: the label itself, or of many lines the operator.

    No two entries have one colour. The operators with the fewest points share the last; a note says so.

    Parameters
    ----------
    lines : label, operator and number of points of each line.
    notes : the notes below the plot, to which that on the shared entries is added.
    """
    if len(lines) <= MOST_LINES:
        return {label: label for label, _, _ in lines}
    counts: Counter[str] = Counter()
    for _, op, points in lines:
        counts[op] += points
    names = shared_names(counts, MOST_LINES)
    notes.append(f"{len(lines)} lines, too many to name here: a colour is an operator. The record lists them.")
    return {label: names[op] for label, op, _ in sorted(lines, key=lambda line: names[line[1]] == OTHERS)}


def scale_rates(axes: Axes, sizes: Sequence[float], low: float, high: float) -> None:
    """Set the axes of rates over sizes [B/s over B]: room for all sizes, and for the rates from ``low`` to ``high``.

    Sizes are on a scale of powers of two; rates on a logarithmic one where they differ much, else from 0.
    """
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(sizes) / 2, max(sizes) * 2)
    exponents = range(math.ceil(math.log2(min(sizes) / 2)), math.floor(math.log2(max(sizes) * 2)) + 1)
    step = max(1, math.ceil(len(exponents) / 8))
    axes.xaxis.set_major_locator(FixedLocator([2.0**exponent for exponent in exponents if exponent % step == 0]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_binary(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    if high > _UNEQUAL * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, high * 1.6)
        axes.yaxis.set_major_locator(LogLocator(numticks=9))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0.0, high * 1.12)
        axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "B/s")))
    axes.tick_params(labelsize=8)
    axes.grid(which="major", color="0.92", zorder=0)


def rate_figure(
    handles: Sequence[Line2D], notes: Sequence[str], heading: str, *, right: float, top: float
) -> tuple[Figure, Axes]:
    """Return a figure with a heading, a legend and notes below, and its axes, whose size is the same in all plots.

    ``right`` and ``top`` are the margins beside the axes [inches]; further lines of a long heading come on top.
    """
    lines = textwrap.wrap(printable(heading, _LONGEST_HEADING), _LONGEST_LINE)
    top += _HEADING * (len(lines) - 1)
    width = _LEFT + _AXES + right
    below = _XLABEL + legend_height([str(handle.get_label()) for handle in handles], width) + _NOTE * len(notes)
    height = top + _TALL + below
    figure = new_figure(width, height)
    axes = figure.add_axes((_LEFT / width, below / height, _AXES / width, _TALL / height))
    middle = (_LEFT + _AXES / 2) / width
    for index, line in enumerate(lines):
        down = 1 - (0.22 + _HEADING * index) / height
        figure.text(middle, down, line, ha="center", va="center", fontsize=11, parse_math=False)
    add_legend(figure, handles, width)
    for index, note in enumerate(notes):
        down = below - _XLABEL + 0.02 - _NOTE * index
        figure.text(_LEFT / width, down / height, printable(note, 120), fontsize=7.5, color="0.2", va="top")
    return figure, axes
