"""The plots of `serve`: the deployments by throughput or load, and one load over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cli._output import check_plot, save_plot
from perfmodel.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.serving.points import Point
    from perfmodel.serving.study import Outcome, Study


#: what `--plot` can draw
_PLOTS = ("pareto", "load", "steps")


def check_drawn(path: str | None, kind: str | None, timeline: str | None) -> None:
    """Raise for files that no plot can be written to, and for a kind of plot that there is not.

    Raises
    ------
    UsageError
        When a file has another suffix, the kind is unknown, or there is no file for it.
    """
    check_plot(path)
    check_plot(timeline)
    if kind is not None and kind not in _PLOTS:
        raise unknown_name("plot", kind, _PLOTS, place="--plot-kind")
    if kind is not None and path is None:
        raise UsageError("there is no plot.", place="--plot-kind", remedy="Add --plot FILE.png.")


def draw(
    points: list[Point], outcomes: list[Outcome], study: Study, path: str | None, kind: str | None, timeline: str | None
) -> None:
    """Draw the deployments, and the last load over time, into the files that are given."""
    if path:
        _draw_deployments(points, outcomes, study, path, kind)
    if timeline:
        _draw_timeline(points[-1], timeline)


def _draw_deployments(points: list[Point], outcomes: list[Outcome], study: Study, path: str, kind: str | None) -> None:
    """Draw the deployments into a file: by the load, if no kind of plot is asked for."""
    from perfmodel.render.plots import plot

    chosen = tuple(outcome.largest for outcome in outcomes if outcome.largest)
    drawn = kind or ("load" if study.load == "qps" else "pareto")
    save_plot(plot(points, kind=drawn, slo=study.slo, chosen=chosen), path)


def _draw_timeline(point: Point, path: str) -> None:
    """Draw keys and values, running and queued requests over the time of one load into a file."""
    from perfmodel.render.plots import plot
    from perfmodel.serving.load_report import load_name

    title = f"{point.facts['hardware']}, {point.facts['engine']}: {load_name(point)}"
    save_plot(plot(point.replay, title=title), path)
