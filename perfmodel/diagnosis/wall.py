"""A traced run as a profile whose entries add up to its wall time, so that speedups refer to elapsed time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.call_sites import wait_labels
from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.gaps import IdleReason
from perfmodel.profile.profile import Profile, ProfileEntry

LAUNCH_GAPS = "[launch gaps]"
#: prefix of the names that `sync_name` returns
SYNC_GAPS = "[sync: "
_IDLE = "[idle: "
BEFORE_WINDOW = "[GPU work that began before the window]"
#: why an exchange of one rank alone has no bound
WAITS = "its time may hold waits for other ranks"
#: share of the time of an exchange or a copy that kernels may hide before its bound says nothing about the rest
_HIDDEN = 0.01
_PARTLY_HIDDEN = "kernels hide a part of it, and a bound is of the whole"


def sync_name(label: str) -> str:
    """Return the name of the entry for the waits in an operator or API call.

    >>> sync_name("aten::item")
    '[sync: aten::item]'
    """
    return f"{SYNC_GAPS}{label}]"


def idle_name(reason: IdleReason) -> str:
    """Return the name of the entry for idle time with a reason.

    >>> idle_name(IdleReason.INPUT)
    '[idle: input pipeline]'
    """
    return f"{_IDLE}{reason}]"


def gap_dimension(name: str) -> Dimension | None:
    """Return the dimension of an entry that stands for gaps, by its name; None for an entry of GPU work."""
    if name == LAUNCH_GAPS:
        return Dimension.LAUNCH
    if name.startswith(SYNC_GAPS):
        return Dimension.SYNC
    return Dimension.IDLE if name.startswith(_IDLE) else None


def wall_profile(profile: Profile, decomposition: Decomposition) -> Profile:
    """Return a profile whose entries add up to the wall time of a traced run.

    Each entry of the profile keeps its name. Its time becomes the time that it adds to the busy time of its GPU
    (`Decomposition.share_s`): for communication and copies, the time that no kernel hides. The times in which a GPU
    runs nothing become entries of their own: "[launch gaps]", "[sync: aten::item]", "[idle: input pipeline]" and the
    other reasons for idling (`perfmodel.diagnosis.gaps.IdleReason`). With several GPUs, times, calls, FLOP and bytes
    are means over them. The time line stays with ``profile``, to whose entries its events refer.

    Parameters
    ----------
    profile : a profile with a time line whose events refer to their entries.
    decomposition : the decomposition of that time line.
    """
    timeline, num_gpus = profile.timeline, len(decomposition.devices)
    assert timeline is not None
    entry_of, share_s = timeline.gpu.entry, decomposition.share_s
    if not entry_of.size:
        entry_of = np.full(share_s.size, -1, dtype=np.int64)
    counted = entry_of >= 0
    times = np.bincount(entry_of[counted], weights=share_s[counted], minlength=len(profile.entries)) / num_gpus
    entries = [_scaled(entry, float(time), num_gpus) for entry, time in zip(profile.entries, times, strict=True)]
    entries = [_visible(entry, whole.time_s / num_gpus) for entry, whole in zip(entries, profile.entries, strict=True)]
    rest_s = float(share_s[~counted].sum()) / num_gpus
    if rest_s > 0:
        events = int(np.count_nonzero(share_s[~counted] > 0))
        entries.append(_gap(BEFORE_WINDOW, rest_s, events, "it began before the window"))
    entries.extend(_gap_entries(profile, decomposition))
    wall = replace(profile, entries=tuple(entry for entry in entries if entry.time_s > 0), timeline=None)
    assert math.isclose(wall.total_time_s, decomposition.wall_s, rel_tol=1e-6)
    return wall


def without_waiting_bounds(wall: Profile) -> Profile:
    """Return a wall time whose exchanges have no bound, as for one rank alone: waits for others are no headroom."""
    entries = (
        _unbounded(entry, WAITS) if entry.category == EventKind.COMMUNICATION else entry for entry in wall.entries
    )
    return replace(wall, entries=tuple(entries))


def _visible(entry: ProfileEntry, whole_s: float) -> ProfileEntry:
    """Return an entry of the wall time, without its operator where kernels hide a part of an exchange or a copy."""
    if entry.category not in (EventKind.COMMUNICATION, EventKind.MEMCPY) or entry.time_s >= (1 - _HIDDEN) * whole_s:
        return entry
    return _unbounded(entry, _PARTLY_HIDDEN)


def _unbounded(entry: ProfileEntry, reason: str) -> ProfileEntry:
    if entry.op is None and entry.flop is None and entry.bytes is None:
        return entry
    return replace(entry, op=None, flop=None, bytes=None, not_modelled=reason)


def _scaled(entry: ProfileEntry, time_s: float, num_gpus: int) -> ProfileEntry:
    """Return an entry with its share of the wall time, the mean over the GPUs."""
    if num_gpus == 1:
        return replace(entry, time_s=time_s)
    return replace(
        entry,
        time_s=time_s,
        calls=None if entry.calls is None else max(1, round(entry.calls / num_gpus)),
        flop=None if entry.flop is None else entry.flop / num_gpus,
        bytes=None if entry.bytes is None else entry.bytes / num_gpus,
    )


def _gap(name: str, time_s: float, calls: int, reason: str) -> ProfileEntry:
    return ProfileEntry(name, time_s, calls, category=EventKind.HOST, not_modelled=reason)


def _gap_entries(profile: Profile, decomposition: Decomposition) -> list[ProfileEntry]:
    """Return the entries for the times in which a GPU runs nothing, the longest first."""
    timeline, num_gpus = profile.timeline, len(decomposition.devices)
    assert timeline is not None
    times: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for gaps in decomposition.gaps.values():
        parts = {LAUNCH_GAPS: gaps.launch_s} | {idle_name(reason): part_s for reason, part_s in gaps.idle_s.items()}
        for name, part_s in parts.items():
            times[name] += float(part_s.sum())
            calls[name] += int(np.count_nonzero(part_s))
        waited = np.flatnonzero(gaps.sync_s)
        labels = wait_labels(timeline, gaps.sync_call[waited])
        for label, sync_s in zip(labels, gaps.sync_s[waited].tolist(), strict=True):
            times[sync_name(label)] += sync_s
            calls[sync_name(label)] += 1
    entries = [
        _gap(name, time_s / num_gpus, max(1, round(calls[name] / num_gpus)), "the GPU runs nothing")
        for name, time_s in times.items()
    ]
    return sorted(entries, key=lambda entry: -entry.time_s)
