"""A run of which a scenario has changed parts on another machine, as `perfmodel.diagnosis.projection` has a profile."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.projection.project import Projection, is_replayable, project
from perfmodel.diagnosis.projection.replay import replay
from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.profile.profile import Profile, ProfileEntry

Entries = Mapping[str, ProfileEntry]


@dataclass(frozen=True)
class Trace:
    """The traced run behind entries of wall time.

    Attributes
    ----------
    profile : its entries with their GPU times, and the time line.
    wall_s : entry or gap -> its part of the wall time of that time line [s].
    parts : entry of the run -> entries of ``profile`` that it stands for; gaps and what steps have added have none.
    """

    profile: Profile
    wall_s: Mapping[str, float]
    parts: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, profile: Profile, wall: Profile) -> Trace | None:
        """Return the trace behind a wall time, or None for a profile without a time line to replay."""
        if not is_replayable(profile):
            return None
        names = {entry.name for entry in profile.entries}
        wall_s = {entry.name: entry.time_s for entry in wall.entries}
        return cls(profile, wall_s, {name: (name,) for name in wall_s if name in names})

    @classmethod
    def of_projection(cls, trace: Trace, run: Projection) -> Trace:
        """Return the trace after a move; work that nothing hides any more becomes a part of the run."""
        wall_s = {part.name: part.projected_time_s for part in run.parts}
        inside = {part for parts in trace.parts.values() for part in parts}
        names = [entry.name for entry in run.profile_there.entries if wall_s.get(entry.name, 0.0) > 0]
        parts = {**trace.parts, **{name: (name,) for name in names if name not in inside}}
        return cls(run.profile_there, wall_s, parts)

    def fused(self, targets: Collection[str], name: str) -> Trace:
        """Return the trace after some entries of the run have become one."""
        parts = {entry: parts for entry, parts in self.parts.items() if entry not in targets}
        inside = tuple(part for target in targets for part in self.parts.get(target, ()))
        return replace(self, parts={**parts, name: inside} if inside else parts)

    def part_s(self, name: str) -> float:
        """Return the wall time of what an entry of the run stands for [s]."""
        return math.fsum(self.wall_s.get(part, 0.0) for part in self.parts.get(name, (name,)))

    def changed(self, entries: Entries) -> Profile:
        """Return the traced profile with the operators and times to which the steps have changed its parts.

        The time line is replayed with the changed durations. Operators of entries that were fused stay their own.
        """
        factors, operators = {}, {}
        for name, parts in self.parts.items():
            before_s = self.part_s(name)
            factor = entries[name].time_s / before_s if before_s else 1.0
            factors.update(dict.fromkeys(parts, factor))
            if parts == (name,):
                operators[name] = entries[name]
        profile = self.profile
        changed_entries = []
        for entry in profile.entries:
            changed = operators.get(entry.name, entry)
            time_s = entry.time_s * factors.get(entry.name, 1.0)
            calls = entry.calls or changed.calls
            changed_entries.append(replace(entry, op=changed.op, calls=calls, time_s=time_s))
        timeline = profile.timeline
        assert timeline is not None
        if any(factor != 1.0 for factor in factors.values()):
            # the last element stands for events without an entry
            of_entry = np.array([*(factors.get(entry.name, 1.0) for entry in profile.entries), 1.0])
            timeline = timeline.between_gpu_work()
            timeline = replay(timeline, of_entry[timeline.gpu.entry])
        return replace(profile, entries=tuple(changed_entries), timeline=timeline)


@dataclass(frozen=True)
class Moved:
    """A run on another machine.

    Attributes
    ----------
    entries : name -> entry with its time there.
    interval : lower and upper end of the 80 % interval of the whole over its time.
    trace : the traced run there, or None.
    """

    entries: Entries
    interval: tuple[float, float]
    trace: Trace | None


def move_entries(
    entries: Entries, targets: Collection[str], machines: tuple[Hardware, Hardware], trace: Trace | None
) -> Moved:
    """Return a run with some of its entries moved to another machine (`perfmodel.diagnosis.projection.project`).

    What a time line holds is replayed as the steps so far have left it, so that the gaps of the GPU grow where its
    work becomes shorter than its launches, whichever step has made it shorter; a gap that a step has scaled keeps
    its factor. Without a time line, times in which the GPU runs nothing are the host's, and stay.

    Parameters
    ----------
    entries : the run as the steps so far have left it.
    targets : the entries that move.
    machines : from which and to which.
    trace : the traced run behind the entries.
    """
    there = dict(entries)
    low_s = high_s = 0.0
    known = set() if trace is None else {*trace.parts, *trace.wall_s}
    table = tuple(
        entry for name, entry in entries.items() if name in targets and name not in known and not gap_dimension(name)
    )
    if table:
        listed = project(Profile(table), *machines)
        there.update({entry.name: entry for entry in listed.profile_there.entries})
        low_s, high_s = (end_s - listed.whole.projected_time_s for end_s in (listed.whole.low, listed.whole.high))
    if trace is not None:
        all_move = all(name in targets for name in trace.parts)
        parts = {part for name in targets for part in trace.parts.get(name, ())}
        run = project(trace.changed(entries), *machines, only=None if all_move else parts)
        replayed = _there(trace, run, entries)
        there.update(replayed)
        replayed_s = math.fsum(entry.time_s for entry in replayed.values())
        low_s += replayed_s * (run.whole.low / run.whole.projected_time_s - 1.0)
        high_s += replayed_s * (run.whole.high / run.whole.projected_time_s - 1.0)
        trace = Trace.of_projection(trace, run)
    total_s = math.fsum(entry.time_s for entry in there.values())
    interval = (1.0 + low_s / total_s, 1.0 + high_s / total_s) if total_s else (1.0, 1.0)
    return Moved(there, interval, trace)


def _there(trace: Trace, run: Projection, entries: Entries) -> dict[str, ProfileEntry]:
    """Return what a replayed run consists of on the other machine: parts of the run, and gaps, old and new ones."""
    new_s = {part.name: part.projected_time_s for part in run.parts}
    parts_there = {}
    for name, parts in trace.parts.items():
        parts_there[name] = replace(entries[name], time_s=math.fsum(new_s.pop(part, 0.0) for part in parts))
    work = {entry.name: entry for entry in run.profile_there.entries}
    for name in (*trace.wall_s, *new_s):
        if name in entries and name not in trace.parts:
            # what a step has taken off a gap stays off it
            before_s = trace.wall_s.get(name, 0.0)
            share = entries[name].time_s / before_s if before_s else 1.0
            parts_there[name] = replace(entries[name], time_s=share * new_s.get(name, 0.0))
        elif name not in trace.wall_s and name not in parts_there and new_s[name] > 0:
            entry = work.get(name, ProfileEntry(name, 0.0, category=EventKind.HOST))
            parts_there[name] = replace(entry, time_s=new_s[name])
    return parts_there
