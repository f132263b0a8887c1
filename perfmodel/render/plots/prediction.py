"""What predicted times are the sum of, as stacked bars: one a point, the same colour for the same term everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.prediction.explain import MEANINGS, Explained, explain
from perfmodel.prediction.result import Prediction
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.palette import PALETTE

#: bars that one figure has room for; of more points, as many are taken evenly
MOST_BARS = 40
#: times that differ by more than this factor are drawn as shares: the shortest would not be seen
_MOST_UNEQUAL = 25.0
#: Okabe and Ito's colours, related ones for what belongs together: blue arithmetic, orange traffic, green starts
_COLORS = {
    "math": "#0072B2",
    "softmax": "#5B5EA6",
    "tile waste": "#56B4E9",
    "wave quantisation": "#A6D8F2",
    "dram": "#D55E00",
    "l2": "#E69F00",
    "nvlink": "#8C3B00",
    "pcie": "#8C3B00",
    "xgmi": "#8C3B00",
    "rope and kv write": "#F2A97E",
    "synchronisation": "#F0C987",
    "contention": "#999999",
    "split-k": "#CC79A7",
    "quantisation": "#E5BCD3",
    "latency": "#B9C94A",
    "block setup": "#5FA08A",
    "launch": "#009E73",
    "host": "#80CEB9",
    "bound": "#000000",
}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
#: width of a character of 8.5 pt text [inches]
_LETTER = 0.074
_BAR_INCHES = 0.42
_AXES_INCHES = 6.6


def terms_plot(predictions: Iterable[Prediction]) -> Figure:
    """Return a horizontal stacked bar for each point, with its total, its 80 % interval and its bound.

    Raises
    ------
    UsageError
        When there is no point.
    """
    points = explain(predictions)
    if not points:
        raise UsageError("a plot of terms needs a prediction.")
    found = len(points)
    if found > MOST_BARS:
        points = [points[index] for index in np.linspace(0, found - 1, MOST_BARS).round().astype(int)]
    labels = _labels(points)
    names = _names(points)
    left = 0.35 + _LETTER * max(len(line) for label in labels for line in label.splitlines())
    columns = max(1, int((left + _AXES_INCHES) / 2.1))
    below = 0.75 + 0.24 * -(-(len(names) + 2) // columns)
    height = below + 0.5 + _BAR_INCHES * len(points)
    width = left + _AXES_INCHES + 0.15
    figure = new_figure(width, height)
    axes = figure.add_axes((left / width, below / height, _AXES_INCHES / width, _BAR_INCHES * len(points) / height))
    _draw(axes, points, names)
    axes.set_yticks(range(len(points)), labels, fontsize=8, parse_math=False)
    figure.suptitle(_title(points, found), fontsize=10.5, y=1 - 0.22 / height, parse_math=False)
    handles: list[Patch | Line2D] = [Patch(color=color(name, names), label=name) for name in names]
    handles.append(Line2D([], [], color="0.1", lw=1.2, marker="|", markersize=7, label="80 % interval"))
    handles.append(Line2D([], [], color="0.1", lw=0, marker="D", markersize=5, markerfacecolor="white", label="bound"))
    figure.legend(handles=handles, loc="lower center", ncols=columns, fontsize=8.5, frameon=False)
    return figure


@plot.register(Prediction)
def _(result: Prediction | Sequence[Prediction]) -> Figure:
    return terms_plot([result] if isinstance(result, Prediction) else result)


def _title(points: Sequence[Explained], found: int) -> str:
    """Return what is drawn: the machine, the view of time, and how many of the points."""
    row = points[0].row
    on = "" if len({point.row["hardware"] for point in points}) > 1 else f" on {printable(row['hardware'], 40)}"
    said = f", {len(points)} of {found} points" if found > len(points) else ""
    return f"Predicted time{on} as a sum ({row['timing']} time, {row['cache']} caches{said})"


def color(name: str, names: Sequence[str]) -> str:
    """Return the colour of a term: its own, or one by its place among those without one."""
    if name in _COLORS:
        return _COLORS[name]
    others = [other for other in names if other not in _COLORS]
    return PALETTE[-1 - others.index(name) % len(PALETTE)]


def _names(points: Sequence[Explained]) -> list[str]:
    """Return the terms of all points in the order of `MEANINGS`, then the others as they come."""
    found = dict.fromkeys(name for point in points for name in point.adds)
    known = [name for name in MEANINGS if name in found]
    return [*known, *(name for name in found if name not in known)]


def _labels(points: Sequence[Explained]) -> list[str]:
    """Return two lines for each bar: operator, dtype, the machine where there are several; and the dimensions."""
    machines = {point.row["hardware"] for point in points}
    made = []
    for point in points:
        row = point.row
        on = f" on {printable(row['hardware'], 24)}" if len(machines) > 1 else ""
        made.append(f"{printable(row['name'] or row['op'], 40)} {row['dtype']}{on}\n{printable(row['dimensions'], 76)}")
    return made


def _draw(axes: Axes, points: Sequence[Explained], names: Sequence[str]) -> None:
    totals = np.array([point.time_s for point in points])
    low, high, bound = (
        np.array([point.row[key] for point in points], dtype=np.float64)
        for key in ("predicted_time_low_s", "predicted_time_high_s", "bound_time_s")
    )
    relative = totals.max() > _MOST_UNEQUAL * totals.min()
    factor, unit = next(((f, u) for f, u in _UNITS if totals.max() >= f), _UNITS[-1])
    scale = totals / 100.0 if relative else np.full(totals.shape, factor)
    places = np.arange(len(points))
    texts = [_total(point) for point in points]
    longest = float(np.nanmax(np.fmax(np.fmax(totals, high), bound) / scale))
    room = _LETTER * max(map(len, texts)) + 0.15
    axes.set_xlim(0.0, longest * _AXES_INCHES / (_AXES_INCHES - room))
    axes.set_ylim(len(points) - 0.35, -0.55)
    start = np.zeros(len(points))
    for name in names:
        widths = np.array([point.adds.get(name, 0.0) for point in points]) / scale
        shade = color(name, names)
        axes.barh(places, widths, 0.62, left=start, color=shade, edgecolor="white", linewidth=0.5, gid=name)
        _write_shares(axes, places, start, widths, totals / scale, shade)
        start = start + widths
    stated = np.isfinite(low) & np.isfinite(high)
    for place in places[stated]:
        ends = [low[place] / scale[place], high[place] / scale[place]]
        axes.plot(ends, [place + 0.38] * 2, color="0.1", lw=1.2, marker="|", markersize=5, zorder=4)
    axes.plot(bound / scale, places - 0.31, "D", markersize=4.5, mfc="white", mec="0.1", zorder=5, gid="bound")
    ends = np.fmax(np.fmax(totals, high), bound) / scale
    for place, end, text in zip(places, ends, texts, strict=True):
        axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_xlabel("share of the predicted time [%]" if relative else f"time of one call [{unit}]", fontsize=9)
    ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, longest)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= longest * 1.02])
    axes.tick_params(axis="x", labelsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _total(point: Explained) -> str:
    low, high = point.row["predicted_time_low_s"], point.row["predicted_time_high_s"]
    total = format_si(point.time_s, "s", 3)
    known = low is not None and high is not None and np.isfinite([low, high]).all()
    return f"{total} ({format_si(low, 's', 3)} to {format_si(high, 's', 3)})" if known else total


def _write_shares(
    axes: Axes, places: np.ndarray, start: np.ndarray, widths: np.ndarray, totals: np.ndarray, shade: str
) -> None:
    """Write its share into each segment that is long enough for it, in a colour that reads on it."""
    across = axes.get_xlim()[1]
    bright = float(np.dot(to_rgb(shade), (0.299, 0.587, 0.114)))
    for place, begin, width, total in zip(places, start, widths, totals, strict=True):
        if width / across * _AXES_INCHES > 0.42:
            share = 100 * width / total
            axes.text(
                begin + width / 2,
                place,
                f"{share:.0f} %",
                ha="center",
                va="center",
                fontsize=7.5,
                color="black" if bright > 0.5 else "white",
                zorder=3,
            )
