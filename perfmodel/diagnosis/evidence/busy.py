"""What is behind the busy time of a GPU: kernels, copies and messages, the longest first."""

from __future__ import annotations

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import moves_data
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Evidence
from perfmodel.diagnosis.wall import BEFORE
from perfmodel.profile.timeline import COMMUNICATION, DEVICE_TO_HOST, HOST_TO_DEVICE, Ints

_DIRECTION = {HOST_TO_DEVICE: "host to device", DEVICE_TO_HOST: "device to host", -1: "unknown direction"}
_PINNED = {1: "pinned", 0: "pageable", -1: "pinned or not is unknown"}


def kernel_evidence(case: Case, dimension: str) -> tuple[Evidence, ...]:
    """Return the entries whose events belong to a dimension, with their limiter and what tells it."""
    gpu, share_s = case.timeline.gpu, case.divided.share_s
    mine = np.flatnonzero((case.kind == dimension) & (share_s > 0))
    entry = gpu.entry[mine] if gpu.entry.size else np.full(mine.size, -1)
    times = np.bincount(entry + 1, weights=share_s[mine], minlength=len(case.profile.entries) + 1)
    counts = np.bincount(entry + 1, minlength=len(case.profile.entries) + 1)
    found = []
    for index in np.flatnonzero(times).tolist():
        name = case.profile.entries[index - 1].name if index else BEFORE
        detail = said_of(case.limits[name]) if index else "it is counted in no entry"
        found.append(Evidence(name, float(times[index]) / case.gpus, int(counts[index]), detail))
    return tuple(sorted(found, key=lambda one: -(one.time_s or 0.0)))


def said_of(limit: Limit) -> str:
    """Return what is known of an entry's limit, for people.

    >>> from perfmodel.profile.profile import ProfileEntry
    >>> said_of(Limit(ProfileEntry("gemm", 2.0), "compute", "model", attainable_time_s=1.0))
    'compute-bound by the model; at 50 % of its bound'
    """
    words = {"model": "by the model", "counters": "by hardware counters", "kind": "by its kind", "name": "by its name"}
    said = "what limits it is not known" if not limit.basis else f"{limit.limiter}-bound {words[limit.basis]}"
    if limit.efficiency is not None:
        return f"{said}; at {100 * limit.efficiency:.0f} % of its bound"
    return said


def transfer_evidence(case: Case) -> tuple[Evidence, ...]:
    """Return exposed copies by direction and kind of host memory, and exposed communication by entry."""
    found = [*_copies(case), *_messages(case)]
    return tuple(sorted(found, key=lambda one: -(one.time_s or 0.0)))


def copy_groups(case: Case) -> dict[tuple[int, int], Ints]:
    """Return the copies between host and device in the window by direction and pinned."""
    gpu = case.timeline.gpu
    copies = np.flatnonzero(moves_data(case.timeline) & (gpu.end_s > case.timeline.window_s[0]))
    copies = copies[gpu.start_s[copies] < case.timeline.window_s[1]]
    groups = {}
    for direction in np.unique(gpu.direction[copies]).tolist():
        for pinned in np.unique(gpu.pinned[copies]).tolist():
            mine = copies[(gpu.direction[copies] == direction) & (gpu.pinned[copies] == pinned)]
            if mine.size:
                groups[direction, pinned] = mine
    return groups


def _copies(case: Case) -> list[Evidence]:
    gpu, share_s = case.timeline.gpu, case.divided.share_s
    found = []
    for (direction, pinned), mine in copy_groups(case).items():
        took_s, exposed_s = float(gpu.duration_s[mine].sum()), float(share_s[mine].sum())
        moved = float(np.nansum(gpu.bytes[mine]))
        rate = f", {format_si(moved, 'B')} at {format_si(moved / took_s, 'B/s')}" if moved and took_s else ""
        # of the time that is exposed, in the mean over the GPUs
        hidden = f"; {format_si((took_s - exposed_s) / case.gpus, 's')} hidden" if took_s > exposed_s * 1.001 else ""
        detail = f"{_PINNED[pinned]}{rate}{hidden}"
        found.append(Evidence(f"copies {_DIRECTION[direction]}", exposed_s / case.gpus, int(mine.size), detail))
    return found


def _messages(case: Case) -> list[Evidence]:
    gpu, share_s = case.timeline.gpu, case.divided.share_s
    low, high = case.timeline.window_s
    talks = np.flatnonzero((gpu.category == COMMUNICATION) & (gpu.end_s > low) & (gpu.start_s < high))
    entry = gpu.entry[talks] if gpu.entry.size else np.full(talks.size, -1)
    found = []
    for index in np.unique(entry).tolist():
        mine = talks[entry == index]
        name = case.profile.entries[index].name if index >= 0 else BEFORE
        took_s, exposed_s = float(gpu.duration_s[mine].sum()), float(share_s[mine].sum())
        detail = (
            f"communication: {format_si(exposed_s / case.gpus, 's')} exposed of {format_si(took_s / case.gpus, 's')}"
        )
        found.append(Evidence(name, exposed_s / case.gpus, int(mine.size), detail))
    return found
