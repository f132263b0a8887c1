"""The roofline: limiting cases, and scalar equals array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.roofline import arithmetic_intensity, attainable_flop_per_s, bound, ridge_point
from perfmodel.errors import UsageError

positive = st.floats(1e-3, 1e15)


def test_the_ridge_point_is_where_both_ceilings_meet() -> None:
    # 312 TFLOP/s over 1555 GB/s = 200.643 FLOP/B; there I * beta = pi, so both limits agree.
    ridge = ridge_point(312e12, 1555e9)
    assert ridge == pytest.approx(200.643, abs=5e-4)
    assert attainable_flop_per_s(ridge, 312e12, 1555e9) == pytest.approx(312e12)


@given(positive, positive, positive)
def test_attainable_is_the_lower_ceiling(intensity: float, peak: float, bandwidth: float) -> None:
    rate = attainable_flop_per_s(intensity, peak, bandwidth)
    assert rate <= peak
    assert rate <= intensity * bandwidth
    assert rate in (peak, pytest.approx(intensity * bandwidth))


@given(positive, positive, positive, st.floats(1.0, 1e3))
def test_attainable_never_falls_with_intensity(i: float, peak: float, bandwidth: float, factor: float) -> None:
    assert attainable_flop_per_s(i * factor, peak, bandwidth) >= attainable_flop_per_s(i, peak, bandwidth)


def test_intensity_limits() -> None:
    assert arithmetic_intensity(0.0, 100.0) == 0.0
    assert arithmetic_intensity(0.0, 0.0) == 0.0
    assert arithmetic_intensity(1.0, 0.0) == np.inf
    assert arithmetic_intensity(12.0, 4.0) == 3.0


def test_the_ridge_point_of_lists_and_of_whole_numbers_of_numpy() -> None:
    assert np.array_equal(ridge_point([8, 12], 4), [2.0, 3.0])  # type: ignore[arg-type]
    assert type(ridge_point(np.int64(8), 4)) is float  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ridge_point([1, 2], [1, 2, 3]), r"^ridge_point: the arrays cannot be .*bytes_per_s \(3,\)"),
        (lambda: arithmetic_intensity([1, 2], [1, 2, 3]), r"^arithmetic_intensity: the arrays cannot be broadcast"),
        (
            lambda: attainable_flop_per_s([1, 2], [1, 2, 3], 4),
            r"^attainable_flop_per_s: the arrays cannot be broadcast",
        ),
        (lambda: arithmetic_intensity(-1, 2), "flop=-1 is below 0"),
        (lambda: arithmetic_intensity([1, 2], [1, -2]), r"traffic_bytes=\[1, -2\] is below 0"),
    ],
)
def test_arguments_that_fit_no_formula_are_one_message(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_the_bound_is_the_slowest_ceiling_and_names_it() -> None:
    found = bound({"compute": 2.0, "hbm": 3.0, "launch": 1.0})
    assert (found.time_s, found.limiter) == (3.0, "hbm")


def test_at_a_tie_the_first_ceiling_is_named() -> None:
    assert bound({"compute": 2.0, "hbm": 2.0}).limiter == "compute"


@given(st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=20))
def test_scalar_equals_array(rows: list[tuple[float, float, float]]) -> None:
    names = ("compute", "hbm", "launch")
    columns = dict(zip(names, np.array(rows).T, strict=True))
    together = bound(columns)
    for index, row in enumerate(rows):
        alone = bound(dict(zip(names, row, strict=True)))
        assert together.time_s[index] == alone.time_s  # type: ignore[index]
        assert together.limiter[index] == alone.limiter


def test_a_scalar_term_holds_for_every_point_of_a_sweep() -> None:
    found = bound({"hbm": np.array([0.5, 2.0]), "launch": 1.0})
    assert found.time_s.tolist() == [1.0, 2.0]  # type: ignore[union-attr]
    assert found.limiter.tolist() == ["launch", "hbm"]  # type: ignore[union-attr]
