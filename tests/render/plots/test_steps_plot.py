"""The plot of the terms of a step: its heading says whose step it is."""

from __future__ import annotations

import dataclasses

from perfmodel.core.vocabulary import Limiter
from perfmodel.render.plots.serving.steps import steps_plot
from perfmodel.serving.points import CONCURRENCY, Point


def _point(tp: int, batch: float) -> Point:
    """Return a point of one deployment, made by hand."""
    return Point(
        facts={"hardware": "h100-sxm5-80gb", "tp": tp, "gpus": tp},
        load=CONCURRENCY,
        value=batch,
        isl=1024.0,
        osl=256.0,
        figures={},
        rates={},
        state={"batch": batch},
        terms_s={"weights": 1e-3, "kv": 1e-5 * batch},
        step_s=(2e-3, 1e-3, 3e-3),
        limiter=Limiter.HBM,
    )


def test_of_several_deployments_the_heading_names_the_one_that_is_drawn() -> None:
    points = [_point(tp, batch) for tp in (2, 4, 8) for batch in (1.0, 16.0)]
    axes = steps_plot(points).axes[0]
    assert axes.get_title() == "Terms of a step, tp2: the first of 3 deployments"
    assert axes.get_xlim()[1] == 16.0


def test_of_one_deployment_the_heading_names_its_machine() -> None:
    points = [_point(2, 1.0), dataclasses.replace(_point(2, 16.0))]
    assert steps_plot(points).axes[0].get_title() == "Terms of a step on h100-sxm5-80gb"
