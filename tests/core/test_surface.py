"""A residual surface is multilinear between its knots, 0 beyond its data, and the same for scalars and arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.surface import Sheet, Surface, SurfaceAxis

#: knots of a size at 1, 2, ... 32, with 0 at 32; knots of another at 4, 16, 64, 256, with 0 at both ends; a share
AXES = (
    SurfaceAxis("m", 0.0, 1.0, 6, 0.0, 4.0),
    SurfaceAxis("n", 2.0, 2.0, 4, 4.0, 6.0),
    SurfaceAxis("idle", 0.0, 1.0, 2, 0.0, 1.0),
)


def surface() -> Surface:
    values = np.random.default_rng(0).normal(0.0, 0.1, (6, 4, 2))
    values[-1] = values[:, 0] = values[:, -1] = 0.0
    return Surface("any", AXES, {"": Sheet(values), "own": Sheet(2.0 * values)})


SURFACE = surface()
MEAN = SURFACE.sheet("nobody's")


def test_knots_are_their_values() -> None:
    for place in np.ndindex(6, 4, 2):
        sizes = [float(2.0 ** axis.knots[index]) for axis, index in zip(AXES, place, strict=True)]
        assert SURFACE.at(sizes, MEAN) == pytest.approx(MEAN.values[place], abs=1e-7)


def test_between_knots_it_is_the_mean_of_both() -> None:
    between = SURFACE.at([2.0**1.5, 16.0, 1.0], MEAN)
    assert between == pytest.approx((MEAN.values[1, 1, 0] + MEAN.values[2, 1, 0]) / 2, abs=1e-7)


def test_beyond_the_data_it_fades_to_zero_and_says_so() -> None:
    assert SURFACE.holds([16.0, 64.0, 1.5])
    for sizes in ([64.0, 16.0, 1.0], [1e9, 16.0, 1.0], [2.0, 1.0, 1.0], [2.0, 1e6, 2.0]):
        assert SURFACE.at(sizes, MEAN) == 0.0
        assert not SURFACE.holds(sizes)
    half = SURFACE.at([2.0**4.5, 16.0, 1.0], MEAN)
    assert half == pytest.approx(MEAN.values[4, 1, 0] / 2, abs=1e-7)


def test_a_library_without_values_has_a_share_of_the_mean_and_an_unnamed_one_the_mean() -> None:
    assert SURFACE.sheet("") is SURFACE.sheets[""]
    half = dataclasses.replace(SURFACE, common=0.5)
    np.testing.assert_allclose(half.sheet("nobody's bf16", "nobody's").values, 0.5 * SURFACE.sheets[""].values)
    assert SURFACE.sheet("nobody's", "own") is SURFACE.sheets["own"]


@given(st.lists(st.tuples(*[st.floats(0.5, 1e4)] * 3), min_size=1, max_size=20))
def test_arrays_are_scalars(points: list[tuple[float, float, float]]) -> None:
    columns = [np.array(column) for column in zip(*points, strict=True)]
    found = np.asarray(SURFACE.at(columns, MEAN))
    inside = np.asarray(SURFACE.holds(columns))
    for index, sizes in enumerate(points):
        assert found[index] == pytest.approx(SURFACE.at(list(sizes), MEAN), abs=1e-6)
        assert inside[index] == SURFACE.holds(list(sizes))
        assert abs(found[index]) <= np.abs(MEAN.values).max() + 1e-6


def test_a_size_that_all_points_share_may_stay_a_number() -> None:
    m = np.array([1.0, 3.0, 40.0])
    shared, each = (SURFACE.at([m, n, idle], MEAN) for n, idle in ((30.0, 1.2), (np.full(3, 30.0), np.full(3, 1.2))))
    np.testing.assert_allclose(shared, each, atol=1e-7)


def test_sizes_of_other_shapes_are_spread_over_each_other() -> None:
    m, n, idle = np.array([[1.0], [3.0]]), np.array([20.0, 30.0, 70.0]), np.array([1.0, 1.2, 2.0])[:, None, None]
    spread = SURFACE.at([m, n, idle], MEAN)
    each = SURFACE.at([np.ascontiguousarray(size) for size in np.broadcast_arrays(m, n, idle)], MEAN)
    np.testing.assert_array_equal(spread, each)
    few = SURFACE.at([np.array([3.0]), 30.0, idle[:, 0, 0]], MEAN)
    np.testing.assert_allclose(few, [SURFACE.at([3.0, 30.0, share], MEAN) for share in (1.0, 1.2, 2.0)], rtol=1e-14)
