"""Finds the innermost range around each range or moment: the operator around an operator, or around a runtime call."""

from __future__ import annotations

import numpy as np

from perfmodel.profile.timeline import Floats, Ints


def parents(start: Floats, end: Floats, thread: Ints) -> Ints:
    """Return for each range the index of the innermost range around it on its thread, or -1.

    A range is inside another one that started earlier, or at the same time and ends later, and that is still running.
    It counts as inside even if it ends later than the outer one, since times are rounded.
    """
    order = np.lexsort((-end, start, thread))
    return _sweep(order, start, end, thread, start.size)


def innermost(start: Floats, end: Floats, thread: Ints, at: Floats, at_thread: Ints) -> Ints:
    """Return for each moment ``at`` on a thread the index of the innermost range around it, or -1."""
    count = start.size
    starts, threads = np.concatenate([start, at]), np.concatenate([thread, at_thread])
    ends = np.concatenate([end, at])
    is_moment = np.arange(starts.size) >= count
    order = np.lexsort((-ends, is_moment, starts, threads))
    return _sweep(order, starts, ends, threads, count)[count:]


def _sweep(order: Ints, start: Floats, end: Floats, thread: Ints, ranges: int) -> Ints:
    """Walk through time thread by thread with a stack of running ranges; indices below ``ranges`` are ranges."""
    around = [-1] * start.size
    starts, ends, threads = start.tolist(), end.tolist(), thread.tolist()
    stack: list[int] = []
    current = None
    for index in order.tolist():
        if threads[index] != current:
            current = threads[index]
            stack.clear()
        moment = starts[index]
        while stack and ends[stack[-1]] <= moment:
            stack.pop()
        if stack:
            around[index] = stack[-1]
        if index < ranges:
            stack.append(index)
    return np.array(around, dtype=np.int64)


def self_time(duration: Floats, parent: Ints) -> Floats:
    """Return each range's time outside its direct children, at least 0."""
    inner = np.bincount(parent[parent >= 0], weights=duration[parent >= 0], minlength=duration.size)
    return np.maximum(duration - inner, 0.0)
