"""Time to first token and time per token against the load, with intervals, percentiles and the objectives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import drawable, log_ticks, new_figure, printable
from perfmodel.render.plots.legend import add_legend, legend_height
from perfmodel.render.plots.palette import PALETTE, SHAPES
from perfmodel.serving.load_report import deployment_name
from perfmodel.serving.points import CONCURRENCY, Point
from perfmodel.serving.slo import Objective, Slo

_LONGEST = 40
#: width of the figure, height of its axes, room above and below them [inches]
_WIDTH, _TALL, _ABOVE, _XLABEL = 8.4, 3.05, 0.45, 0.6
#: height of the label of an objective above its line [inches]
_LABEL_INCHES = 0.2
#: width of the axes that has labels as a share of the figure's, and of a character of a label [inches]
_LABELLED, _LETTER = 0.36, 0.075
_PANELS = (("ttft_s", "ttft", "time to first token"), ("tpot_s", "tpot", "time per output token"))

#: panel -> names of the objectives that are about it; gaps between tokens are times per token
_LIMITED = {"ttft": ("ttft",), "tpot": ("tpot", "itl")}
Dashes = tuple[int, ...]
#: dashes of several statistics
_DASHES: tuple[Dashes, ...] = ((4, 2), (1, 1), (6, 2, 1, 2), (8, 3), (3, 1, 1, 1, 1, 1))


def load_plot(points: Sequence[Point], slo: Slo | None = None) -> Figure:
    """Return two plots over the load: time to first token and, of answers of several tokens, time per token.

    Lines are means with their 80 % interval; horizontal lines are the objectives, dashed ones the statistics that these
    limit, or the last percentile where there is no objective.

    Raises
    ------
    UsageError
        When there are not two loads.
    """
    shown = [point for point in points if drawable(point.value)]
    if len({point.value for point in shown}) < 2:
        raise UsageError("a plot over the load needs two loads.", remedy="Give a range, as --qps 1..32.")
    # answers of one token have no time per token
    panels = [panel for panel in _PANELS if any(drawable(point.figures[panel[0]]["mean"]) for point in shown)]
    limits = {name: [item for item in slo.objectives if item.name in _LIMITED[name]] if slo else []
              for _, name, _ in panels}  # fmt: skip
    statistics = {name: _statistics(shown, key, limits[name]) for key, name, _ in panels}
    every = dict.fromkeys(label for of_panel in statistics.values() for label in of_panel)
    dashes = dict(zip(every, itertools.cycle(_DASHES), strict=False))
    handles = _handles(_deployments(shown), dashes)
    below = _XLABEL + legend_height([str(handle.get_label()) for handle in handles], _WIDTH)
    height = _ABOVE + _TALL + below
    figure = new_figure(_WIDTH, height)
    share = 1.0 / len(panels)
    for number, (key, name, title) in enumerate(panels):
        axes = figure.add_axes((0.08 + share * number, below / height, share - 0.1, _TALL / height))
        _panel(axes, shown, key, statistics[name], dashes)
        _objectives(axes, limits[name])
        axes.yaxis.set_major_locator(FixedLocator(log_ticks(*axes.get_ylim())))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("users (concurrency)" if shown[0].load == CONCURRENCY else "requests/s")
    add_legend(figure, handles, _WIDTH)
    return figure


def _deployments(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each deployment, by its name and by rising load."""
    facts = [point.facts for point in points]
    own: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.value):
        own.setdefault(deployment_name(point.facts, facts), []).append(point)
    return {name: own[name] for name in dict.fromkeys(deployment_name(fact, facts) for fact in facts)}


def _handles(deployments: Iterable[str], dashes: Mapping[str, Dashes]) -> list[Line2D]:
    """Return the legend: the deployments, and what lines and dashes are of each."""
    handles = [Line2D([], [], label=printable(name, _LONGEST), **_style(number))
               for number, name in enumerate(deployments)]  # fmt: skip
    handles.append(Line2D([], [], color="0.3", lw=1.5, label="mean, 80 % interval"))
    return handles + [Line2D([], [], color="0.3", lw=1.1, ls=(0, dash), label=name) for name, dash in dashes.items()]


