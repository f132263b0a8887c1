"""A job on another machine: each rank by itself, without its waits, and the rank that sets the pace there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.diagnosis.projection.project import ProjectedPart, project
from perfmodel.diagnosis.ranks.job import Job
from perfmodel.diagnosis.ranks.pace import without_waits
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Floats

_ALONE = "the rank without its waits for others"


@dataclass(frozen=True)
class ProjectedRank:
    """One rank on both machines.

    Attributes
    ----------
    whole : the rank without the time in which it waits for others.
    parts : its entries, the longest first.
    notes : the assumptions, in sentences.
    """

    whole: ProjectedPart
    parts: tuple[ProjectedPart, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ProjectedJob(Reportable):
    """A job on another machine.

    Attributes
    ----------
    job : the ranks.
    source, target : the machines.
    ranks : in the order of the job's.
    whole : the job: on each machine it takes as long as its slowest rank.
    """

    job: Job
    source: Hardware
    target: Hardware
    ranks: tuple[ProjectedRank, ...]
    whole: ProjectedPart

    @property
    def pace(self) -> int:
        """Index of the rank that sets the pace on the target."""
        return max(range(len(self.ranks)), key=lambda index: self.ranks[index].whole.projected_time_s)


def project_rank(
    profile: Profile,
    waits: tuple[Floats, Floats],
    source: Hardware,
    target: Hardware,
    *,
    host: float | None = None,
) -> ProjectedRank:
    """Return what a rank takes on another machine if no other is late.

    Parameters
    ----------
    profile : of the rank.
    waits : start and wait of its exchanges (`Job.waits_of`) [s].
    source, target, host : as in `perfmodel.diagnosis.projection.project.project`.

    Raises
    ------
    UsageError
        As `project`.
    """
    projection = project(without_waits(profile, *waits), source, target, host=host)
    return ProjectedRank(projection.whole, projection.parts, projection.notes)


def project_job(job: Job, ranks: Sequence[ProjectedRank], source: Hardware, target: Hardware) -> ProjectedJob:
    """Return the job on another machine: the ranks meet at their exchanges, so the slowest one sets the pace.

    The interval is from the largest lower to the largest upper end of the ranks' intervals.

    Parameters
    ----------
    job : the ranks.
    ranks : each of them, from `project_rank`, in the order of the job's.
    source, target : the machines.
    """
    named = tuple(
        replace(rank, whole=replace(rank.whole, name=f"rank {number}", basis=_ALONE))
        for number, rank in zip(job.numbers, ranks, strict=True)
    )
    wholes = [rank.whole for rank in named]
    here_s, there_s, low_s, high_s = (
        max(getattr(whole, name) for whole in wholes) for name in ("time_s", "projected_time_s", "low", "high")
    )
    whole = ProjectedPart("the job", here_s, there_s, low_s, high_s, "", "its slowest rank")
    return ProjectedJob(job, source, target, named, whole)
