"""A traced run as a profile whose entries add up to its wall time, so that speedups are of what the clock shows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.evidence.waits import calls_of
from perfmodel.profile.profile import HOST, Profile, ProfileEntry

LAUNCH_GAPS = "[launch gaps]"
#: how the names of `sync_name` begin
SYNC_GAPS = "[sync: "
INPUT, AWAY = "[idle: input pipeline]", "[idle: host away]"
BUSY, QUEUED = "[idle: host busy]", "[idle: held up]"
BEFORE = "[GPU work that began before the window]"


def sync_name(label: str) -> str:
    """Return the name of the entry for the waits in an operator or API call.

    >>> sync_name("aten::item")
    '[sync: aten::item]'
    """
    return f"{SYNC_GAPS}{label}]"


def wall_profile(profile: Profile, decomposition: Decomposition) -> Profile:
    """Return a profile whose entries add up to the wall time of a traced run.

    Each entry of the profile keeps its name, and has as its time what it adds to the busy time of its GPU
    (`Decomposition.share_s`): communication and copies what nothing hides. The times in which a GPU runs nothing are
    entries of their own: "[launch gaps]", "[sync: aten::item]", "[idle: input pipeline]", "[idle: host away]",
    "[idle: host busy]", "[idle: held up]". With several GPUs times, calls, FLOP and bytes are means over them.

    Parameters
    ----------
    profile : with a time line whose events know their entries.
    decomposition : of that time line.
    """
    timeline, count = profile.timeline, len(decomposition.devices)
    assert timeline is not None
    linked, share_s = timeline.gpu.entry, decomposition.share_s
    if not linked.size:
        linked = np.full(share_s.size, -1, dtype=np.int64)
    mine = linked >= 0
    times = np.bincount(linked[mine], weights=share_s[mine], minlength=len(profile.entries)) / count
    entries = [_scaled(entry, float(time), count) for entry, time in zip(profile.entries, times, strict=True)]
    rest_s = float(share_s[~mine].sum()) / count
    if rest_s > 0:
        entries.append(_gap(BEFORE, rest_s, int(np.count_nonzero(share_s[~mine] > 0)), "it began before the window"))
    entries.extend(_gaps(profile, decomposition))
    made = replace(profile, entries=tuple(entry for entry in entries if entry.time_s > 0))
    assert math.isclose(made.total_time_s, decomposition.wall_s, rel_tol=1e-6)
    return made


def _scaled(entry: ProfileEntry, time_s: float, count: int) -> ProfileEntry:
    """Return an entry with its share of the wall, of one GPU of several."""
    if count == 1:
        return replace(entry, time_s=time_s)
    return replace(
        entry,
        time_s=time_s,
        calls=None if entry.calls is None else max(1, round(entry.calls / count)),
        flop=None if entry.flop is None else entry.flop / count,
        bytes=None if entry.bytes is None else entry.bytes / count,
    )


def _gap(name: str, time_s: float, calls: int, reason: str) -> ProfileEntry:
    return ProfileEntry(name, time_s, calls, category=HOST, not_modelled=reason)


#: entry -> the part of `Gaps` that it sums
GAP_PARTS = {LAUNCH_GAPS: "launch_s", INPUT: "input_s", AWAY: "away_s", BUSY: "busy_s", QUEUED: "queued_s"}


def _gaps(profile: Profile, decomposition: Decomposition) -> list[ProfileEntry]:
    """Return the entries of the times in which a GPU runs nothing, the longest first."""
    timeline, count = profile.timeline, len(decomposition.devices)
    assert timeline is not None
    times: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for gaps in decomposition.gaps.values():
        for name, part in GAP_PARTS.items():
            length_s = getattr(gaps, part)
            times[name] += float(length_s.sum())
            calls[name] += int(np.count_nonzero(length_s))
        waited = np.flatnonzero(gaps.sync_s)
        labels = calls_of(timeline, gaps.sync_call[waited])
        for label, sync_s in zip(labels, gaps.sync_s[waited].tolist(), strict=True):
            times[sync_name(label)] += sync_s
            calls[sync_name(label)] += 1
    reason = "the GPU runs nothing"
    made = [_gap(name, time_s / count, max(1, round(calls[name] / count)), reason) for name, time_s in times.items()]
    return sorted(made, key=lambda entry: -entry.time_s)
