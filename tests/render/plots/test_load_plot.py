"""The plot of latencies over the load: what an objective limits is drawn beside its line."""

from __future__ import annotations

import numpy as np

from perfmodel.core.vocabulary import Limiter
from perfmodel.render.plots.serving.load import load_plot
from perfmodel.serving.points import QPS, Point
from perfmodel.serving.slo import parse_slo


def _point(rate: float) -> Point:
    """Return a point of one deployment, made by hand: all statistics grow with the load."""
    shares = {"mean": 1.0, "p50": 0.9, "p90": 1.5, "p95": 2.0, "p99": 4.0}
    figures = {name: {key: 1e-3 * share * rate for key, share in shares.items()}
               for name in ("ttft_s", "tpot_s", "itl_s")}  # fmt: skip
    return Point(
        facts={"hardware": "h100-sxm5-80gb", "tp": 1, "gpus": 1},
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
