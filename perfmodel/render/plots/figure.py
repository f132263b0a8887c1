"""Creating and saving figures, their scales, and text along lines; `perfmodel.render.plots.labels` places labels.

pyplot is not used: a `matplotlib.figure.Figure` has no global state, needs no display, and is freed like any object.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from perfmodel import storage
from perfmodel.errors import UsageError
from perfmodel.files import write_atomic
from perfmodel.render.plots.fonts import give_letters, take_note, written_out

#: suffix -> metadata without a time stamp, so that equal plots give equal files
_FORMATS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
DOTS_PER_INCH = 150
POINTS_PER_INCH = 72.0

#: values in SI units beyond these are errors of a unit; within them no limit of an axis overflows
_SMALLEST, _LARGEST = 1e-30, 1e30
#: values within a decade that an axis labels, the fewest first, and labels that tell its scale
_LOG_STEPS = (
    (1.0,),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
)
_LEAST_LABELS = 4


def figure_format(path: str | os.PathLike[str]) -> str:
    """Return the format for the suffix of a file: "png", "svg" or "pdf".

    Raises
    ------
    UsageError
        When the suffix is another one.
    """
    suffix = storage.suffix_of(path).removeprefix(".")
    if suffix not in _FORMATS:
        raise UsageError(
            f"cannot draw a plot as {suffix!r}." if suffix else "a plot needs a suffix that names its format.",
            place=os.fspath(path),
            remedy=f"Allowed: {', '.join('.' + name for name in _FORMATS)}.",
        )
    return suffix


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> str:
    """Write a figure atomically as PNG, SVG or PDF, chosen by the file's suffix.

    Returns which letters could not be drawn, in a sentence, or "".

    Raises
    ------
    UsageError
        When the suffix is another one, or the file cannot be written.
    """
    write_atomic(path, _encoded(figure, figure_format(path)))
    return take_note()


def _encoded(figure: Figure, name: str) -> bytes:
    """Return a figure in a format; equal figures give equal bytes."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "perfmodel"}):
        figure.savefig(buffer, format=name, dpi=DOTS_PER_INCH, metadata=_FORMATS[name])
    return buffer.getvalue()


class ShownFigure(Figure):
    """A figure that notebooks display; other figures are displayed only if pyplot created them.

    Its letters have the fonts that have them.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure."""
        for text in self.findobj(Text):
            if isinstance(text, Text):
                give_letters(text)
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        return _encoded(self, "png")


def log_ticks(low: float, high: float) -> list[float]:
    """Return the values to label on a logarithmic axis: as few as give it four labels; round ones on a short axis.

    >>> log_ticks(100.0, 7000.0), log_ticks(2.0, 8.0), log_ticks(52.9, 53.5)
    ([100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0], [2.0, 3.0, 5.0, 7.0], [53.0, 53.2, 53.4])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _LOG_STEPS:
        ticks = [round(step * 10.0**decade, 9) for decade in decades for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= _LEAST_LABELS:
            return inside
    even = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [round(float(tick), 9) for tick in even if low <= tick <= high]


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty white figure with an Agg canvas."""
    figure = ShownFigure(figsize=(width_inches, height_inches), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def drawable(*values: Any) -> bool:
    """Whether all values have a place on a logarithmic axis: positive, and not so extreme that they are an error.

    JSON has null for numbers that are not finite.
    """
    return all(isinstance(value, (int, float)) and _SMALLEST <= value <= _LARGEST for value in values)


def printable(text: str, longest: int) -> str:
    """Return a label for a figure: one line of letters that some font has, shortened in the middle if it is too long.

    >>> printable("void gemm_kernel<128, 256>(...)", 15)
    'void ge…6>(...)'
    """
    line = written_out(" ".join("".join(c if c.isprintable() else " " for c in text).split()))
    if len(line) <= longest:
        return line
    head = longest // 2
    return f"{line[:head]}…{line[len(line) - (longest - head - 1) :]}"


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Return positions moved to be at least ``gap`` apart, in the same order.

    Neighbours that are too close form a group, which is spaced evenly around its own centre.

    >>> spread([0.0, 1.0, 10.0], 4.0)
    [-1.5, 2.5, 10.0]
    """
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _start(groups[-1], positions, gap) < _end(groups[-2], positions, gap) + gap:
            last = groups.pop()
            groups[-1].extend(last)
    moved = [0.0] * len(positions)
    for group in groups:
        for place, index in enumerate(group):
            moved[index] = _start(group, positions, gap) + place * gap
    return moved


def label_right(
    axes: Axes, right: float, labels: Sequence[tuple[str, float]], heights_points: Sequence[float], away_points: float
) -> None:
    """Label horizontal lines at their right end; labels that would overlap are moved up or down.

    Parameters
    ----------
    axes : the axes.
    right : right end of the lines [data units].
    labels : text and height [data units] of each line.
    heights_points : the same heights [pt].
    away_points : distance of the labels from the end of the lines [pt].
    """
    for (text, level), height, moved in zip(labels, heights_points, spread(heights_points, 11.0), strict=True):
        axes.annotate(
            text,
            (right, level),
            (away_points, moved - height),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.4", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 1},
        )


def _start(group: list[int], positions: Sequence[float], gap: float) -> float:
    return sum(positions[index] for index in group) / len(group) - gap * (len(group) - 1) / 2


def _end(group: list[int], positions: Sequence[float], gap: float) -> float:
    return _start(group, positions, gap) + gap * (len(group) - 1)


class SlopeText(Text):
    """Text along the line between two points of the axes, at any size of the figure.

    The angle follows from the display transform at the time of drawing.
    """

    def __init__(self, axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str, **style: Any):
        self._line = (start, end)
        self._of_axes: Axes | None = axes
        super().__init__(*start, text, rotation_mode="anchor", transform=axes.transData, parse_math=False, **style)
        axes.add_artist(self)

    def get_rotation(self) -> float:
        """Return the angle of the line as drawn [degrees]."""
        axes = getattr(self, "_of_axes", None)
        if axes is None:
            return 0.0
        (x0, y0), (x1, y1) = axes.transData.transform(self._line)
        return float(np.degrees(np.arctan2(y1 - y0, x1 - x0)))
