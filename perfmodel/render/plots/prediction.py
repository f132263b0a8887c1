"""Plot of predicted times as stacked bars of their terms: one bar for each point, one colour for each term."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.prediction.explain import NEGLIGIBLE, Explained, explain
from perfmodel.prediction.latency.families import known_terms
from perfmodel.prediction.result import Prediction
from perfmodel.render.plots import algorithms as algorithms  # registers the plot of a choice
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable

#: most bars of a figure; of more points, an evenly spaced subset is drawn
MOST_BARS = 40
#: bars show shares if times differ by more than this factor, since the shortest bar would not be visible
_MOST_UNEQUAL = 25.0
#: colour of each term in every figure: blue for arithmetic, orange for traffic, green for starts
_COLORS = {
    "math": "#0072B2",
    "softmax": "#5B5EA6",
    "tile waste": "#56B4E9",
    "wave quantisation": "#A6D8F2",
    "hbm": "#D55E00",
    "dram": "#9C4500",
    "l3": "#4B3FBF",
    "l2": "#E69F00",
    "l1": "#6FA800",
    "shared": "#C03AC0",
    "registers": "#D6336C",
    "nvlink": "#6B2E1F",
    "NVLink-C2C": "#968700",
    "pcie": "#A8323E",
    "xgmi": "#D98880",
    "nic": "#24EA15",
    "sharing": "#251AEA",
    "rope and kv write": "#F2A97E",
    "synchronisation": "#F5D76E",
    "contention": "#999999",
    "split-k": "#CC79A7",
    "quantisation": "#E5BCD3",
    "latency": "#B9C94A",
    "block setup": "#2BB3C0",
    "launch": "#009E73",
    "host": "#80CEB9",
    "bound": "#000000",
    # placed where the colours above leave most room in CIELAB
    "pipeline": "#3C4B00",
    "power": "#5AF087",
    "dequantisation": "#FF1E3C",
    "im2col": "#D200FF",
    "transforms": "#69005A",
    "layout": "#0F5A5A",
    "permutation": "#D296FF",
    "llc": "#B4F000",
    "processes": "#FF00A5",
    "realignment": "#96965A",
    "experts": "#0087FF",
    "residual surface": "#4B2D4B",
    "gathering": "#00005A",
    "epilogue": "#1E781E",
    "sectors": "#00F0C3",
    "alignment": "#FFE100",
    "mask": "#D2FFB4",
    "events": "#00B41E",
    "few blocks": "#A55AFF",
    "addressing": "#002D0F",
    "chain": "#FF6969",
}
#: colours of the other terms, in the order of `known_terms`
_MORE_COLORS = (
    *("#7F3C8D", "#1F3A93", "#8C7A00", "#2F6B4F", "#C9A0DC", "#4D4D4D", "#8BB8A8", "#B8860B"),
    *("#FF9DA7", "#6C8EBF", "#BFBF7A", "#79604B", "#3B9AB2", "#E377C2", "#5A7D2A", "#D4C4A8"),
)
_REST, _REST_COLOR = "rest", "0.85"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
#: width of a character of 8.5 pt text [inches]
_LETTER = 0.074
_BAR_INCHES = 0.42
_AXES_INCHES = 6.6


def terms_plot(predictions: Iterable[Prediction]) -> Figure:
    """Return a horizontal stacked bar for each point, with its total, its 80 % interval and its bound.

    Negligible terms share a grey segment, "rest". Terms below 0 shorten the others, so that the length of a bar is the
    predicted time; they stand beside it. The share in a segment is that of its term, as tables have it.

    Raises
    ------
    UsageError
        When there are no points.
    """
    points = explain(predictions)
    if not points:
        raise UsageError("a plot of terms needs a prediction.")
    total = len(points)
    if total > MOST_BARS:
        points = [points[index] for index in np.linspace(0, total - 1, MOST_BARS).round().astype(int)]
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
    figure.suptitle(_title(points, total), fontsize=10.5, y=1 - 0.22 / height, parse_math=False)
    handles: list[Patch | Line2D] = [Patch(color=color(name, names), label=name) for name in names]
    handles.append(Line2D([], [], color="0.1", lw=1.2, marker="|", markersize=7, label="80 % interval"))
    handles.append(Line2D([], [], color="0.1", lw=0, marker="D", markersize=5, markerfacecolor="white", label="bound"))
    figure.legend(handles=handles, loc="lower center", ncols=columns, fontsize=8.5, frameon=False)
    return figure


@plot.register(Prediction)
def _(result: Prediction | Sequence[Prediction]) -> Figure:
    return terms_plot([result] if isinstance(result, Prediction) else result)


def _title(points: Sequence[Explained], total: int) -> str:
    """Return the heading: machine, timing, caches, and the number of points drawn if not all are."""
    row = points[0].row
    on = "" if len({point.row["hardware"] for point in points}) > 1 else f" on {printable(row['hardware'], 40)}"
    part = f", {len(points)} of {total} points" if total > len(points) else ""
    return f"Predicted time{on} as a sum ({row['timing']} time, {row['cache']} caches{part})"


def color(name: str, names: Sequence[str]) -> str:
    """Return the colour of a term; ``names`` are the terms of the figure."""
    if name == _REST:
        return _REST_COLOR
    if name in _COLORS:
        return _COLORS[name]
    others = [term for term in dict.fromkeys([*known_terms(), *names]) if term not in _COLORS]
    return _MORE_COLORS[others.index(name) % len(_MORE_COLORS)]


def _names(points: Sequence[Explained]) -> list[str]:
    """Return the terms of all points: known terms in the order of `known_terms`, other terms, "rest"."""
    present = dict.fromkeys(str(name) for point in points for name in _drawn_s(point))
    known = [str(name) for name in known_terms() if name in present]
    rest = [_REST] if any(_rest_s(point) for point in points) else []
    return [*known, *(name for name in present if name not in known), *rest]


def _drawn_s(point: Explained) -> Mapping[str, float]:
    """Return the length of each term's segment [s]: a residual surface that takes time off shortens all terms alike."""
    notable = point.notable
    longer = {name: time for name, time in notable.items() if time > 0.0}
    shorter = sum(notable.values()) - sum(longer.values())
    scale = 1.0 + shorter / sum(longer.values()) if shorter else 1.0
    return {name: scale * time for name, time in longer.items()}


