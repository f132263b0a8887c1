"""Plots of a served model: throughput against speed, latency against load, terms of a step, cache over time."""

from __future__ import annotations

from matplotlib.figure import Figure

from perfmodel.render.plots import plot
from perfmodel.serving.points import Point
from perfmodel.serving.replay import Replay
from perfmodel.serving.slo import Slo

#: what can be drawn of points
KINDS = ("pareto", "load", "steps")


@plot.register
def points_plot(
    point: Point, *, kind: str = "pareto", slo: Slo | None = None, chosen: tuple[Point, ...] = ()
) -> Figure:
    """Return a plot of a list of points: one of `KINDS`.

    Raises
    ------
    UsageError
        When the points do not suffice for the plot.
    """
    points = list(point) if isinstance(point, (list, tuple)) else [point]
    if kind == "steps":
        from perfmodel.render.plots.serving.steps import steps_plot

        return steps_plot(points)
    if kind == "load":
        from perfmodel.render.plots.serving.load import load_plot

        return load_plot(points, slo)
    from perfmodel.render.plots.serving.pareto import pareto_plot

    return pareto_plot(points, chosen)


@plot.register
def replay_plot(replay: Replay, *, title: str = "") -> Figure:
    """Return a plot of the state of the engines over the time of a simulated load."""
    from perfmodel.render.plots.serving.timeline import timeline_plot

    return timeline_plot(replay, title=title)
