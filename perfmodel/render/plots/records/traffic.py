"""Plot of bytes a second over size, as expected and as measured: of exchanges the bus bandwidth over the message.

It is for operators without arithmetic to speak of, which have no place under a roofline: collectives, copies, look-ups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.operators import load_operator, operator_names
from perfmodel.operators.collective import Collective
from perfmodel.render.plots.figure import drawable, printable
from perfmodel.render.plots.palette import DASHES, PALETTE, SHAPES
from perfmodel.render.plots.records import Pairs
from perfmodel.render.plots.records.rows import (
    MOST_LINES,
    legend_entries,
    line_labels,
    rate_figure,
    row_label,
    rows_of_dtype,
    scale_rates,
)

#: margins beside the axes [inches]
_RIGHT, _TOP = 0.4, 0.5
#: what an axis of exchanges alone, and of any operators, is called
_BUS, _ANY = ("size of the message", "bus bandwidth"), ("bytes of a call", "bandwidth")

_MEASURED = "measured"
#: half the length of the bound of a single size, as a share of the axis
_HALF_TICK = 0.018


@dataclass
class _Line:
    """One operator over its sizes [B]: rates [B/s] that are expected, of the bound, and measured by kernel.

    ``expected`` holds three rates: at the expected time, and at the low and the high end of its interval.
    """

    label: str
    op: str
    expected: dict[float, tuple[float, float, float]] = field(default_factory=dict)
    bound: dict[float, float] = field(default_factory=dict)
    measured: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def points(self) -> int:
        """Number of expected and measured rates."""
        return len(self.expected) + sum(map(len, self.measured.values()))


@dataclass(frozen=True)
class _Style:
    """The marker of each kernel, and whether there are so many lines that intervals and bounds would hide them."""

    markers: Mapping[str, str]
    many: bool

    @classmethod
    def of(cls, lines: Sequence[_Line]) -> _Style:
        """Return a shape for each kernel; one for all where there are too many lines, or too few shapes."""
        kernels = list(dict.fromkeys(kernel for line in lines for kernel in line.measured))
        many = len(lines) > MOST_LINES
        one = many or len(kernels) > len(SHAPES)
        return cls({kernel: SHAPES[0 if one else place] for place, kernel in enumerate(kernels)}, many)


def lacks_arithmetic(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether no row has a place under a roofline: exchanges, and operators without FLOP."""
    return all(not row.get("arithmetic_intensity_flop_per_byte") or _is_exchange(row) for row in rows)


def record_plot(pairs: Pairs, *, dtype: str | None, title: str | None) -> Figure:
    """Return the plot of the rows of one or more machines.

    Raises
    ------
    UsageError
        When no row can be drawn.
    """
    return traffic_plot([(machine, rows_of_dtype(rows, dtype)) for machine, rows in pairs], title)


def traffic_plot(pairs: Sequence[tuple[Hardware, Iterable[Mapping[str, Any]]]], title: str | None = None) -> Figure:
    """Return bytes a second over size, both logarithmic where they differ much, a colour for each operator.

    The line is what is expected, in its 80 % interval; the dashed one is the bound; markers are measurements. Of
    exchanges the rate is the bus bandwidth, as nccl-tests defines it, over the message: the bytes that a GPU sends to
    the others in a ring, over the time. Where the switch reduces it may exceed the rate of the links. Of other
    operators it is the bytes read and written, each tensor once, over the time. More lines than there are colours have
    the colour of their operator, without intervals and bounds.

    Parameters
    ----------
    pairs : machines, each with its rows of an `analyze` or `bench` record.
    title : heading instead of the machines' names.

    Raises
    ------
    UsageError
        When no row can be drawn.
    """
    rows = [{**row, "machine": machine.name} for machine, of_machine in pairs for row in of_machine]
    lines, notes = _collect(rows, several=len(pairs) > 1)
    if not lines:
        why = f" ({notes[0].removeprefix('Not drawn: ').rstrip('.')})" if notes else ""
        raise UsageError(
            f"no row has bytes to draw{why}.",
            remedy="Give operators that move bytes, or exchanges among two GPUs or more.",
        )
    entries = legend_entries([(line.label, line.op, line.points) for line in lines], notes)
    colors = {entry: PALETTE[place] for place, entry in enumerate(dict.fromkeys(entries.values()))}
    style = _Style.of(lines)
    handles = _handles(lines, colors, style)
    named = ", ".join(machine.title or machine.name for machine, _ in pairs)
    across, up = _BUS if all(map(_is_exchange, rows)) else _ANY
    heading = title or f"{up[0].upper()}{up[1:]} over size: {named}"
    figure, axes = rate_figure(handles, notes, heading, right=_RIGHT, top=_TOP)
    sizes, rates = _places(lines, style)
    scale_rates(axes, sizes, min(rates), max(rates))
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    for line in lines:
        _draw(axes, line, colors[entries[line.label]], style)
    return figure


