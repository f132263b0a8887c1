"""The plot of throughput against speed for a user: every deployment is seen, and both axes have labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfmodel.core.vocabulary import Limiter
from perfmodel.render.plots.serving.pareto import pareto_plot
from perfmodel.serving.points import CONCURRENCY, Point


def _point(tp: int, per_user: float, throughput: float) -> Point:
    """Return a point of one deployment, made by hand."""
    return Point(
        facts={"hardware": "h100-sxm5-80gb", "tp": tp, "gpus": 1},
        load=CONCURRENCY,
        value=8.0,
        isl=1024.0,
        osl=256.0,
        figures={"tpot_s": {"mean": 1.0 / per_user}},
        rates={"output_tokens_per_s": throughput},
        state={},
        terms_s={},
        step_s=(1e-3, 1e-3, 1e-3),
        limiter=Limiter.HBM,
    )


def test_deployments_of_a_single_point_without_a_colour_are_seen() -> None:
    points = [_point(tp, 50.0 + tp, 1000.0 + 10 * tp) for tp in range(1, 12)]
    axes = pareto_plot(points).axes[0]
    alone = [line for line in axes.lines if line.get_gid() == "deployment" and len(line.get_xdata()) == 1]
    assert len(alone) == len(points)
    assert all(line.get_marker() not in ("None", "", None) for line in alone)


@pytest.mark.parametrize("speeds", [(63.0, 140.0), (52.9, 53.4), (2.0, 900.0)])
def test_an_axis_of_any_length_has_labels(speeds: tuple[float, float]) -> None:
    figure = pareto_plot([_point(1, speed, throughput) for speed, throughput in zip(speeds, (900, 150), strict=True)])
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        shown = [tick for tick in axis.get_ticklocs() if low <= tick <= high]
        assert len(shown) >= 3
        assert np.all(np.diff(shown) > 0)


def test_a_single_point_stands_in_the_middle_and_has_no_front() -> None:
    figure = pareto_plot([_point(1, 130.0, 960.0)], chosen=[_point(1, 130.0, 960.0)])
    axes = figure.axes[0]
    assert (*axes.get_xlim(), *axes.get_ylim()) == (65.0, 260.0, 480.0, 1920.0)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["h100-sxm5-80gb", "chosen"]


def test_the_chosen_load_is_written_once() -> None:
    points = [_point(1, speed, throughput) for speed, throughput in ((20.0, 900.0), (60.0, 500.0), (140.0, 150.0))]
    figure = pareto_plot(points, chosen=[_point(1, 20.0, 900.0)])
    FigureCanvasAgg(figure).draw()
    labels = [text for text in figure.axes[0].texts if "user" in text.get_text()]
    assert len(labels) == len(points)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_the_legend_covers_no_point(check_texts: Callable[[Figure], None], count: int) -> None:
    points = [_point(tp, 20.0 + tp, 100.0 + 10 * tp) for tp in range(1, count + 1)]
    figure = pareto_plot(points, chosen=[_point(1, 21.0, 90.0)])
    check_texts(figure)
    assert figure.legends[0].get_window_extent().y1 < figure.axes[0].get_window_extent().y0
