"""Tokens a second and GPU against tokens a second for a user: every point, the front, and the chosen point."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import drawable, log_ticks, new_figure, printable
from perfmodel.render.plots.labels import LabelPlacer
from perfmodel.render.plots.legend import add_legend, legend_height
from perfmodel.render.plots.palette import PALETTE, SHAPES
from perfmodel.serving.load_report import deployment_name, load_name
from perfmodel.serving.points import Point

_LONGEST = 44
#: width of the figure, height of its axes, room above and below them [inches]
_WIDTH, _TALL, _ABOVE, _XLABEL = 7.6, 3.9, 0.5, 0.6
#: most points whose load is written beside them
_MOST_LABELS = 14
#: most deployments with a colour of their own
_MOST_COLORS = 8
#: Okabe and Ito's yellow, which no deployment has: it is too pale without a black edge
_CHOSEN = "#F0E442"
#: a deployment without a colour; of a single load there is no line, but a point
_OTHERS: Mapping[str, Any] = {"color": "0.7", "lw": 0.8, "marker": ".", "ms": 5, "zorder": 1}


def pareto_plot(points: Sequence[Point], chosen: Sequence[Point] = ()) -> Figure:
    """Return a plot of throughput a GPU against speed for a user.

    Parameters
    ----------
    points : deployments at loads; those of one deployment are joined by a line.
    chosen : points that are marked: the largest loads that meet the objectives; the best of them has a label.

    Raises
    ------
    UsageError
        When no point has tokens after the first.
    """
    shown = [point for point in (*points, *chosen) if drawable(point.tokens_per_s_per_gpu, _per_user(point))]
    if not shown:
        raise UsageError("the plot needs points with answers of two tokens or more.")
    facts = [point.facts for point in shown]
    names = [deployment_name(fact, facts) for fact in facts]
    colored = _colored(names, shown, chosen)
    figure = new_figure(_WIDTH, _TALL)
    axes = figure.add_axes((0.11, 0.0, 0.86, 1.0))
    for name in dict.fromkeys(names):
        own = [point for point, of in zip(shown, names, strict=True) if of == name and point not in chosen]
        own.sort(key=_per_user)
        number = colored.index(name) if name in colored else -1
        style = dict(_OTHERS)
        if number >= 0:
            style = {"color": PALETTE[number], "marker": SHAPES[number], "ms": 5, "lw": 1.0, "alpha": 0.85,
                     "label": printable(name, _LONGEST), "zorder": 3}  # fmt: skip
        x, y = [_per_user(point) for point in own], [point.tokens_per_s_per_gpu for point in own]
        axes.plot(x, y, gid="deployment", **style)
    others = len(set(names)) - len(colored)
    if others:
        axes.plot([], [], label=f"{others} other deployments", **_OTHERS)
    _front(axes, shown)
    best = max(chosen, key=lambda point: point.tokens_per_s_per_gpu, default=None)
    if best is not None:
        axes.plot([_per_user(best)], [best.tokens_per_s_per_gpu], "*", ms=15, color=_CHOSEN, mec="black", mew=0.7,
                  zorder=6, label="chosen", gid="chosen")  # fmt: skip
    axes.set_xlabel("tokens/s for a user (1 / TPOT)")
    axes.set_ylabel("output tokens/s a GPU")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, values in (
        (axes.xaxis, [_per_user(point) for point in shown]),
        (axes.yaxis, [point.tokens_per_s_per_gpu for point in shown]),
    ):
        if min(values) == max(values):  # the usual margin of a logarithmic axis is none around one value
            axis.set_view_interval(values[0] / 2, values[0] * 2, ignore=True)
        axis.set_major_locator(FixedLocator(log_ticks(*axis.get_view_interval())))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    axes.grid(color="0.92", zorder=0)
    axes.set_title("Throughput of a GPU against speed for a user", fontsize=10)
    _add_legend(figure, axes)
    _label_loads(axes, shown, best)
    return figure


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Write the legend below the axes, and make the figure as much higher as it takes."""
    handles = axes.get_legend_handles_labels()[0]
    below = _XLABEL + legend_height([str(handle.get_label()) for handle in handles], _WIDTH)
    height = _ABOVE + _TALL + below
    figure.set_size_inches(_WIDTH, height)
    axes.set_position((0.11, below / height, 0.86, _TALL / height))
    add_legend(figure, handles, _WIDTH)


def _colored(names: Sequence[str], points: Sequence[Point], chosen: Sequence[Point]) -> list[str]:
    """Return the deployments that have a colour: all of a few; of many those with most points on the front."""
    every = list(dict.fromkeys(names))
    if len(every) <= _MOST_COLORS:
        return every
    name_of = {id(point): name for point, name in zip(points, names, strict=True)}
    counts = Counter(name_of[id(point)] for point in (*front_of(points), *chosen))
    return [name for name, _ in counts.most_common(_MOST_COLORS)]


def _per_user(point: Point) -> float:
    mean = point.figures["tpot_s"]["mean"]
    return 1.0 / mean if mean > 0 else math.nan


def front_of(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in both figures, by rising speed for a user."""
    best = -math.inf
    front = []
    for point in sorted(points, key=lambda point: (-_per_user(point), -point.tokens_per_s_per_gpu)):
        if point.tokens_per_s_per_gpu > best:
            front.append(point)
            best = point.tokens_per_s_per_gpu
    return front[::-1]


def _front(axes: Axes, points: Sequence[Point]) -> None:
    front = front_of(points)
    if len(front) < 2:  # a single point is no line
        return
    axes.plot(
        [_per_user(point) for point in front], [point.tokens_per_s_per_gpu for point in front], ls=(0, (4, 2)), lw=2.2,
        color="0.35", zorder=1, label="front: no point is better in both", gid="front",
    )  # fmt: skip


def _label_loads(axes: Axes, points: Sequence[Point], best: Point | None) -> None:
    """Write the load beside the points of the front, as many as there is room for."""
    # the chosen point may be one of the others, evaluated once more
    taken = None if best is None else (_per_user(best), best.tokens_per_s_per_gpu)
    front = [point for point in front_of(points) if (_per_user(point), point.tokens_per_s_per_gpu) != taken]
    step = max(1, math.ceil(len(front) / _MOST_LABELS))
    placer = LabelPlacer(axes)
    centres = np.array([[_per_user(point), point.tokens_per_s_per_gpu] for point in points])
    placer.mark(placer.points_of(centres), 4.0)
    whole = front_of(points)
    for one, other in itertools.pairwise(whole):
        ends = [(_per_user(point), point.tokens_per_s_per_gpu) for point in (one, other)]
        placer.block_line(np.array(ends), 2.0)
    labelled = front[::step] + ([best] if best is not None else [])
    named = [((_per_user(point), point.tokens_per_s_per_gpu), load_name(point)) for point in labelled]
    placer.label(named, fontsize=7.5, color="0.25")
