"""Unions of intervals against a grid of points, where each operation is counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.intervals import complement, covered_s, minus, owned_from_s, union

# ends on whole numbers, so that the cells [i, i + 1) are covered whole or not at all
pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12)


def _arrays(drawn):
    start = np.array([float(low) for low, _ in drawn])
    return start, start + np.array([float(length) for _, length in drawn])


def _cells(intervals):
    return {cell for low, high in intervals for cell in range(int(low), int(high))}


@given(pairs)
def test_a_union_covers_what_any_of_its_intervals_covers(drawn):
    start, end = _arrays(drawn)
    made = union(start, end)
    assert _cells(made) == _cells(zip(start, end, strict=True))
    assert (made[1:, 0] > made[:-1, 1]).all()  # ordered, and apart


@given(pairs)
def test_a_union_and_its_complement_fill_the_window(drawn):
    made = union(*_arrays(drawn))
    open_ = complement(made, (5.0, 25.0))
    assert _cells(open_) == set(range(5, 25)) - _cells(made)


@given(pairs, pairs)
def test_a_difference_is_that_of_the_cells(left, right):
    a, b = union(*_arrays(left)), union(*_arrays(right))
    assert _cells(minus(a, b)) == _cells(a) - _cells(b)


@given(pairs, pairs)
def test_the_covered_length_is_that_of_the_cells(drawn, asked):
    made, (start, end) = union(*_arrays(drawn)), _arrays(asked)
    expected = [len(_cells(made) & _cells([(low, high)])) for low, high in zip(start, end, strict=True)]
    assert covered_s(made, start, end).tolist() == expected


@given(pairs)
def test_shares_add_up_to_the_union(drawn):
    start, end = _arrays(sorted(drawn))
    shares = np.maximum(end - owned_from_s(start, end), 0.0)
    assert shares.sum() == len(_cells(union(start, end)))
    assert (shares <= end - start).all()
