"""One rank as if no other had been late, and what its own lateness costs the job.

The ranks of a job meet at their exchanges, so the job runs at the pace of the rank that comes last. That rank waits for
nobody: what shortens it shortens the job, until the next rank sets the pace.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.projection.replay import replay
from perfmodel.diagnosis.ranks.host import computing_entries
from perfmodel.diagnosis.ranks.job import Job, incomplete_notes, ranks_text
from perfmodel.diagnosis.ranks.lateness import arrivals_beside, lateness_beside
from perfmodel.diagnosis.ranks.summary import EXPOSED, RankSummary
from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import HOST_WORK
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Floats

#: name of the part of a rank without a time line of its GPU in which the others wait for it
LATE = "[idle: the others wait for this rank]"
#: names of the parts of a rank without a GPU in which it computes nothing
HOST_IDLE = "[idle: no operator computes]"
HOST_EXPOSED = "[communication that no operator covers]"
_NO_OPERATOR = "no operator computes"
#: times since 1970 in float64 are exact to 0.24 us
_SAME_S = 1e-6


def without_waits(profile: Profile, start_s: Floats, wait_s: Floats) -> Profile:
    """Return a rank as if all others had arrived at each exchange when it did.

    Exchanges lose the time in which they waited, and the time line is replayed
    (`perfmodel.diagnosis.projection.replay.replay`). A rank without a GPU stays as it is: its operators only queue
    exchanges.

    Parameters
    ----------
    profile : of the rank.
    start_s, wait_s : of its exchanges, the start on the clock of its host, as of `Job.waits_of` [s].
    """
    timeline = profile.timeline
    if timeline is None or not len(timeline.gpu) or not start_s.size:
        return profile
    gpu, zero_s = timeline.gpu, timeline.origin_s if math.isfinite(timeline.origin_s) else 0.0
    exchanges = np.flatnonzero(gpu.are(EventKind.COMMUNICATION))
    if not exchanges.size:
        return profile
    order = np.argsort(start_s)
    begin_s, waited_s = start_s[order] - zero_s, wait_s[order]
    nearest = np.clip(np.searchsorted(begin_s, gpu.start_s[exchanges] - _SAME_S), 0, begin_s.size - 1)
    found = np.abs(begin_s[nearest] - gpu.start_s[exchanges]) <= _SAME_S
    exchanges, waited_s = exchanges[found], waited_s[nearest[found]]
    own_s = gpu.duration_s.copy()
    own_s[exchanges] = np.maximum(own_s[exchanges] - waited_s, 0.0)
    lost_s = gpu.duration_s - own_s
    factor = np.divide(own_s, gpu.duration_s, out=np.ones(len(gpu)), where=gpu.duration_s > 0)
    entries = profile.entries
    if gpu.entry.size:
        counted = gpu.entry >= 0
        less_s = np.bincount(gpu.entry[counted], weights=lost_s[counted], minlength=len(entries))
        entries = tuple(
            replace(entry, time_s=max(entry.time_s - float(part_s), 0.0)) if part_s > 0 else entry
            for entry, part_s in zip(entries, less_s, strict=True)
        )
    return replace(profile, entries=entries, timeline=replay(timeline, factor, host=1.0))


def host_wall(profile: Profile, rank: RankSummary) -> Profile:
    """Return a rank without a GPU as a profile whose entries add up to its wall time.

    wall = operators that compute + communication that no operator covers + the rest, in which no operator computes. Its
    waits for others are in the communication. Operators of several threads at once are scaled to the wall time that is
    left for them.

    Parameters
    ----------
    profile, rank : the profile of the rank, and its summary.
    """
    entries = computing_entries(profile)
    exposed_s = rank.times_s[EXPOSED]
    left_s = rank.wall_s - exposed_s
    computed_s = math.fsum(entry.time_s for entry in entries)
    if computed_s > left_s:
        entries = tuple(replace(entry, time_s=entry.time_s * left_s / computed_s) for entry in entries)
    rest = (
        ProfileEntry(HOST_EXPOSED, exposed_s, category=EventKind.COMMUNICATION, not_modelled="it ran on the CPU"),
        ProfileEntry(HOST_IDLE, max(left_s - computed_s, 0.0), category=EventKind.HOST, not_modelled=_NO_OPERATOR),
    )
    return replace(profile, entries=(*entries, *(entry for entry in rest if entry.time_s > 0)))


def lateness(job: Job, wall: Profile) -> tuple[Profile, Candidate | None]:
    """Return the wall time of the rank that sets the pace, and the candidate that it comes when the others do.

    Ranks that are late together are evened out together: one alone saves nothing. The candidate can save what the other
    rank that waits least for the one that sets the pace waits for it, net; then that other one sets the pace. A rank
    that computes longer than the others hands work to them, so it saves no more than what it computes beyond the mean
    of all ranks; another one loses time of its host.

    Parameters
    ----------
    job : the ranks.
    wall : of the rank `Job.pace`; one without a GPU is completed to its wall time (`host_wall`). Where it has no gaps,
        the time in which the others wait becomes an entry.
    """
    rank = job.ranks[job.pace]
    if rank.of_host:
        wall = host_wall(wall, rank)
    if job.together is None:
        return wall, None
    worst = job.stragglers[0]
    late_s = _saved_s(job, job.together.ranks)
    if worst.computes:
        late_s = min(late_s, _beyond_mean_s(job))
        targets = [entry for entry in wall.entries if _computes(entry)]
    else:
        targets = [entry for entry in wall.entries if gap_dimension(entry.name)]
        if rank.of_host or not targets:
            wall, targets = _with_late(wall, late_s)
    total_s = math.fsum(entry.time_s for entry in targets)
    if late_s <= 0 or total_s <= 0:
        return wall, None
    kind = "batch" if worst.computes else HOST_WORK
    names = tuple(entry.name for entry in targets)
    new_s = max(total_s - late_s, 0.0)
    return wall, Candidate(f"even out {ranks_text(job.together.ranks)}", names, new_time_s=new_s, kind=kind)


def _saved_s(job: Job, late: Collection[int]) -> float:
    """Return how much longer the rank that sets the pace is waited for than it waits, by the rank that gains least [s].

    Ranks that are late with it do not count. A rank that shares some steps only counts with the mean of these. No wait
    is longer than from one arrival to the other.

    Parameters
    ----------
    job : the ranks.
    late : numbers of those that are late.
    """
    count = len(job.ranks)
    kept_s = lateness_beside(job.meetings, job.pace, len(job.steps.names), count)
    net_s = np.minimum(kept_s, arrivals_beside(job.exchanges, job.steps, job.pace, count))
    synchronisations = int(np.count_nonzero(np.isfinite(net_s).any(axis=1)))
    others_s = [column_s for number, column_s in zip(job.numbers, net_s.T, strict=True) if number not in late]
    shared_s = [column_s[np.isfinite(column_s)] for column_s in others_s]
    return min((float(column_s.mean()) * synchronisations for column_s in shared_s if column_s.size), default=0.0)


def _beyond_mean_s(job: Job) -> float:
    """Return how much longer the rank that sets the pace computes in its steps than the mean rank in as many [s]."""
    a_step_s = [rank.compute_s / len(rank.steps) for rank in job.ranks]
    return (a_step_s[job.pace] - math.fsum(a_step_s) / len(a_step_s)) * len(job.ranks[job.pace].steps)


def _with_late(wall: Profile, late_s: float) -> tuple[Profile, list[ProfileEntry]]:
    """Return the wall time with the time in which the others wait as an entry, and that entry.

    It is a part of the time in which no operator computes, where the wall time has that.
    """
    idle = next((entry for entry in wall.entries if entry.name == HOST_IDLE), None)
    if late_s <= 0:
        return wall, []
    late_s = late_s if idle is None else min(late_s, idle.time_s)
    late = ProfileEntry(LATE, late_s, category=EventKind.HOST, not_modelled=_NO_OPERATOR)
    others = (replace(entry, time_s=entry.time_s - late_s) if entry is idle else entry for entry in wall.entries)
    return replace(wall, entries=(*others, late)), [late]


def pace_notes(job: Job) -> tuple[str, ...]:
    """Return sentences about the rank that sets the pace, the ranks that are missing, and the files left out."""
    rank = job.ranks[job.pace]
    otherwise = "it computes longest" if job.unnamed else "it waits least for the others"
    why = "the others wait for it" if job.stragglers else otherwise
    if job.together is not None and len(job.together.ranks) > 1:
        why = f"the others wait for it, as for all of {ranks_text(job.together.ranks)}"
    own = (
        "The total is its wall time: operators on the CPU, communication that none covers, with its own waits for "
        "others, and the time in which no operator computes."
        if rank.of_host
        else "Its own waits for others are taken out."
    )
    found = (
        f"{len(job.ranks)} ranks: rank {job.numbers[job.pace]} ({os.path.basename(rank.place)}) sets the pace, {why}. "
        f"What shortens it shortens the job, until another rank sets the pace. {own}"
    )
    return (found, *incomplete_notes(job))


def _computes(entry: ProfileEntry) -> bool:
    moves = (EventKind.COMMUNICATION, EventKind.MEMCPY, EventKind.MEMSET)
    return gap_dimension(entry.name) is None and entry.category not in moves