def _style(number: int) -> dict[str, Any]:
    """Return colour and marker of a deployment."""
    return {"color": PALETTE[number % len(PALETTE)], "marker": SHAPES[number % len(SHAPES)], "ms": 4.5, "lw": 1.5}


def _panel(
    axes: Axes,
    points: Sequence[Point],
    key: str,
    statistics: Mapping[str, Callable[[Point], float]],
    dashes: Mapping[str, Dashes],
) -> None:
    """Draw a quantity of each deployment over the load: its mean with the interval, and statistics."""
    for number, (name, own) in enumerate(_deployments(points).items()):
        style = _style(number)
        loads = [point.value for point in own]
        mean = [point.figures[key]["mean"] for point in own]
        axes.plot(loads, mean, label=name, gid="mean", **style)
        if "mean_low" in own[0].figures[key]:
            low, high = ([point.figures[key][f"mean_{end}"] for point in own] for end in ("low", "high"))
            axes.fill_between(loads, low, high, color=style["color"], alpha=0.15, lw=0, gid="interval")
        for label, values in statistics.items():
            axes.plot(loads, [values(point) for point in own], ls=(0, dashes[label]), lw=1.1, color=style["color"],
                      label=f"{name}, {label}", gid="percentile")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(_ticks(points))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "s", 3)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8, which="both")
    axes.grid(color="0.92", zorder=0)


def _ticks(points: Sequence[Point]) -> list[float]:
    """Return the loads to label: those whose labels have room beside the one before on a scale of logarithms."""
    loads = sorted({point.value for point in points})
    per_decade = _LABELLED * _WIDTH / math.log10(loads[-1] / loads[0])
    kept, reached = [], -math.inf
    for load in loads:
        half = _LETTER * (len(f"{load:g}") + 1) / 2
        middle = math.log10(load) * per_decade
        if middle - half >= reached:
            kept.append(load)
            reached = middle + half
    return kept


def _statistics(
    points: Sequence[Point], key: str, objectives: Sequence[Objective]
) -> dict[str, Callable[[Point], float]]:
    """Return what is drawn beside the mean, by its name: what objectives limit, or else the last percentile."""
    percentiles = [name for name in points[0].figures[key] if name[0] == "p" and "_" not in name]
    if not objectives and percentiles:
        return {percentiles[-1]: lambda point: point.figures[key][percentiles[-1]]}
    found: dict[str, Callable[[Point], float]] = {}
    for item in objectives:
        if item.statistic != "mean" or item.quantity != key:
            found[item.statistic + (" between tokens" if item.quantity != key else "")] = partial(_value_s, item)
    return found


def _value_s(item: Objective, point: Point) -> float:
    """Return what an objective limits at a point [s]; NaN where the point has no such figure and no simulation."""
    figures = point.figures.get(item.quantity, {})
    if item.statistic in figures:
        return figures[item.statistic]
    return math.nan if point.replay is None else item.value_s(point.replay)


def _objectives(axes: Axes, objectives: Sequence[Objective]) -> None:
    """Draw the limits of objectives, with a label above each, or below it where the next limit is close above."""
    low, high = axes.get_ylim()
    limits = sorted(objectives, key=lambda item: item.limit_s)
    if limits:
        axes.set_ylim(min(low, limits[0].limit_s / 1.6), max(high, limits[-1].limit_s * 1.6))
    low, high = axes.get_ylim()
    for number, item in enumerate(limits):
        above_s = limits[number + 1].limit_s if number + 1 < len(limits) else math.inf
        below = math.log(above_s / item.limit_s) < _LABEL_INCHES / _TALL * math.log(high / low)
        axes.axhline(item.limit_s, color="0.15", lw=1.0, ls=(0, (1, 1.5)), gid="objective")
        axes.annotate(str(item), (0.02, item.limit_s), (0, -3 if below else 3), ("axes fraction", "data"),
                      "offset points", va="top" if below else "bottom", fontsize=8, color="0.15")  # fmt: skip
