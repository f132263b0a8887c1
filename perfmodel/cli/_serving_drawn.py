"""The plots of `serve`: the deployments by throughput or load, and one load over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cli._output import save_plot

if TYPE_CHECKING:
    from perfmodel.serving.points import Point
    from perfmodel.serving.study import Outcome, Study


def draw(points: list[Point], outcomes: list[Outcome], study: Study, path: str, kind: str | None) -> None:
    """Draw the deployments into a file: by the load, if no kind of plot is asked for."""
    from perfmodel.render.plots import plot

    chosen = tuple(outcome.largest for outcome in outcomes if outcome.largest)
    drawn = kind or ("load" if study.load == "qps" else "pareto")
    save_plot(plot(points, kind=drawn, slo=study.slo, chosen=chosen), path)


def draw_timeline(point: Point, path: str) -> None:
    """Draw keys and values, running and queued requests over the time of one load into a file."""
    from perfmodel.render.plots import plot
    from perfmodel.serving.load_report import load_name

    title = f"{point.facts['hardware']}, {point.facts['engine']}: {load_name(point)}"
    save_plot(plot(point.replay, title=title), path)
