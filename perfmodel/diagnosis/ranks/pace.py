"""One rank as if no other had been late, and what its own lateness costs the job.

The ranks of a job meet at their exchanges, so the job runs at the pace of the rank that comes last. That rank waits for
nobody: what shortens it shortens the job, until the next rank sets the pace.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np

from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.projection.replay import replay
from perfmodel.diagnosis.ranks.job import Job, incomplete_notes
from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import HOST_WORK
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Floats

#: name of the part of a rank without a time line of its GPU in which the others wait for it
LATE = "[idle: the others wait for this rank]"
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


def lateness(job: Job, wall: Profile) -> tuple[Profile, Candidate | None]:
    """Return the wall time of the rank that sets the pace, and the candidate that it comes when the others do.

    It can save what the rank that waits for it least waits; then that one sets the pace. A rank that computes longer
    than the others hands work to them, so it saves no more than what it computes beyond the mean of all ranks; another
    one loses time of its host.

    Parameters
    ----------
    job : the ranks.
    wall : of the rank `Job.pace`; where it has no gaps, as without a GPU, the time of the host becomes an entry.
    """
    if not job.stragglers:
        return wall, None
    worst = job.stragglers[0]
    late_s = float(np.delete(job.waits_s[:, job.pace], job.pace).min())
    computes = worst.compute_excess_s > 0.5 * worst.waited_per_step_s
    if computes:
        computed_s = [rank.compute_s for rank in job.ranks]
        late_s = min(late_s, computed_s[job.pace] - math.fsum(computed_s) / len(computed_s))
    gaps = [entry for entry in wall.entries if gap_dimension(entry.name)]
    if not computes and not gaps:
        late = ProfileEntry(LATE, late_s, category=EventKind.HOST, not_modelled="no operator runs")
        wall, gaps = replace(wall, entries=(*wall.entries, late)), [late]
    works = [entry for entry in wall.entries if _computes(entry)]
    targets = works if computes else gaps
    total_s = math.fsum(entry.time_s for entry in targets)
    if late_s <= 0 or total_s <= 0:
        return wall, None
    kind = "batch" if computes else HOST_WORK
    names = tuple(entry.name for entry in targets)
    new_s = max(total_s - late_s, 0.0)
    return wall, Candidate(f"even out rank {worst.rank}", names, new_time_s=new_s, kind=kind)


def pace_notes(job: Job) -> tuple[str, ...]:
    """Return sentences about the rank that sets the pace, the ranks that are missing, and the files left out."""
    file = os.path.basename(job.ranks[job.pace].place)
    found = (
        f"{len(job.ranks)} ranks: rank {job.numbers[job.pace]} ({file}) sets the pace, the others wait for it. "
        "What shortens it shortens the job, until another rank sets the pace; its own waits for others are taken out."
    )
    return (found, *incomplete_notes(job))


def _computes(entry: ProfileEntry) -> bool:
    moves = (EventKind.COMMUNICATION, EventKind.MEMCPY, EventKind.MEMSET)
    return gap_dimension(entry.name) is None and entry.category not in moves
