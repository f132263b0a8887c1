"""Numbers and arrays through the same functions: what is quicker for one point says what numpy says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfmodel.core.work import anywhere, maximum, minimum, plain, where

any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(any_float, any_float)
@example(math.nan, 1.0)
@example(1.0, math.nan)
@example(math.nan, math.nan)
@example(math.inf, math.nan)
def test_the_larger_and_the_smaller_are_numpys(a: float, b: float) -> None:
    for ours, numpys in ((maximum, np.maximum), (minimum, np.minimum)):
        one, many = ours(a, b), ours(np.array([a, a]), b)
        assert one == numpys(a, b) or (math.isnan(one) and math.isnan(numpys(a, b)))
        np.testing.assert_array_equal(many, numpys([a, a], b))


def test_a_single_mask_chooses_one_of_two_values_and_an_array_point_by_point() -> None:
    assert where(True, "left", "right") == "left"
    assert where(np.float64(1.0) > 2.0, 1.0, 2.0) == 2.0
    assert where(np.array([True, False]), 1.0, np.array([2.0, 3.0])).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("mask", [True, False, np.bool_(True), np.array([False, True]), np.array([False, False])])
def test_anywhere_is_whether_a_point_holds(mask: bool | np.ndarray) -> None:
    assert anywhere(mask) is bool(np.any(mask))


@pytest.mark.parametrize("value", [2, 2.0, np.float64(2.0), np.array(2.0)])
def test_a_single_number_is_a_plain_float(value: float) -> None:
    assert type(plain(value)) is float
    assert plain(value) == 2.0
