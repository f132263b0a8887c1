"""Variances drawn together: limiting cases, what few machines tell, and Student's t."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_hierarchy import (
    STRENGTHS,
    Expected,
    Variance,
    assumed,
    hierarchies,
    mean_square,
    scale_of,
    strength_of,
    student_quantile,
)


def drawn(deviations: list[float], freedom: int, seed: int = 0) -> list[Variance]:
    """Return the mean squares of families with some deviations, each of so many degrees of freedom."""
    random = np.random.default_rng(seed)
    return [Variance(float(np.mean(random.normal(0.0, s, freedom) ** 2)), freedom) for s in deviations]


@pytest.mark.parametrize(("freedom", "quantile"), [(2, 1.886), (3, 1.638), (5, 1.476), (10, 1.372), (30, 1.310)])
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, rel=0.03 if freedom < 3 else 0.01)
    assert student_quantile(1.0) == student_quantile(2.0)  # a variance without a mean


def test_families_with_one_deviation_are_alike_and_those_with_many_are_not() -> None:
    same = drawn([0.1] * 60, freedom=4)
    random = np.random.default_rng(1)
    apart = drawn([float(0.1 * math.sqrt(3.0 / random.chisquare(3))) for _ in range(400)], freedom=4)
    assert strength_of([same]) == STRENGTHS[-1]
    assert strength_of([apart]) == pytest.approx(3.0, abs=1.0)


def test_the_scale_of_many_families_is_theirs() -> None:
    assert math.sqrt(scale_of(drawn([0.2] * 200, freedom=4), 50.0)) == pytest.approx(0.2, rel=0.06)


def test_one_family_alone_tells_nothing_of_how_alike_families_are() -> None:
    assert strength_of([[Variance(0.01, 3.0)], []]) == assumed(0.1).strength


@given(st.floats(0.01, 1.0), st.integers(2, 20), st.floats(2.0, 50.0))
def test_fewer_parts_are_never_narrower(deviation: float, count: int, strength: float) -> None:
    expected = Expected(Variance(deviation**2, math.inf), strength)
    few, many = (expected.next([deviation**2] * parts) for parts in (count, count + 1))
    assert many <= few * (1 + 1e-9)
    assert expected.next([]) >= many


@given(st.floats(0.01, 1.0), st.floats(2.0, 50.0))
def test_a_deviation_lies_between_its_own_and_what_is_usual(own: float, strength: float) -> None:
    variance = Variance(0.04, math.inf).drawn(mean_square([own**2] * 3), strength)
    assert min(own, 0.2) - 1e-12 <= math.sqrt(variance.value) <= max(own, 0.2) + 1e-12


def test_what_nobody_measured_takes_what_is_assumed_with_a_wider_tail() -> None:
    (regime,) = hierarchies([{}], [{}], [0.15])
    assert regime.kind("streams").variance.value == pytest.approx(0.15**2)
    assert regime.kind("streams").next([]) > 0.15


def test_a_host_is_known_to_differ() -> None:
    assert assumed(0.1).at_least(0.4) == assumed(0.4)
    assert assumed(0.5).at_least(0.4) == assumed(0.5)
