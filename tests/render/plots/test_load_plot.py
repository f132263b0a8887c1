"""The plot of latencies over the load: what an objective limits is drawn beside its line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from perfmodel.core.vocabulary import Limiter
from perfmodel.render.plots.serving.load import load_plot
from perfmodel.serving.points import QPS, Point
from perfmodel.serving.slo import parse_slo


def _point(rate: float, tp: int = 1, hardware: str = "h100-sxm5-80gb") -> Point:
    """Return a point of a deployment, made by hand: all statistics grow with the load."""
    shares = {"mean": 1.0, "p50": 0.9, "p90": 1.5, "p95": 2.0, "p99": 4.0}
    figures = {name: {key: 1e-3 * share * rate for key, share in shares.items()}
               for name in ("ttft_s", "tpot_s", "itl_s")}  # fmt: skip
    return Point(
        facts={"hardware": hardware, "tp": tp, "gpus": 1},
        load=QPS,
        value=rate,
        isl=1024.0,
        osl=256.0,
        figures=figures,
        rates={},
        state={},
        terms_s={},
        step_s=(1e-3, 1e-3, 1e-3),
        limiter=Limiter.HBM,
    )


POINTS = [_point(1.0), _point(8.0)]


def dashed(slo: str | None) -> list[dict[str, list[float]]]:
    """Return the dashed lines of both panels, by their label."""
    figure = load_plot(POINTS, None if slo is None else parse_slo(slo))
    return [
        {str(line.get_label()).rpartition(", ")[2]: list(np.asarray(line.get_ydata()))
         for line in axes.lines if line.get_gid() == "percentile"}
        for axes in figure.axes
    ]  # fmt: skip


def test_the_statistic_of_an_objective_is_drawn() -> None:
    first, later = dashed("ttft=500ms,tpot:p90=30ms")
    assert first == {"p95": [2e-3, 16e-3]}
    assert later == {"p90": [1.5e-3, 12e-3]}


def test_several_objectives_of_a_quantity_have_a_line_each_and_a_mean_none() -> None:
    first, later = dashed("ttft:p50=1s,ttft:p99=2s,tpot:mean=30ms,itl=40ms")
    assert list(first) == ["p50", "p99"]
    assert list(later) == ["p95 between tokens"]


def test_without_objectives_the_last_percentile_is_drawn() -> None:
    assert [list(lines) for lines in dashed(None)] == [["p99"], ["p99"]]
    # a panel without an objective of its own, too
    assert [list(lines) for lines in dashed("ttft=1s")] == [["p95"], ["p99"]]


@pytest.mark.parametrize("count", [1, 2, 12])
@pytest.mark.parametrize("letters", [4, 80])
def test_the_legend_of_any_number_of_deployments_lies_below_the_axes(
    check_texts: Callable[[Figure], None], count: int, letters: int
) -> None:
    points = [_point(rate, tp, f"{tp:02d}{'x' * letters}") for tp in range(1, count + 1) for rate in (1.0, 8.0)]
    figure = load_plot(points, parse_slo("ttft:p50=1s,ttft:p99=2s,tpot:p90=30ms,itl=40ms"))
    check_texts(figure)
    legend = figure.legends[0].get_window_extent()
    assert all(legend.y1 < axes.get_window_extent().y0 for axes in figure.axes)


def test_a_kind_of_dashes_means_one_statistic_in_both_panels() -> None:
    figure = load_plot(POINTS, parse_slo("ttft:p50=1s,ttft:p99=2s,tpot:p90=30ms,itl=40ms"))
    shown = [handle for handle in figure.legends[0].get_lines() if handle.get_linestyle() != "-"]
    assert len({handle._unscaled_dash_pattern for handle in shown}) == len(shown) == 4  # type: ignore[attr-defined]


def test_answers_of_one_token_have_no_panel_of_times_per_token() -> None:
    none = {"tpot_s": dict.fromkeys(("mean", "mean_low", "mean_high", "p99"), 0.0)}
    points = [dataclasses.replace(point, figures=point.figures | none) for point in POINTS]
    assert [axes.get_title() for axes in load_plot(points).axes] == ["time to first token"]


def test_an_axis_of_little_more_than_one_value_has_labels() -> None:
    for axes in load_plot([_point(8.0), _point(9.0)]).axes:
        assert sum(axes.get_ylim()[0] <= tick <= axes.get_ylim()[1] for tick in axes.get_yticks()) >= 4


@pytest.mark.parametrize("loads", [np.arange(1.0, 301.0), 2.0 ** np.arange(20), np.array([8.0, 8.5])])
def test_loads_that_are_labelled_leave_room_for_each_other(
    check_texts: Callable[[Figure], None], loads: np.ndarray
) -> None:
    figure = load_plot([_point(float(load)) for load in loads])
    check_texts(figure)
    assert len(figure.axes[0].get_xticks()) >= 2
