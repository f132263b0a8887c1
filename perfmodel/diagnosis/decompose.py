"""The wall time of a traced run, divided into compute, memory, launch, transfer, sync and idle time without overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.core.vocabulary import Dimension, EventKind, Limiter
from perfmodel.diagnosis.gaps import Gaps, find_gaps
from perfmodel.diagnosis.intervals import covered_s, owned_from_s, union
from perfmodel.errors import UsageError
from perfmodel.profile.timeline import CopyDirection, Floats, Ints, Timeline

#: the dimensions of work that a GPU does in kernels
KERNEL_DIMENSIONS = (Dimension.COMPUTE, Dimension.MEMORY, Dimension.OTHER)
_MEMORIES = (
    *(Limiter.HBM, Limiter.DRAM, Limiter.LLC, Limiter.L3, Limiter.L2, Limiter.L1),
    *(Limiter.SHARED, Limiter.REGISTERS),
)
_DIMENSIONS: Mapping[Limiter, Dimension] = {
    Limiter.COMPUTE: Dimension.COMPUTE,
    Limiter.LINK: Dimension.TRANSFER,
    **dict.fromkeys(_MEMORIES, Dimension.MEMORY),
}


@dataclass(frozen=True)
class Decomposition:
    """The wall time of each GPU of a run, divided without overlap.

    Attributes
    ----------
    wall_s : length of the window of each GPU [s].
    devices : numbers of the GPUs.
    share_s : the time that each event adds to the busy time of its GPU [s]. Where kernels overlap, the time belongs to
        the earlier one; communication and copies have the time that no kernel covers.
    busy_s, hidden_communication_s, hidden_copy_s : total over all GPUs of the busy time, and of the time of
        communication and copies that other work covers [s].
    event_dimension : the `Dimension` of each event of the time line.
    gaps : device -> the times in which it ran nothing.
    time_s : dimension -> time [s], the mean over the GPUs; the sum is ``wall_s``.
    """

    wall_s: float
    devices: tuple[int, ...]
    share_s: Floats
    event_dimension: NDArray[np.str_]
    busy_s: float
    hidden_communication_s: float
    hidden_copy_s: float
    gaps: Mapping[int, Gaps]
    time_s: Mapping[Dimension, float] = field(default_factory=dict)


class _Hidden(NamedTuple):
    """Time of one GPU's communication and copies that other work covers [s]."""

    communication_s: float
    copy_s: float


def decompose(timeline: Timeline, limiter: NDArray[np.str_]) -> Decomposition:
    """Divide the wall time of a traced run.

    Parameters
    ----------
    timeline : the traced run.
    limiter : the `Limiter` of each event of ``timeline.gpu``; shape (events,).

    Raises
    ------
    UsageError
        When no event of a GPU lies in the window.
    """
    low, high = timeline.window_s
    gpu = timeline.gpu
    inside = timeline.overlaps_window()
    if not inside.any():
        raise UsageError(
            "the time line contains no GPU event.", remedy="Record the trace with GPU activities switched on."
        )
    devices = distinct(gpu.device[inside])
    share_s, gaps, hidden = np.zeros(len(gpu)), {}, []
    for device in devices:
        events = np.flatnonzero(inside & (gpu.device == device))
        hidden.append(_fill_shares(timeline, events, share_s))
        gaps[int(device)] = find_gaps(timeline, events, timeline.window_s)
    undivided = Decomposition(
        wall_s=high - low,
        devices=tuple(int(device) for device in devices),
        share_s=share_s,
        event_dimension=_event_dimensions(timeline, limiter),
        busy_s=float(share_s.sum()),
        hidden_communication_s=math.fsum(part.communication_s for part in hidden),
        hidden_copy_s=math.fsum(part.copy_s for part in hidden),
        gaps=gaps,
    )
    return replace(undivided, time_s=_dimension_times(undivided))


def moves_data(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which events are copies from device to device or host; a copy inside a device is work of its memory."""
    gpu = timeline.gpu
    return np.asarray(gpu.are(EventKind.MEMCPY) & (gpu.direction != CopyDirection.DEVICE_TO_DEVICE))


def dimension_of(limiter: Limiter) -> Dimension:
    """Return the dimension of GPU work with a limiter."""
    return _DIMENSIONS.get(limiter, Dimension.OTHER)


def _event_dimensions(timeline: Timeline, limiter: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return the dimension of each GPU event."""
    gpu = timeline.gpu
    transfers = moves_data(timeline) | gpu.are(EventKind.COMMUNICATION)
    in_memory = np.isin(limiter, _MEMORIES) | gpu.are(EventKind.MEMSET) | gpu.are(EventKind.MEMCPY)
    dimensions: NDArray[np.str_] = np.select(
        [transfers, in_memory, limiter == Limiter.COMPUTE],
        [Dimension.TRANSFER, Dimension.MEMORY, Dimension.COMPUTE],
        Dimension.OTHER,
    )
    return dimensions


def _fill_shares(timeline: Timeline, events: Ints, share_s: Floats) -> _Hidden:
    """Fill ``share_s`` for the events of one GPU, and return the hidden time of its communication and copies."""
    gpu = timeline.gpu
    low, high = timeline.window_s
    copies = moves_data(timeline)[events]
    communicates = gpu.are(EventKind.COMMUNICATION)[events]
    covered = np.empty((0, 2))
    hidden = []
    for chosen in (~copies & ~communicates, communicates, copies):
        group = events[chosen]
        start_s, end_s = np.maximum(gpu.start_s[group], low), np.minimum(gpu.end_s[group], high)
        owned_s = owned_from_s(start_s, end_s)
        under_s = covered_s(covered, owned_s, end_s)
        share_s[group] = np.maximum(end_s - owned_s, 0.0) - under_s
        hidden.append(float(under_s.sum()))
        covered = union(*np.concatenate((covered, union(start_s, end_s))).T)
    return _Hidden(communication_s=hidden[1], copy_s=hidden[2])


def _dimension_times(decomposition: Decomposition) -> dict[Dimension, float]:
    """Return the time of each dimension [s], the mean over the GPUs."""
    all_gaps = decomposition.gaps.values()
    times_s = {
        dimension: float(decomposition.share_s[decomposition.event_dimension == dimension].sum())
        for dimension in Dimension
    }
    times_s[Dimension.LAUNCH] = sum(float(gaps.launch_s.sum()) for gaps in all_gaps)
    times_s[Dimension.SYNC] = sum(float(gaps.sync_s.sum()) for gaps in all_gaps)
    times_s[Dimension.IDLE] = sum(float(part.sum()) for gaps in all_gaps for part in gaps.idle_s.values())
    count = len(decomposition.devices)
    total_s = math.fsum(times_s.values())
    assert math.isclose(total_s, decomposition.wall_s * count, rel_tol=1e-6), (total_s, decomposition.wall_s * count)
    return {dimension: time_s / count for dimension, time_s in times_s.items()}
