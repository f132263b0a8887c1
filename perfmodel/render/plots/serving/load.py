"""Time to first token and time per token against the load, with intervals, percentiles and the objectives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import drawable, new_figure, printable
from perfmodel.render.plots.palette import PALETTE, SHAPES
from perfmodel.serving.load_report import deployment_name
from perfmodel.serving.points import CONCURRENCY, Point
from perfmodel.serving.slo import Objective, Slo

_LONGEST = 40
_PANELS = (("ttft_s", "ttft", "time to first token"), ("tpot_s", "tpot", "time per output token"))

#: panel -> names of the objectives that are about it; gaps between tokens are times per token
_LIMITED = {"ttft": ("ttft",), "tpot": ("tpot", "itl")}
#: dashes of several statistics in one panel
_DASHES = ((4, 2), (1, 1), (6, 2, 1, 2))


def load_plot(points: Sequence[Point], slo: Slo | None = None) -> Figure:
    """Return two plots over the load: time to first token, and time per token.

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
    figure = new_figure(8.4, 4.6)
    for number, (key, name, title) in enumerate(_PANELS):
        axes = figure.add_axes((0.08 + 0.5 * number, 0.24, 0.4, 0.66))
        objectives = [item for item in slo.objectives if item.name in _LIMITED[name]] if slo else []
        _panel(axes, shown, key, objectives)
        _objectives(axes, objectives)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("users (concurrency)" if shown[0].load == CONCURRENCY else "requests/s")
    named = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    handles, labels = list(named.values()), list(named)
    figure.legend(handles, labels, loc="lower center", ncols=min(3, len(handles)), fontsize=8, frameon=False)
    return figure


def _panel(axes: Axes, points: Sequence[Point], key: str, objectives: Sequence[Objective]) -> None:
    facts = [point.facts for point in points]
    names = list(dict.fromkeys(deployment_name(fact, facts) for fact in facts))
    statistics = _statistics(points, key, objectives)
    for number, name in enumerate(names):
        own = sorted((p for p in points if deployment_name(p.facts, facts) == name), key=lambda point: point.value)
        color = PALETTE[number % len(PALETTE)]
        loads = [point.value for point in own]
        mean = [point.figures[key]["mean"] for point in own]
        axes.plot(loads, mean, marker=SHAPES[number % len(SHAPES)], ms=4.5, lw=1.5, color=color,
                  label=f"{printable(name, _LONGEST)}, mean and 80 % interval", gid="mean")  # fmt: skip
        if "mean_low" in own[0].figures[key]:
            low, high = ([point.figures[key][f"mean_{end}"] for point in own] for end in ("low", "high"))
            axes.fill_between(loads, low, high, color=color, alpha=0.15, lw=0)
        for dashes, (label, values) in zip(itertools.cycle(_DASHES), statistics.items(), strict=False):
            axes.plot(loads, [values(point) for point in own], ls=(0, dashes), lw=1.1, color=color,
                      label=f"{printable(name, _LONGEST)}, {label}", gid="percentile")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted({point.value for point in points})[:12])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "s", 3)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8, which="both")
    axes.grid(which="both", color="0.92", zorder=0)


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
    for item in objectives:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, item.limit_s / 1.3), max(high, item.limit_s * 1.5))
        axes.axhline(item.limit_s, color="0.15", lw=1.0, ls=(0, (1, 1.5)), gid="objective")
        axes.annotate(str(item), (0.02, item.limit_s), (0, 3), ("axes fraction", "data"), "offset points",
                      fontsize=8, color="0.15")  # fmt: skip
