"""Intervals about what is expected: independent errors add up as squares, and come off as such."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.prediction.stretch import NONE, Stretch

ENDS = st.builds(Stretch, st.floats(0, 3), st.floats(0, 3))


@given(ENDS, ENDS)
def test_an_error_that_is_added_can_be_taken_off(one: Stretch, other: Stretch) -> None:
    assert one.beside(other).without(other) == pytest.approx(one, abs=1e-6)
    for same in (one.beside(NONE), one.without(NONE)):
        assert same == pytest.approx(one, abs=1e-9)


@given(ENDS, ENDS)
def test_ends_never_cross_what_is_expected(one: Stretch, other: Stretch) -> None:
    """Also where more is taken off than there is, as with errors that were estimated from other rows."""
    for found in (one.without(other), one.beside(other)):
        low, high = found.around(2.0)
        assert 0.0 < low <= 2.0 <= high
    assert one.without(one) == NONE


def test_an_interval_widens_by_an_independent_error_in_a_sweep_as_alone() -> None:
    doubt = Stretch(0.3, 0.4)
    expected, low, high = np.array([1.0, 2.0]), np.array([math.exp(-0.4), 1.0]), np.array([math.exp(0.3), 4.0])
    swept = doubt.widened(expected, low, high)
    for index in range(2):
        point = float(expected[index]), float(low[index]), float(high[index])
        alone = doubt.beside(Stretch.between(*point)).around(point[0])
        assert (swept[0][index], swept[1][index]) == pytest.approx(alone)  # type: ignore[index]
    assert (swept[0][0], swept[1][0]) == pytest.approx((math.exp(-0.5), math.exp(0.5)))  # type: ignore[index]
