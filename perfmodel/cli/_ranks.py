"""The ranks of a job, from the traces that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from perfmodel.cli._output import status
from perfmodel.cli._profile import profiled_machine
from perfmodel.cli._sharing import Sharing
from perfmodel.errors import InputFileError, UsageError
from perfmodel.signals import put_off
from perfmodel.workers.sharing import for_workers

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.diagnosis.ranks.job import Job
    from perfmodel.diagnosis.ranks.projection import ProjectedRank
    from perfmodel.diagnosis.ranks.summary import RankSummary
    from perfmodel.profile.profile import Profile
    from perfmodel.profile.timeline import Floats


class Reading(NamedTuple):
    """How the traces of a job are read: the grouping of entries, also outside of steps, and by whom."""

    by: str
    whole_trace: bool
    sharing: Sharing


def read_job(paths: Sequence[str], reading: Reading, *, keep: bool = False) -> Job:
    """Return the ranks of the job of which some files are the traces; files that cannot be read are named and left out.

    With ``keep``, so are those that Ctrl-C left unread; one that comes later waits until they are joined.

    Raises
    ------
    InputFileError
        When fewer than two of them can be read, or they are no ranks of one job.
    """
    from perfmodel.diagnosis.ranks.job import join

    tasks = [(for_workers(path), reading.whole_trace) for path in paths]
    found = reading.sharing.mapped(read_ranks, tasks, keep=keep)
    unread, paths, results = len(paths) - len(found), [paths[place] for place in found], list(found.values())
    summaries = [summary for result in results if not isinstance(result, str) for summary in result]
    failed = [result for result in results if isinstance(result, str)]
    reading.sharing.check_seen(paths, [result if isinstance(result, str) else "" for result in results])
    if len(summaries) < 2:
        if reading.sharing.ended is not None:
            raise reading.sharing.ended
        read = len(paths) - len(failed)
        reason = f"{read} of {len(paths)} traces can be read" if failed else "holds one rank"
        raise InputFileError(
            f"{reason}; the ranks of a job need two.",
            place=str(paths[0]),
            remedy=failed[0] if failed else "Give the trace of each rank.",
        )
    for reason in failed:
        status(f"warning: left out: {reason}")
    left_out = [*failed, *([f"{unread} traces, since the run was interrupted"] if unread else [])]
    if not keep or reading.sharing.ended is not None:
        return join(summaries, left_out)
    job: Job | None = None
    try:
        with put_off():  # what was read takes minutes for many ranks, and to join it seconds
            job = join(summaries, left_out)
    except KeyboardInterrupt as error:
        if job is None:  # a second one ends it
            raise
        reading.sharing.end(error, f"all {len(paths)} files were read", "")
    return job


def read_ranks(task: tuple[str, bool]) -> tuple[RankSummary, ...] | str:
    """Return the ranks in one file, or why it cannot be read; a function of a worker process."""
    from perfmodel.diagnosis.ranks.devices import devices, of_device
    from perfmodel.diagnosis.ranks.summary import summarise
    from perfmodel.formats import read_profile

    path, whole_trace = task
    try:
        profile = read_profile(path, whole_trace=whole_trace)
        several = devices(profile)
        if len(several) < 2:
            return (summarise(profile),)
        return tuple(summarise(of_device(profile, gpu), gpu) for gpu in several)
    except InputFileError as error:
        return str(error)


def read_rank(rank: RankSummary, by: str, whole_trace: bool) -> Profile:
    """Return the profile of a rank: its file, or the part of its GPU in it."""
    from perfmodel.diagnosis.ranks.devices import of_device
    from perfmodel.formats import read_profile

    profile = read_profile(rank.source, by=by, whole_trace=whole_trace)
    return profile if rank.gpu is None else of_device(profile, rank.gpu)


def job_machine(
    job: Job, on: Sequence[str] | None, *, option: str = "--on", assume: bool = False, needed: bool = False
) -> Hardware | None:
    """Return the machine of the ranks: the one that is named, else the one with the name of their device.

    Raises
    ------
    UsageError
        As `perfmodel.cli._profile.profiled_machine`.
    InputFileError
        When the ranks ran on several kinds of devices.
    """
    from perfmodel.profile.profile import Profile

    found = {rank.device: rank.place for rank in job.ranks if rank.device}
    if len(found) > 1:
        ran = ", ".join(f"{place} on {device}" for device, place in found.items())
        raise InputFileError(
            f"the ranks ran on {len(found)} kinds of devices ({ran}).",
            place=job.ranks[0].place,
            remedy="Give the traces of one job on one kind of machine.",
        )
    device = next(iter(found), "")
    return profiled_machine(Profile((), device=device), on, option=option, assume=assume, needed=needed)[0]


def refuse_cpu_times(profile: Profile | Job, on: Sequence[str] | None, *, place: str, option: str) -> None:
    """Raise a UsageError for times of a CPU that are to be projected from a GPU: one says nothing about the other.

    Parameters
    ----------
    profile : that is to be projected, or the job.
    on : the machine that the user names as the one of the profile, in ``option``.
    place : the file.
    """
    from perfmodel.cli._options import only_machine
    from perfmodel.hardware_catalog import hardware

    what, how = _cpu_times(profile)
    named = only_machine(on, option)
    if not what or (named and hardware(named).kind == "cpu"):
        return
    which = f"not times of {named}" if named else "which say nothing about a GPU"
    raise UsageError(
        f"{place} has no GPU work: its times are those of {what} on the CPU, {which}.",
        place=option,
        remedy=f"{how}; or name the CPU that it ran on, with the spec that `perfmodel calibrate --device cpu` writes.",
    )


def _cpu_times(profile: Profile | Job) -> tuple[str, str]:
    """Return what on the CPU took the times of a profile, and how to get those of its GPU; "" if it has GPU work."""
    from perfmodel.diagnosis.projection.project import is_of_cpu
    from perfmodel.diagnosis.ranks.host import is_of_host
    from perfmodel.profile.profile import Profile

    if is_of_host(profile) if isinstance(profile, Profile) else profile.of_host:
        return "operators", "Record the run on its GPUs (ProfilerActivity.CUDA)"
    if isinstance(profile, Profile) and is_of_cpu(profile):
        return "calls, ranges or operators", "Give the times of its kernels (nsys stats --report cuda_gpu_kern_sum)"
    return "", ""


def project_ranks(
    job: Job, reading: Reading, machines: tuple[Hardware, Hardware], host: float | None
) -> dict[int, ProjectedRank]:
    """Return the ranks of a job on another machine by their indices, all of them if nothing ends the work.

    ``machines`` are the one that it ran on and the other one.
    """
    tasks = [
        (rank, job.waits_of(index), reading.by, reading.whole_trace, machines, host)
        for index, rank in enumerate(job.ranks)
    ]
    return reading.sharing.mapped(project_one, tasks, keep=True, done="ranks were projected")


def project_one(
    task: tuple[RankSummary, tuple[Floats, Floats], str, bool, tuple[Hardware, Hardware], float | None],
) -> ProjectedRank:
    """Return one rank on another machine; a function of a worker process."""
    from perfmodel.diagnosis.ranks.projection import project_rank

    rank, waits, by, whole_trace, (source, target), host = task
    return project_rank(read_rank(rank, by, whole_trace), waits, source, target, host=host)


def pace_profile(job: Job, reading: Reading) -> Profile:
    """Return the profile of the rank that sets the pace of a job, without its waits for others."""
    from perfmodel.diagnosis.ranks.pace import without_waits

    profile = read_rank(job.ranks[job.pace], reading.by, reading.whole_trace)
    return without_waits(profile, *job.waits_of(job.pace))
