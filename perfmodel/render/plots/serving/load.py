"""Time to first token and time per token against the load, with intervals, the last percentile and the objectives."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import drawable, new_figure, printable
from perfmodel.render.plots.palette import PALETTE, SHAPES
from perfmodel.serving.load_report import deployment_name
from perfmodel.serving.points import CONCURRENCY, Point
from perfmodel.serving.slo import Slo

_LONGEST = 40
_PANELS = (("ttft_s", "ttft", "time to first token"), ("tpot_s", "tpot", "time per output token"))


def load_plot(points: Sequence[Point], slo: Slo | None = None) -> Figure:
    """Return two plots over the load: time to first token, and time per token.

    Lines are means with their 80 % interval; dashed lines are the last percentile; horizontal lines the objectives.

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
        _panel(axes, shown, key)
        _objectives(axes, slo, name)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("users (concurrency)" if shown[0].load == CONCURRENCY else "requests/s")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(3, len(handles)), fontsize=8, frameon=False)
    return figure


def _panel(axes: Axes, points: Sequence[Point], key: str) -> None:
    facts = [point.facts for point in points]
    names = list(dict.fromkeys(deployment_name(fact, facts) for fact in facts))
    percentiles = [name for name in points[0].figures[key] if name[0] == "p" and "_" not in name]
    percentile = percentiles[-1] if percentiles else ""
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
        if percentile:
            axes.plot(loads, [point.figures[key][percentile] for point in own], ls=(0, (4, 2)), lw=1.1, color=color,
                      label=f"{printable(name, _LONGEST)}, {percentile}", gid="percentile")  # fmt: skip
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


def _objectives(axes: Axes, slo: Slo | None, name: str) -> None:
    for item in slo.objectives if slo else ():
        if item.name != name and not (item.name == "itl" and name == "tpot"):
            continue
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, item.limit_s / 1.3), max(high, item.limit_s * 1.5))
        axes.axhline(item.limit_s, color="0.15", lw=1.0, ls=(0, (1, 1.5)), gid="objective")
        axes.annotate(str(item), (0.02, item.limit_s), (0, 3), ("axes fraction", "data"), "offset points",
                      fontsize=8, color="0.15")  # fmt: skip
