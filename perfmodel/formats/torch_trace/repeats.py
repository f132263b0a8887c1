"""GPU work that was launched before the trace began: which later work of a repeating run it equals.

A GPU may run a step behind the host, so that a trace begins with kernels whose launches it does not have. Training
repeats: where the same sequence of kernels comes again later, with launches, the operators of those are the operators
of these.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.profile.timeline import Floats, Ints

#: the last kernels before the first launch, which have to come again in the same order; a step has hundreds
PROBE = 64
#: share of all kernels without a launch that have to come again in their places
LEAST_EQUAL = 0.9
#: later kernels of a stream that are searched, to bound the time
MOST_SEARCHED = 200_000
#: factor that durations may differ by, in the median, where a stream has too few kernels for names alone to tell
MOST_APART = 1.3


def same_work_later(name: Ints, launch: Ints, lane: Ints, duration_s: Floats) -> Ints:
    """Return for each GPU event without a launch the index of a later event that stands for it, else -1.

    Streams with few kernels, as those of communication, are compared by their durations too, and only where a longer
    stream repeats.

    Parameters
    ----------
    name, launch, duration_s : of the events in the order of their starts; a ``launch`` of -1 is not in the trace.
    lane : number of the stream and device of each event.
    """
    later = np.full(name.size, -1, dtype=np.int64)
    lanes = [np.flatnonzero(lane == number) for number in distinct(lane)]
    unlaunched = [_leading(launch[events] < 0) for events in lanes]
    repeats = False
    for events, before in sorted(zip(lanes, unlaunched, strict=True), key=lambda one: -one[1]):
        if before >= PROBE:
            shift = _by_names(name[events], before)
            repeats = repeats or shift > 0
        else:
            shift = _by_durations(name[events], duration_s[events], before) if repeats and before else 0
        if shift:
            own, other = events[:before], events[shift : shift + before]
            equal = name[own] == name[other]
            later[own[equal]] = other[equal]
    return later


def _leading(mask: NDArray[np.bool_]) -> int:
    """Return how many values are true before the first that is not; 0 if none is not."""
    others = np.flatnonzero(~mask)
    return int(others[0]) if others.size else 0


def _by_names(name: Ints, before: int) -> int:
    """Return how many places later the first ``before`` names come again, 0 if they do not."""
    probe = name[before - PROBE : before]
    searched = name[before : before + MOST_SEARCHED]
    if searched.size < PROBE:
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(searched, PROBE)
    for start in np.flatnonzero(windows[:, 0] == probe[0]).tolist():
        shift = start + PROBE
        if shift < before or shift + before > name.size or not np.array_equal(windows[start], probe):
            continue
        if np.mean(name[:before] == name[shift : shift + before]) >= LEAST_EQUAL:
            return shift
    return 0


def _by_durations(name: Ints, duration_s: Floats, before: int) -> int:
    """Return how many places later names and durations of the first ``before`` events are the most alike, 0 if not."""
    best, found = math.log(MOST_APART), 0
    logs = np.log(np.maximum(duration_s, 1e-9))
    for shift in range(before, min(name.size, PROBE * PROBE) - before + 1):
        if np.array_equal(name[:before], name[shift : shift + before]):
            apart = float(np.median(np.abs(logs[:before] - logs[shift : shift + before])))
            if apart < best:
                best, found = apart, shift
    return found
