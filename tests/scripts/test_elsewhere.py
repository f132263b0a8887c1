"""Tests of what laboratories differ by."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import elsewhere
from elsewhere import RunOff, Widening, covered, left_out, widening, widths

OFF = st.floats(-2.0, 2.0, allow_nan=False)
NAMES = st.tuples(st.text(max_size=2), st.just("h100"))
GROUPS = st.dictionaries(NAMES, st.lists(OFF, min_size=1, max_size=5), min_size=2, max_size=12)


def runs(offs: list[float], end: float = 0.0) -> list[RunOff]:
    return [RunOff(off, end, end) for off in offs]


def test_runs_inside_their_intervals_need_no_widening() -> None:
    groups = {(str(name),): runs([-0.05, 0.05], 0.1) for name in range(5)}
    assert widening(groups) == Widening(0.0, 0.0)
    assert widths(groups, Widening(0.0, 0.0)) == pytest.approx([math.exp(0.2)] * 10)


def test_the_ends_leave_out_a_tenth_of_the_sources_each() -> None:
    """Eleven sources from -0.5 to 0.5: the one that is furthest on either side stays outside."""
    groups = {(str(index),): runs([0.1 * (index - 5)]) for index in range(11)}
    found = widening(groups)
    assert found.down == pytest.approx(0.4, abs=2 * elsewhere.STEP)
    assert found.up == pytest.approx(0.4, abs=2 * elsewhere.STEP)
    assert (found.low, found.high) == pytest.approx((math.exp(-found.down), math.exp(found.up)))
    inside = covered(groups, found)
    assert [name for name, share in inside.items() if share == 0.0] == [("0",), ("10",)]


@pytest.mark.filterwarnings("error")
def test_without_other_sources_nothing_is_widened() -> None:
    """One source of a kind: what all others differ by is not known, and was once the widest interval of the search."""
    assert widening({}) == Widening(0.0, 0.0)
    alone = {("only", "h100"): runs([0.05, 1.0], 0.1), ("only", "a100"): runs([-1.0], 0.1)}
    assert left_out(alone) == {("only", "h100"): 0.5, ("only", "a100"): 0.0}


def test_a_source_counts_once_however_many_runs_it_has() -> None:
    few = {(str(name),): runs([0.0]) for name in range(20)} | {("far",): runs([1.0])}
    many = few | {("far",): runs([1.0] * 1000)}
    assert widening(few) == widening(many)


@given(GROUPS)
@pytest.mark.waiting
def test_widening_is_the_least_that_covers(offs: dict[tuple[str, ...], list[float]]) -> None:
    groups = {name: runs(values, 0.05) for name, values in offs.items()}
    found = widening(groups)

    def outside(by: Widening) -> tuple[float, float]:
        def share(sign: float, width: float) -> float:
            return sum(
                sum(sign * run.off > math.hypot(0.05, width) for run in kept) / len(kept) for kept in groups.values()
            ) / len(groups)

        return share(-1.0, by.down), share(1.0, by.up)

    assert max(outside(found)) <= elsewhere.OUTSIDE
    for end in (0, 1):
        if found[end] > 0.0:
            assert outside(Widening(*(width - elsewhere.STEP for width in found)))[end] > elsewhere.OUTSIDE


def test_a_source_is_judged_by_the_others() -> None:
    groups = {(str(name),): runs([0.0]) for name in range(7)} | {("far", "a"): runs([1.0]), ("far", "b"): runs([1.0])}
    assert covered(groups, widening(groups))["far", "a"] == 1.0
    assert left_out(groups)["far", "a"] == 0.0  # the other machine of the source is left out with it
    assert left_out(groups)["0",] == 1.0
