"""Tests of what runs with random arrivals differ by."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import open_loops
from elsewhere import Widening
from open_loops import Open, OpenRun

from perfmodel.serving.laboratories import ELSEWHERE, HYBRID


def run(laboratory: str, ratio: float, kind: str = ELSEWHERE, *, first: bool = False, own: float = 0.1) -> OpenRun:
    """Return a figure that measured so many times its prediction; its interval grows with the span of steps."""
    downs, ups = (np.hypot(own, reach) for reach in (open_loops._DOWN, open_loops._UP))
    return OpenRun(laboratory, "h100", "vllm", kind, False, first, math.log(ratio), downs, ups)


def test_runs_inside_ask_for_nothing() -> None:
    runs = [run(str(name), 1.05, first=first) for name in range(12) for first in (False, True)]
    assert open_loops.fit(runs)[ELSEWHERE] == Open()
    assert open_loops.share(runs, Open(), first=False) == open_loops.share(runs, Open(), first=True) == 1.0
    assert open_loops.left_out(runs, first=True) == {ELSEWHERE: (1.0, 1.0)}


def test_steps_take_the_least_span_that_leaves_a_tenth_of_the_groups_outside() -> None:
    """Twenty groups, of which the two slowest may stay outside: the third takes twice as long."""
    ratios = [4.0, 3.0, 2.0, *[1.0] * 17]
    found = open_loops.fitted([run(str(name), ratio) for name, ratio in enumerate(ratios)])
    assert found.step.high == pytest.approx(2.0, rel=2 * open_loops.STEP)
    assert found.step.high >= 2.0 * math.exp(-0.1)
    assert found.step.low == 1.0
    assert found.first == Widening(0.0, 0.0)


def test_first_tokens_take_what_steps_leave() -> None:
    steps = [run(str(name), 2.0) for name in range(12)]
    same = open_loops.fitted([*steps, *(run(str(name), 2.0, first=True) for name in range(12))])
    later = open_loops.fitted([*steps, *(run(str(name), 4.0, first=True) for name in range(12))])
    assert same.step == later.step
    assert same.first.up < 0.1  # the grid of lines between the spans
    assert math.hypot(same.step.up, later.first.up) == pytest.approx(math.log(4.0), rel=0.05)


def test_a_group_counts_once_however_many_figures_it_has() -> None:
    few = [run(str(name), 1.0) for name in range(20)] + [run("far", 3.0)]
    assert open_loops.fitted(few) == open_loops.fitted(few + [run("far", 3.0)] * 50)


def test_kinds_of_few_laboratories_take_what_all_ask_for_where_theirs_lie_outside() -> None:
    many = [run(str(name), 2.0, first=first) for name in range(12) for first in (False, True)]
    outside = open_loops.fit([*many, run("one", 2.0, HYBRID)])
    inside = open_loops.fit([*many, run("one", 1.0, HYBRID)])
    assert outside[HYBRID].step.up > 0.5
    assert inside[HYBRID] == Open()
    assert inside[ELSEWHERE].step.up > 0.5


def test_a_laboratory_that_is_left_out_tells_nothing_of_itself() -> None:
    """One of twelve that is far off is outside what the others ask for, whichever of its sources is judged."""
    runs = [run(f"l{name}", 1.0) for name in range(11)] + [run("far", 3.0)]
    inside, by_laboratory = open_loops.left_out(runs, first=False)[ELSEWHERE]
    assert inside == pytest.approx(11 / 12)
    assert by_laboratory == pytest.approx(11 / 12)


@pytest.mark.parametrize(
    ("source", "laboratory"),
    [("gpustack-glm46-h200", "gpustack"), ("dstack-405b-qps", "dstack"), ("vllm-pr23696", "vllm-pr23696")],
)
def test_sources_of_one_laboratory_are_left_out_together(source: str, laboratory: str) -> None:
    assert open_loops.laboratory_of(source) == laboratory
