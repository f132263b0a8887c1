"""The wall time of a traced run, divided into compute, memory, launch, transfer, sync and idle, without overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis import limits as limit_names
from perfmodel.diagnosis.gaps import Gaps, find_gaps
from perfmodel.diagnosis.intervals import Floats, covered_s, owned_from_s, union
from perfmodel.errors import UsageError
from perfmodel.profile.timeline import COMMUNICATION, DEVICE_TO_DEVICE, MEMCPY, MEMSET, Timeline

Ints = NDArray[np.int64]

#: the dimensions, in the order in which they are shown; "other kernels" where nothing tells what limits a kernel
COMPUTE, MEMORY, OTHER = "compute", "memory", "other kernels"
LAUNCH, TRANSFER, SYNC, IDLE = "launch", "transfer", "sync", "idle"
DIMENSIONS = (COMPUTE, MEMORY, OTHER, LAUNCH, TRANSFER, SYNC, IDLE)


@dataclass(frozen=True)
class Decomposition:
    """The wall time of each GPU of a run, without overlap.

    Attributes
    ----------
    wall_s : length of the window [s], of each GPU.
    devices : numbers of the GPUs.
    share_s : what each event of the time line adds to the busy time of its GPU [s]; where kernels overlap, the earlier
        has the time; communication and copies have what no kernel covers.
    busy_s, hidden_communication_s, hidden_copy_s : busy time of all GPUs together, and what of communication and
        copies kernels hide [s].
    gaps : device -> the times in which it ran nothing.
    time_s : dimension -> time [s], the mean over the GPUs; the sum is ``wall_s``.
    """

    wall_s: float
    devices: tuple[int, ...]
    share_s: Floats
    busy_s: float
    hidden_communication_s: float
    hidden_copy_s: float
    gaps: Mapping[int, Gaps]
    time_s: Mapping[str, float] = field(default_factory=dict)


def decompose(timeline: Timeline, limiter: NDArray[np.str_]) -> Decomposition:
    """Divide the wall time of a traced run.

    Parameters
    ----------
    timeline : the traced run.
    limiter : what limits each event of ``timeline.gpu``, as `perfmodel.diagnosis.limits` names it; shape (events,).

    Raises
    ------
    UsageError
        When no event of a GPU lies in the window.
    """
    low, high = timeline.window_s
    gpu = timeline.gpu
    inside = (gpu.end_s > low) & (gpu.start_s < high)
    if not inside.any():
        raise UsageError(
            "the time line holds no event of a GPU.", remedy="Trace with the GPU's activities switched on."
        )
    devices = np.unique(gpu.device[inside])
    share_s, gaps = np.zeros(len(gpu)), {}
    hidden = np.zeros(2)
    for device in devices:
        events = np.flatnonzero(inside & (gpu.device == device))
        hidden += _share(timeline, events, share_s)
        gaps[int(device)] = find_gaps(timeline, events, timeline.window_s)
    made = Decomposition(
        wall_s=high - low,
        devices=tuple(int(device) for device in devices),
        share_s=share_s,
        busy_s=float(share_s.sum()),
        hidden_communication_s=float(hidden[0]),
        hidden_copy_s=float(hidden[1]),
        gaps=gaps,
    )
    return replace(made, time_s=_dimensions(timeline, made, limiter))


def moves_data(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which events are copies between host and device; one inside the device is work of its memory."""
    gpu = timeline.gpu
    found: NDArray[np.bool_] = (gpu.category == MEMCPY) & (gpu.direction != DEVICE_TO_DEVICE)
    return found


def event_dimensions(timeline: Timeline, limiter: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return the dimension that each event of the GPUs belongs to; ``limiter`` as for `decompose`."""
    category = timeline.gpu.category
    moved = moves_data(timeline) | (category == COMMUNICATION)
    in_memory = (limiter == limit_names.MEMORY) | (category == MEMSET) | (category == MEMCPY)
    found: NDArray[np.str_] = np.select(
        [moved, in_memory, limiter == limit_names.COMPUTE], [TRANSFER, MEMORY, COMPUTE], OTHER
    )
    return found


def _share(timeline: Timeline, events: Ints, share_s: Floats) -> Floats:
    """Fill in what each event of one GPU adds to its busy time; return what is hidden of communication and copies."""
    gpu = timeline.gpu
    low, high = timeline.window_s
    moves = moves_data(timeline)[events]
    talks = gpu.category[events] == COMMUNICATION
    covered = np.empty((0, 2))
    hidden = []
    for chosen in (~moves & ~talks, talks, moves):
        mine = events[chosen]
        start_s, end_s = np.maximum(gpu.start_s[mine], low), np.minimum(gpu.end_s[mine], high)
        owned_s = owned_from_s(start_s, end_s)
        under_s = covered_s(covered, owned_s, end_s)
        share_s[mine] = np.maximum(end_s - owned_s, 0.0) - under_s
        hidden.append(float(under_s.sum()))
        own = union(start_s, end_s)
        covered = union(*np.concatenate((covered, own)).T)
    return np.array(hidden[1:])


def _dimensions(timeline: Timeline, made: Decomposition, limiter: NDArray[np.str_]) -> dict[str, float]:
    """Return the time of each dimension [s], the mean over the GPUs."""
    kind = event_dimensions(timeline, limiter)
    parts = {
        **{name: made.share_s[kind == name].sum() for name in (COMPUTE, MEMORY, OTHER)},
        LAUNCH: sum(gaps.launch_s.sum() for gaps in made.gaps.values()),
        TRANSFER: made.share_s[kind == TRANSFER].sum(),
        SYNC: sum(gaps.sync_s.sum() for gaps in made.gaps.values()),
        IDLE: sum(gaps.idle_s.sum() for gaps in made.gaps.values()),
    }
    count = len(made.devices)
    total = math.fsum(float(value) for value in parts.values())
    assert math.isclose(total, made.wall_s * count, rel_tol=1e-6), (total, made.wall_s * count)
    return {name: float(value) / count for name, value in parts.items()}
