"""Nesting of ranges, by hand and against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.formats import nesting
from perfmodel.formats.nesting import innermost, parents, self_time


def test_nesting_by_hand():
    # thread 1: [0, 10] > [2, 5] > [3, 4], then [10, 12]; thread 2: [3, 4]
    start, end = np.array([0.0, 2, 3, 10, 3]), np.array([10.0, 5, 4, 12, 4])
    thread = np.array([1, 1, 1, 1, 2])
    parent = parents(start, end, thread)
    assert parent.tolist() == [-1, 0, 1, -1, -1]
    assert self_time(end - start, parent).tolist() == [7, 2, 1, 2, 1]
    moments = np.array([3.5, 6.0, 10.0, 12.0, 3.5, 0.0])
    assert innermost(start, end, thread, moments, np.array([1, 1, 1, 1, 2, 3])).tolist() == [2, 0, 3, -1, 4, -1]


def test_a_range_that_outlasts_the_outer_one_is_inside_all_the_same():
    # times are rounded, so that an inner range may seem to end after the outer one: [0, 10] and [4, 11]
    parent = parents(np.array([0.0, 4.0]), np.array([10.0, 11.0]), np.array([1, 1]))
    assert parent.tolist() == [-1, 0]
    # two inner ranges of 6 and 7 in one of 10: the time outside them is 0, not -3
    assert self_time(np.array([10.0, 6.0, 7.0]), np.array([-1, 0, 0])).tolist() == [0, 6, 7]


def test_nothing_is_inside_nothing():
    empty, none = np.empty(0), np.empty(0, dtype=np.int64)
    assert parents(empty, empty, none).size == 0
    assert innermost(empty, empty, none, np.array([1.0]), np.array([0])).tolist() == [-1]
    assert self_time(empty, none).size == 0


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(0, 1)), min_size=1, max_size=14)


@given(ranges=RANGES, moments=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=8))
def test_the_innermost_range_is_the_last_to_start_of_those_that_run(ranges, moments):
    start, length, thread = (np.array(column, dtype=np.int64) for column in zip(*ranges, strict=True))
    end = start + length
    at, at_thread = (np.array(column, dtype=np.int64) for column in zip(*moments, strict=True))
    found = innermost(start * 1.0, end * 1.0, thread, at * 1.0, at_thread)
    with pytest.MonkeyPatch.context() as patch:  # moments that are not there after the first steps up
        patch.setattr(nesting, "_STEPS_UP", 1)
        assert (innermost(start * 1.0, end * 1.0, thread, at * 1.0, at_thread) == found).all()
    for moment, on, index in zip(at, at_thread, found, strict=True):
        running = (thread == on) & (start <= moment) & (end > moment)
        assert (index >= 0) == running.any()
        if index >= 0:
            assert running[index]
            assert start[index] == start[running].max()


@given(ranges=RANGES, rounded=st.booleans())
def test_arrays_find_the_parents_that_a_walk_finds(ranges, rounded):
    start, length, thread = (np.array(column, dtype=np.int64) for column in zip(*ranges, strict=True))
    start = start // 8 * 8.0
    end = start + length // 2 * (1.0 + 1e-15 * rounded)
    walked = parents(start, end, thread)
    with pytest.MonkeyPatch.context() as patch:  # a walk is quicker for few ranges
        patch.setattr(nesting, "_MANY", 1)
        assert parents(start, end, thread).tolist() == walked.tolist()


def test_ranges_that_arrays_do_not_nest_are_walked_through():
    # [4, 11] ends after [0, 10] around it, and [10, 11] starts in between: it is in [4, 11], which is still running
    start, end, thread = np.array([0.0, 4.0, 10.0]), np.array([10.0, 11.0, 11.0]), np.ones(3, dtype=np.int64)
    assert nesting._by_depth(start, end) is None
    assert parents(start, end, thread).tolist() == [-1, 0, 1]
    # without the third nothing tells the two ends apart
    assert nesting._by_depth(start[:2], end[:2]).tolist() == [-1, 0]