def _is_exchange(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a collective; operators of others' plugins may be unknown here, and are none."""
    name = str(row["op"])
    return name in operator_names() and issubclass(load_operator(name), Collective)


def _size_and_bytes(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the size of a row and the bytes that its rate counts [B]."""
    if not _is_exchange(row):
        moved = sum(float(row.get(key) or 0.0) for key in ("bytes_read", "bytes_written"))
        return moved, moved
    op = load_operator(str(row["op"]))(dtype=str(row["dtype"]), **row["params"])
    assert isinstance(op, Collective)
    return float(op.bytes), float(op.peer_bytes())


def _collect(rows: Sequence[Mapping[str, Any]], several: bool) -> tuple[list[_Line], list[str]]:
    """Return the lines to draw, and notes about the rows that are left out."""
    left: Counter[str] = Counter()
    lines: dict[str, _Line] = {}
    for row, label in zip(rows, _labels(rows, several), strict=True):
        size, counted = _size_and_bytes(row)
        if not drawable(size, counted):
            left["without bytes to move"] += 1
            continue
        line = lines.setdefault(label, _Line(label, str(row["op"])))
        times = [row.get(key) for key in ("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s")]
        if drawable(*times):
            expected, low, high = (counted / float(time or 0.0) for time in times)
            line.expected[size] = (expected, low, high)
        if drawable(row.get("bound_time_s")):
            line.bound[size] = counted / float(row["bound_time_s"])
        if row.get("status", "ok") not in ("ok", None):
            left[str(row["status"])] += 1
        elif drawable(row.get("measured_time_s")):
            kernel = str(row.get("kernel") or _MEASURED)
            line.measured.setdefault(kernel, []).append((size, counted / float(row["measured_time_s"])))
    drawn = [line for line in lines.values() if line.expected or line.measured or line.bound]
    reasons = ", ".join(f"{count} {reason}" for reason, count in left.items())
    return drawn, [f"Not drawn: {reasons}."] if reasons else []


def _labels(rows: Sequence[Mapping[str, Any]], several: bool) -> list[str]:
    """Return the label of each row's line: of exchanges all but the message, and with several machines the machine.

    Words that a row leaves out, since they are what is usual, are named where another row of the operator and its dtype
    has another word: the direction of a copy.
    """
    choices: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        for key, word in _words(row):
            choices.setdefault((str(row["op"]), str(row["dtype"]), key), set()).add(word)
    shown = []
    for row in rows:
        given = str(row.get("dimensions") or "").split()
        several_words = [pair for pair in _words(row) if len(choices[str(row["op"]), str(row["dtype"]), pair[0]]) > 1]
        usual = [text for text in map("=".join, several_words) if text not in given]
        machine = row["machine"] if several else ""
        shown.append({**row, "dimensions": " ".join((*given, *usual)), "kernel": machine})
    labels = line_labels(shown)
    for place, row in enumerate(shown):
        if _is_exchange(row):
            others = [word for word in str(row.get("dimensions") or "").split() if not word.startswith("bytes=")]
            labels[place] = row_label(row, " ".join(others))
    return labels


def _words(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of a row that are words, with these."""
    return [(key, word) for key, word in row["params"].items() if isinstance(word, str) and word]


def _places(lines: Sequence[_Line], style: _Style) -> tuple[list[float], list[float]]:
    """Return all sizes and rates that are drawn."""
    sizes = [size for line in lines for size in (*line.expected, *line.bound)]
    rates = [rate for line in lines for rates in line.expected.values() for rate in rates[: 1 if style.many else 3]]
    rates += [rate for line in lines for rate in line.bound.values() if not style.many]
    for line in lines:
        for points in line.measured.values():
            sizes += [size for size, _ in points]
            rates += [rate for _, rate in points]
    return sizes, rates


def _draw(axes: Axes, line: _Line, color: str, style: _Style) -> None:
    """Draw what is expected and measured of a line, and, unless there are many, its interval and its bound."""
    sizes = sorted(line.expected)
    if sizes and style.many:
        axes.plot(
            sizes, [line.expected[size][0] for size in sizes], color=color, lw=0.7, zorder=3,
            marker="" if len(sizes) > 1 else "_", ms=7, gid=f"expected {line.label}",
        )  # fmt: skip
    elif sizes:
        expected, fastest, slowest = np.transpose([line.expected[size] for size in sizes])
        if len(sizes) > 1:
            axes.fill_between(sizes, slowest, fastest, color=color, alpha=0.15, lw=0, zorder=2, gid="interval")
            axes.plot(sizes, expected, color=color, lw=1.5, zorder=3, gid=f"expected {line.label}")
        else:
            ends = [expected - slowest, fastest - expected]
            axes.errorbar(sizes, expected, yerr=ends, fmt="_", ms=12, color=color, capsize=4, zorder=3)
    sizes = [] if style.many else sorted(line.bound)
    if sizes:
        rates = [line.bound[size] for size in sizes]
        if len(sizes) == 1:
            # a tick of the expectation's width, whose dashes tell it from that
            low, high = axes.get_xlim()
            sizes = [sizes[0] * (high / low) ** end for end in (-_HALF_TICK, _HALF_TICK)]
            rates *= 2
        axes.plot(sizes, rates, color=color, ls=DASHES, lw=1.0, zorder=2, gid=f"bound {line.label}")
    for kernel, points in line.measured.items():
        axes.plot(
            *zip(*sorted(points), strict=True), ls="", marker=style.markers[kernel], ms=4.0 if style.many else 5.5,
            color=color, mec="white", mew=0.5, zorder=4, gid=f"measured {line.label} {kernel}",
        )  # fmt: skip


def _measured(kernel: str) -> str:
    return printable(kernel if kernel == _MEASURED else f"{_MEASURED}: {kernel}", 50)


def _handles(lines: Sequence[_Line], colors: Mapping[str, str], style: _Style) -> list[Line2D]:
    """Return the legend: the colours by their entries, and what lines, dashes and markers are."""
    handles = [Line2D([], [], color=color, lw=2.5, label=entry) for entry, color in colors.items()]
    if any(line.expected for line in lines):
        text = "expected" if style.many else "expected, 80 % interval"
        handles.append(Line2D([], [], color="0.3", lw=1.5, label=text))
    if any(line.bound for line in lines) and not style.many:
        handles.append(Line2D([], [], color="0.3", lw=1.0, ls=DASHES, label="bound"))
    shared = len(set(style.markers.values())) < len(style.markers)
    names = {_MEASURED if shared else _measured(kernel): marker for kernel, marker in style.markers.items()}
    handles += [Line2D([], [], color="0.3", ls="", marker=marker, ms=5.5, label=name) for name, marker in names.items()]
    return handles
