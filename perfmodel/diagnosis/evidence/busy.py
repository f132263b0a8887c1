"""The kernels, copies and messages that account for the busy time of a GPU, the longest first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perfmodel.core.arrays import distinct
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.decompose import moves_data
from perfmodel.diagnosis.limits import Basis, Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Evidence
from perfmodel.diagnosis.wall import BEFORE_WINDOW
from perfmodel.profile.timeline import CopyDirection, Ints

_DIRECTIONS = {
    CopyDirection.HOST_TO_DEVICE: "host to device",
    CopyDirection.DEVICE_TO_HOST: "device to host",
    CopyDirection.BETWEEN_DEVICES: "between devices",
    CopyDirection.UNKNOWN: "unknown direction",
}
_PINNED = {1: "pinned", 0: "pageable", -1: "unknown whether pinned"}
_BASES = {
    Basis.MODEL: "from the model",
    Basis.COUNTERS: "from hardware counters",
    Basis.KIND: "from its kind",
    Basis.NAME: "from its name",
}
#: copies are reported as partly hidden where they took longer than their exposed time by this factor
_HIDDEN = 1.001


def kernel_evidence(run: MeasuredRun, dimension: Dimension) -> tuple[Evidence, ...]:
    """Return the entries with events in a dimension, each with its limiter and the basis for it."""
    share_s = run.divided.share_s
    events = np.flatnonzero((run.divided.event_dimension == dimension) & (share_s > 0))
    # index 0 stands for events without an entry
    index = _entry_of(run, events) + 1
    size = len(run.profile.entries) + 1
    times = np.bincount(index, weights=share_s[events], minlength=size)
    counts = np.bincount(index, minlength=size)
    evidence = []
    for place in np.flatnonzero(times).tolist():
        name = run.profile.entries[place - 1].name if place else BEFORE_WINDOW
        detail = limit_text(run.limits[name]) if place else "no entry counts it"
        evidence.append(Evidence(name, float(times[place]) / run.num_gpus, int(counts[place]), detail))
    return longest_first(evidence)


def longest_first(evidence: list[Evidence]) -> tuple[Evidence, ...]:
    """Return evidence in the order of its time, the longest first."""
    return tuple(sorted(evidence, key=lambda item: -(item.time_s or 0.0)))


def _entry_of(run: MeasuredRun, events: Ints) -> Ints:
    """Return the entry that counts each event, or -1."""
    entry = run.timeline.gpu.entry
    return entry[events] if entry.size else np.full(events.size, -1)


def limit_text(limit: Limit) -> str:
    """Return the limiter of an entry as text, with the basis for it and the efficiency.

    >>> from perfmodel.core.vocabulary import Limiter
    >>> from perfmodel.profile.profile import ProfileEntry
    >>> limit_text(Limit(ProfileEntry("gemm", 2.0), Limiter.COMPUTE, Basis.MODEL, attainable_time_s=1.0))
    'limited by compute (from the model), efficiency 50 %'
    """
    text = f"limited by {limit.limiter} ({_BASES[limit.basis]})" if limit.basis else "limiter unknown"
    if limit.efficiency is None:
        return text
    if limit.flag:
        return f"{text}, {limit.flag} (bound {limit.efficiency:.2g} times the measured time)"
    return f"{text}, efficiency {100 * limit.efficiency:.0f} %"


def transfer_evidence(run: MeasuredRun) -> tuple[Evidence, ...]:
    """Return exposed copies by direction and kind of host memory, and exposed communication by entry."""
    return longest_first([*_copies(run), *_messages(run)])


class CopyGroup(NamedTuple):
    """Copies that leave a device, of one direction and one kind of host memory.

    Attributes
    ----------
    direction : of the copies.
    pinned : 1 for pinned host memory, 0 for pageable, -1 where it is unknown.
    events : indices of the GPU events.
    """

    direction: CopyDirection
    pinned: int
    events: Ints


def copy_groups(run: MeasuredRun) -> list[CopyGroup]:
    """Return the copies that leave a device in the window, grouped by direction and kind of host memory."""
    gpu = run.timeline.gpu
    copies = np.flatnonzero(moves_data(run.timeline) & run.timeline.overlaps_window())
    if not copies.size:
        return []
    kinds = set(zip(gpu.direction[copies].tolist(), gpu.pinned[copies].tolist(), strict=True))
    return [
        CopyGroup(
            CopyDirection(direction),
            pinned,
            copies[(gpu.direction[copies] == direction) & (gpu.pinned[copies] == pinned)],
        )
        for direction, pinned in sorted(kinds)
    ]


def _copies(run: MeasuredRun) -> list[Evidence]:
    gpu, share_s = run.timeline.gpu, run.divided.share_s
    evidence = []
    for direction, pinned, events in copy_groups(run):
        duration_s, exposed_s = float(gpu.duration_s[events].sum()), float(share_s[events].sum())
        moved = float(np.nansum(gpu.bytes[events]))
        rate = f"{format_si(moved, 'B')} at {format_si(moved / duration_s, 'B/s')}" if moved and duration_s else ""
        hidden_s = (duration_s - exposed_s) / run.num_gpus
        hidden = f"; {format_si(hidden_s, 's')} hidden" if duration_s > exposed_s * _HIDDEN else ""
        memory = "" if direction == CopyDirection.BETWEEN_DEVICES else _PINNED[pinned]
        detail = ", ".join(filter(None, (memory, rate))) + hidden
        name = f"copies {_DIRECTIONS[direction]}"
        evidence.append(Evidence(name, exposed_s / run.num_gpus, int(events.size), detail))
    return evidence


def _messages(run: MeasuredRun) -> list[Evidence]:
    gpu, share_s = run.timeline.gpu, run.divided.share_s
    messages = np.flatnonzero(gpu.are(EventKind.COMMUNICATION) & run.timeline.overlaps_window())
    entry = _entry_of(run, messages)
    evidence = []
    for index in distinct(entry).tolist():
        events = messages[entry == index]
        name = run.profile.entries[index].name if index >= 0 else BEFORE_WINDOW
        duration_s = float(gpu.duration_s[events].sum()) / run.num_gpus
        exposed_s = float(share_s[events].sum()) / run.num_gpus
        detail = f"communication: {format_si(exposed_s, 's')} of {format_si(duration_s, 's')} exposed"
        evidence.append(Evidence(name, exposed_s, int(events.size), detail))
    return evidence
