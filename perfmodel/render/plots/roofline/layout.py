"""Layout of a roofline figure: panels, legend, numbered names and notes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from perfmodel.render.plots.figure import printable
from perfmodel.render.plots.labels import LabelPlacer
from perfmodel.render.plots.roofline.points import Collected, Mark, Measurement

#: most points that are named beside their marker, and most that are numbered
MOST_NAMES = 12
MOST_NUMBERS = 60
_LONGEST_NAME = 30
_LONGEST_ENTRY = 60
_LONGEST_NOTE = 400
#: most kernels whose percentages are listed without their names
_KERNELS_IN_COLUMNS = 3
#: markers closer than this share a label [pt]
_SAME_PLACE = 5.0

#: width and height of the axes, margins [inches]
_AXES = (6.2, 4.2)
_LEFT, _TOP, _XLABEL, _HEADING = 0.95, 0.7, 0.62, 0.3
#: smallest right margin, for the labels of the ceilings; the legend and the numbered names extend below it [inches]
_LEAST_RIGHT = 2.25
_LEGEND_ROW, _TEXT_ROW, _GAP = 0.19, 0.145, 0.1
_TEXT_SIZE = 7.5
#: mean width of a character of DejaVu Sans at `_TEXT_SIZE` [inches]
_CHARACTER = 0.064
_LONGEST_LINE = int((_AXES[0] + _LEAST_RIGHT) / _CHARACTER) - 6


@dataclass(frozen=True)
class Key:
    """Text below a panel: numbered names and notes; ``numbered`` if markers are labelled with numbers."""

    numbered: bool = False
    entries: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def key_of(collected: Collected) -> Key:
    """Return the text below a panel: a few points are named at their markers, more are numbered."""
    marks, notes = collected.marks, [printable(note, _LONGEST_NOTE) for note in collected.notes]
    if len(marks) > MOST_NUMBERS:
        notes.append(f"{len(marks)} points, too many to name here: the record lists them.")
        return Key(notes=_wrapped(notes))
    longest = max((len(mark.label) for mark in marks), default=0)
    if len(marks) <= MOST_NAMES and longest <= _LONGEST_NAME:
        return Key(notes=_wrapped(notes))
    kernels = list(dict.fromkeys(measured.kernel for mark in marks for measured in mark.measured))
    if 1 <= len(kernels) <= _KERNELS_IN_COLUMNS:
        notes.insert(0, f"Percentages: achieved of attainable, {' / '.join(kernels)}.")
    elif kernels:
        notes.insert(0, "Percentages: achieved of attainable.")
    entries = tuple(_entry(number, mark, kernels) for number, mark in enumerate(marks, start=1))
    return Key(True, entries, _wrapped(notes))


def _wrapped(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for note in notes for line in textwrap.wrap(note, _LONGEST_LINE))


def _entry(number: int, mark: Mark, kernels: Sequence[str]) -> str:
    """Return a numbered name, "3  gemm m=64: 83 / 21 %"; with many kernels, each percentage follows its kernel."""
    label = printable(mark.label, _LONGEST_ENTRY)
    shares = {measured.kernel: _share(measured) for measured in mark.measured}
    if shares and len(kernels) <= _KERNELS_IN_COLUMNS:
        label = f"{label}: {' / '.join(shares.get(kernel, '-') for kernel in kernels)} %"
    elif shares:
        label = f"{label}: {', '.join(f'{kernel} {share} %' for kernel, share in shares.items())}"
    return f"{number}  {printable(label, _LONGEST_LINE)}"


def _share(measured: Measurement) -> str:
    percent = 100 * measured.efficiency
    return ">100" if measured.faster_than_bound else f"{percent:.0f}" if percent >= 1 else "<1"


@dataclass(frozen=True)
class Layout:
    """Positions and sizes of the panels of a figure [inches]."""

    panels: int
    right: float
    legend_rows: int
    legend_columns: int
    below: float
    headed: bool

    @classmethod
    def of(cls, keys: Sequence[Key], legend: Sequence[str], ceilings: Sequence[str], headed: bool) -> Layout:
        """Return the layout, with space below each panel for legend and key, and beside it for ceiling labels."""
        right = max([_LEAST_RIGHT, *(0.35 + 1.1 * _CHARACTER * len(label) for label in ceilings)])
        longest = max((len(label) for label in legend), default=1)
        columns = max(1, min(len(legend), int((_AXES[0] + _LEAST_RIGHT) / ((longest + 6) * _CHARACTER))))
        rows = math.ceil(len(legend) / columns)
        lines = max(_entry_rows(key)[0] + len(key.notes) for key in keys)
        below = _XLABEL + rows * _LEGEND_ROW + lines * _TEXT_ROW + 3 * _GAP
        return cls(len(keys), right, rows, columns, below, headed)

    @property
    def _columns(self) -> int:
        return min(2, self.panels)

    @property
    def width(self) -> float:
        """Width of the figure [inches]."""
        return self._columns * (_LEFT + _AXES[0] + self.right)

    @property
    def height(self) -> float:
        """Height of the figure [inches]."""
        rows = math.ceil(self.panels / self._columns)
        return rows * (_TOP + _AXES[1] + self.below) + (_HEADING if self.headed else 0.0)

    @property
    def heading(self) -> float:
        """Height of the heading's middle, as a fraction of the figure."""
        return 1 - 0.6 * _HEADING / self.height

    def axes(self, index: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of a panel's axes as fractions of the figure."""
        row, column = divmod(index, self._columns)
        left = column * (_LEFT + _AXES[0] + self.right) + _LEFT
        top = (_HEADING if self.headed else 0.0) + row * (_TOP + _AXES[1] + self.below) + _TOP
        bottom = self.height - top - _AXES[1]
        return left / self.width, bottom / self.height, _AXES[0] / self.width, _AXES[1] / self.height

    def write_below(self, axes: Axes, key: Key, legend: Sequence[Line2D]) -> None:
        """Write the legend, the numbered names and the notes below a panel."""
        down = _XLABEL
        if legend:
            box = axes.legend(
                handles=list(legend),
                loc="upper left",
                bbox_to_anchor=(0, -down / _AXES[1]),
                ncols=self.legend_columns,
                fontsize=8,
                frameon=False,
                borderaxespad=0,
                borderpad=0,
                labelspacing=0.35,
                handletextpad=0.5,
                columnspacing=1.4,
            )
            for text in box.get_texts():
                text.set_parse_math(False)
            down += self.legend_rows * _LEGEND_ROW + _GAP
        rows, columns = _entry_rows(key)
        step = (_AXES[0] + _LEAST_RIGHT) / max(1, columns) / _AXES[0]
        for column in range(columns):
            _write(axes, column * step, down, key.entries[column * rows : (column + 1) * rows])
        if rows:
            down += rows * _TEXT_ROW + _GAP
        _write(axes, 0.0, down, key.notes)


def _entry_rows(key: Key) -> tuple[int, int]:
    """Return the numbers of rows and columns of the numbered names."""
    if not key.entries:
        return 0, 0
    longest = max(len(entry) for entry in key.entries) + 3
    columns = max(1, min(len(key.entries), int((_AXES[0] + _LEAST_RIGHT) / (longest * _CHARACTER))))
    rows = math.ceil(len(key.entries) / columns)
    return rows, math.ceil(len(key.entries) / rows)


def _write(axes: Axes, left: float, down_inches: float, lines: Sequence[str]) -> None:
    for index, line in enumerate(lines):
        height = -(down_inches + index * _TEXT_ROW) / _AXES[1]
        axes.text(
            left, height, line, transform=axes.transAxes, va="top", fontsize=_TEXT_SIZE, color="0.2", parse_math=False
        )


def name_marks(marks: Sequence[Mark], key: Key, placer: LabelPlacer) -> None:
    """Write names or numbers beside the markers; markers at the same position share a label."""
    if len(marks) > MOST_NUMBERS:
        return
    anchors = [(mark.intensity, _labelled_rate(mark)) for mark in marks]
    groups: list[list[int]] = []
    centres = placer.points_of(anchors) if anchors else np.empty((0, 2))
    for index, centre in enumerate(centres):
        near = (group for group in groups if np.hypot(*(centres[group[0]] - centre)) < _SAME_PLACE)
        group = next(near, None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    named = []
    for group in groups:
        text = _ranges(group) if key.numbered else "\n".join(dict.fromkeys(marks[index].label for index in group))
        named.append((anchors[group[0]], text))
    placer.label(named, fontsize=_TEXT_SIZE, color="0.1", zorder=7)


def _labelled_rate(mark: Mark) -> float:
    """Return the height of a mark's label: the rate of its fastest kernel, else the attainable rate [FLOP/s]."""
    return max((m.flop_per_s for m in mark.measured), default=mark.attainable_flop_per_s)


def _ranges(indices: Sequence[int]) -> str:
    """Return the numbers of some marks, with consecutive ones as a range.

    >>> _ranges([0, 1, 2, 5])
    '1-3, 6'
    """
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(
        f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 2 else ", ".join(str(index + 1) for index in run) for run in runs
    )
