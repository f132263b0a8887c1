"""Finds the innermost range around each range or moment: the operator around an operator, or around a runtime call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from perfmodel.profile.timeline import Floats, Ints

#: ranges that are Python numbers at a time, which take four times the memory of arrays
_AT_A_TIME = 65536
#: ranges of a thread from which arrays find the parents sooner than a walk does
_MANY = 400
#: steps up that the moments climb together; deeper ones are rare, and walked through
_STEPS_UP = 64


def parents(start: Floats, end: Floats, thread: Ints) -> Ints:
    """Return for each range the index of the innermost range around it on its thread, or -1.

    A range is inside another one that started earlier, or at the same time and ends later, and that is still running.
    It counts as inside even if it ends later than the outer one, since times are rounded.
    """
    return _parents(_in_order(start, end, thread), start, end, thread)


def innermost(
    start: Floats, end: Floats, thread: Ints, at: Floats, at_thread: Ints, parent: Ints | None = None
) -> Ints:
    """Return for each moment ``at`` on a thread the index of the innermost range around it, or -1.

    Of the ranges that run at a moment, it is the last to start; ranges that started later have ended, and so have those
    between a range that has ended and its parent. So the search begins at the last range that started, and climbs from
    parent to parent.

    Parameters
    ----------
    start, end, thread : of the ranges.
    at, at_thread : the moments.
    parent : of the ranges, as `parents` returns it; worked out if it is not given.
    """
    if not start.size or not at.size:
        return np.full(at.size, -1, dtype=np.int64)
    order = _in_order(start, end, thread)
    if parent is None:
        parent = _parents(order, start, end, thread)
    inner = _last_started(order, start, thread, at, at_thread)
    climbing = np.flatnonzero(inner >= 0)
    for _ in range(_STEPS_UP):
        if not climbing.size:
            break
        climbing = climbing[end[inner[climbing]] <= at[climbing]]
        inner[climbing] = parent[inner[climbing]]
        climbing = climbing[inner[climbing] >= 0]
    if climbing.size:
        # a moment is a range without length, which is around nothing
        moment, on = at[climbing], at_thread[climbing]
        start, end, thread = (
            np.concatenate([start, moment]),
            np.concatenate([end, moment]),
            np.concatenate([thread, on]),
        )
        inner[climbing] = parents(start, end, thread)[-climbing.size :]
    return inner


def _in_order(start: Floats, end: Floats, thread: Ints) -> Ints:
    """Return the ranges thread by thread by their starts, outer ones before inner ones."""
    if (start[1:] > start[:-1]).all() and (thread[1:] == thread[:-1]).all():  # as a trace has those of one thread
        return np.arange(start.size)
    return np.lexsort((-end, start, thread))


def _last_started(order: Ints, start: Floats, thread: Ints, at: Floats, at_thread: Ints) -> Ints:
    """Return for each moment the last range of its thread, in order, that started by then, or -1."""
    if (thread == thread[0]).all() and (at_thread == thread[0]).all():
        place = np.searchsorted(start[order], at, side="right") - 1
        return np.where(place >= 0, order[np.maximum(place, 0)], -1)
    ordered = thread[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    threads, last = ordered[first], np.append(first[1:], order.size)
    begin = start[order]
    by_thread = np.argsort(at_thread, kind="stable")
    bounds = np.searchsorted(at_thread[by_thread], threads, side="left")
    ends = np.searchsorted(at_thread[by_thread], threads, side="right")
    found = np.full(at.size, -1, dtype=np.int64)
    for low, high, one, other in zip(first.tolist(), last.tolist(), bounds.tolist(), ends.tolist(), strict=True):
        moments = by_thread[one:other]
        place = low + np.searchsorted(begin[low:high], at[moments], side="right") - 1
        found[moments] = np.where(place >= low, order[np.maximum(place, 0)], -1)
    return found


def _parents(order: Ints, start: Floats, end: Floats, thread: Ints) -> Ints:
    """Return what `parents` does, for ranges in an order."""
    parent = np.empty(order.size, dtype=np.int64)
    threads = thread[order]
    for begin, stop in itertools.pairwise((0, *(np.flatnonzero(threads[1:] != threads[:-1]) + 1).tolist(), order.size)):
        rows = order[begin:stop]
        around = _by_depth(start[rows], end[rows]) if rows.size >= _MANY else None
        if around is None:
            _walk(rows, start, end, parent)
        else:
            parent[rows] = np.where(around >= 0, rows[around], -1)
    return parent


def _by_depth(start: Floats, end: Floats) -> Ints | None:
    """Return for each range of a thread the position of its parent, or -1; None unless each ends within its parent.

    Then those that run at a moment are all that have started less those that have ended, which gives the depth of a
    range, and its parent is the last one before it that is one less deep. Ranges without length are around nothing. One
    that ends after its parent, as rounded times do, is as good as within it if no range starts between the two ends.
    """
    has_length = end > start
    if has_length.all():
        around = before = np.arange(start.size)
    elif (end < start).any() or not has_length.any():
        return None
    else:
        around, before = np.flatnonzero(has_length), np.cumsum(has_length) - has_length
    depth = before - np.searchsorted(np.sort(end[around]), start, side="right")
    # by depth, then by position
    apart = start.size + 1
    place = np.sort(depth[around] * apart + around)
    wanted = (depth - 1) * apart + np.arange(start.size)
    parent = np.where(depth > 0, place[np.searchsorted(place, wanted) - 1] % apart, -1)
    late = np.flatnonzero((depth > 0) & (end > end[parent]))
    if late.size:
        ends, due = end[late], end[parent[late]]
        if (np.searchsorted(start, due) != np.searchsorted(start, ends)).any():
            return None
    return parent


def _walk(order: Ints, start: Floats, end: Floats, parent: Ints) -> None:
    """Fill in the parents of a thread's ranges, with a stack of running ranges: their ends, and their indices."""
    # below them lies what is around all ranges
    ends, running = [math.inf], [-1]
    for rows in _chunks(order):
        around = []
        for index, begin_s, end_s in zip(rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True):
            while ends[-1] <= begin_s:
                ends.pop()
                running.pop()
            around.append(running[-1])
            ends.append(end_s)
            running.append(index)
        parent[rows] = around


def _chunks(order: Ints) -> Iterator[Ints]:
    return (order[begin : begin + _AT_A_TIME] for begin in range(0, order.size, _AT_A_TIME))


def self_time(duration: Floats, parent: Ints) -> Floats:
    """Return each range's time outside its direct children, at least 0."""
    inner = np.bincount(parent[parent >= 0], weights=duration[parent >= 0], minlength=duration.size)
    return np.maximum(duration - inner, 0.0)
