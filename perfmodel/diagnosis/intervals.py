"""Sets of time intervals as arrays of shape (n, 2) [s]: union, complement, difference, overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def union(start_s: Floats, end_s: Floats) -> Floats:
    """Return the union of intervals: disjoint, ordered by start, none empty. Shape (m, 2) [s].

    >>> union(np.array([4.0, 0.0, 1.0]), np.array([5.0, 2.0, 3.0])).tolist()
    [[0.0, 3.0], [4.0, 5.0]]
    """
    filled = end_s > start_s
    start_s, end_s = start_s[filled], end_s[filled]
    if not start_s.size:
        return np.empty((0, 2))
    order = np.argsort(start_s, kind="stable")
    starts, ends = start_s[order], np.maximum.accumulate(end_s[order])
    opens = np.concatenate(([True], starts[1:] > ends[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.column_stack((starts[opens], ends[closes]))


def complement(covered: Floats, window_s: tuple[float, float]) -> Floats:
    """Return the part of a window that a union does not cover. Shape (m, 2) [s].

    >>> complement(np.array([[1.0, 2.0], [4.0, 9.0]]), (0.0, 6.0)).tolist()
    [[0.0, 1.0], [2.0, 4.0]]
    """
    low, high = window_s
    inner = covered[(covered[:, 1] > low) & (covered[:, 0] < high)]
    starts = np.concatenate(([low], inner[:, 1]))
    ends = np.concatenate((inner[:, 0], [high]))
    open_ = ends > starts
    return np.column_stack((starts[open_], ends[open_]))


def minus(left: Floats, right: Floats) -> Floats:
    """Return the part of one union that another does not cover. Shape (m, 2) [s].

    >>> minus(np.array([[0.0, 5.0]]), np.array([[1.0, 2.0], [4.0, 9.0]])).tolist()
    [[0.0, 1.0], [2.0, 4.0]]
    """
    if not left.size or not right.size:
        return left
    window = (min(left[0, 0], right[0, 0]), max(left[-1, 1], right[-1, 1]))
    outside = complement(left, window)
    both = np.concatenate((outside, right))
    return complement(union(both[:, 0], both[:, 1]), window)


def covered_s(covered: Floats, start_s: Floats, end_s: Floats) -> Floats:
    """Return how much of each interval a union covers [s].

    This is the covered length up to the end of the interval minus the covered length up to its start.

    Parameters
    ----------
    covered : a union, shape (m, 2) [s].
    start_s, end_s : ends of the intervals, shape (n,) [s]; an interval that ends before it starts has length 0.

    >>> covered_s(np.array([[1.0, 2.0], [4.0, 9.0]]), np.array([0.0, 1.5]), np.array([5.0, 1.75])).tolist()
    [2.0, 0.25]
    """
    if not covered.size:
        return np.zeros(np.shape(start_s))
    lengths = covered[:, 1] - covered[:, 0]
    before = np.concatenate(([0.0], np.cumsum(lengths)))
    # The covered length rises inside an interval and is constant between two.
    times = covered.ravel()
    lengths_so_far = np.column_stack((before[:-1], before[1:])).ravel()
    at_end = np.interp(np.maximum(start_s, end_s), times, lengths_so_far)
    overlap_s: Floats = at_end - np.interp(start_s, times, lengths_so_far)
    return overlap_s


def owned_from_s(start_s: Floats, end_s: Floats) -> Floats:
    """Return when each event starts to add to the union of the events before it [s].

    That is its start, or the end of all earlier events if that is later: an overlap belongs to the earlier event. What
    each event adds, end - owned_from where that is positive, sums to the length of the union.

    Parameters
    ----------
    start_s, end_s : shape (n,) [s], ordered by start.

    >>> owned_from_s(np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 5.0])).tolist()
    [0.0, 3.0, 3.0]
    """
    if not start_s.size:
        return start_s
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(end_s)[:-1]))
    return np.maximum(start_s, reached)