def _rest_s(point: Explained) -> float:
    """Return the time of the terms that are not listed [s], or 0 if it is negligible."""
    rest_s = point.time_s - sum(_drawn_s(point).values())
    return rest_s if rest_s > NEGLIGIBLE * point.time_s else 0.0


def _share(point: Explained, name: str) -> float:
    """Return the share of a term in the predicted time, before terms below 0 shorten its segment."""
    return (_rest_s(point) if name == _REST else point.adds.get(name, 0.0)) / point.time_s


def _labels(points: Sequence[Explained]) -> list[str]:
    """Return two lines for each bar: operator, dtype, and the machine if there are several; then the dimensions."""
    machines = {point.row["hardware"] for point in points}
    labels = []
    for point in points:
        row = point.row
        on = f" on {printable(row['hardware'], 24)}" if len(machines) > 1 else ""
        first = f"{printable(row['name'] or row['op'], 40)} {row['dtype']}{on}"
        labels.append(f"{first}\n{printable(row['dimensions'], 76)}")
    return labels


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
    room = _LETTER * max(len(line) for text in texts for line in text.splitlines()) + 0.15
    axes.set_xlim(0.0, longest * _AXES_INCHES / (_AXES_INCHES - room))
    axes.set_ylim(len(points) - 0.35, -0.55)
    start = np.zeros(len(points))
    for name in names:
        times = [_rest_s(point) if name == _REST else _drawn_s(point).get(name, 0.0) for point in points]
        widths = np.array(times) / scale
        shade = color(name, names)
        axes.barh(places, widths, 0.62, left=start, color=shade, edgecolor="white", linewidth=0.5, gid=name)
        shares = [_share(point, name) for point in points]
        _write_shares(axes, places, start, widths, shares, shade)
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
    below = "".join(f"\n{name} {_percent(time / point.time_s)}" for name, time in point.notable.items() if time < 0)
    has_interval = low is not None and high is not None and np.isfinite([low, high]).all()
    interval = f" ({format_si(low, 's', 3)} to {format_si(high, 's', 3)})" if has_interval else ""
    return f"{total}{interval}{below}"


def _percent(share: float) -> str:
    """Return a share as text: in whole per cent, below one half with the first digit that is not 0.

    >>> _percent(-0.33), _percent(-0.0031)
    ('-33 %', '-0.3 %')
    """
    return f"{100 * share:.0f} %" if abs(share) >= 0.005 else f"{100 * share:.1g} %"


def _write_shares(
    axes: Axes, places: np.ndarray, start: np.ndarray, widths: np.ndarray, shares: Sequence[float], shade: str
) -> None:
    """Write the share into each segment that is long enough, in black on bright colours, else in white."""
    across = axes.get_xlim()[1]
    bright = float(np.dot(to_rgb(shade), (0.299, 0.587, 0.114)))
    for place, begin, width, share in zip(places, start, widths, shares, strict=True):
        if width / across * _AXES_INCHES > 0.42:
            axes.text(
                begin + width / 2,
                place,
                f"{100 * share:.0f} %",
                ha="center",
                va="center",
                fontsize=7.5,
                color="black" if bright > 0.5 else "white",
                zorder=3,
            )
