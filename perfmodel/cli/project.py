"""The command `project`: what a profiled run would take on another machine, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel import storage
from perfmodel.cli._idle import of_several, refuse_idle
from perfmodel.cli._options import (
    AssumeOption,
    FormatOption,
    GroupEntriesOption,
    HostOption,
    JobArgument,
    OutputOption,
    PlotOption,
    RanksOption,
    SchedulerOption,
    TargetMachinesOption,
    WholeTraceOption,
    WideOption,
    WorkersOption,
    only_machine,
    option,
)
from perfmodel.cli._output import Destination, check_plot, context, draw
from perfmodel.cli._profile import profiled_machine
from perfmodel.cli._ranks import Reading, job_machine, project_ranks, read_job, refuse_cpu_times
from perfmodel.cli._sharing import Sharing, end_code
from perfmodel.errors import InputFileError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.diagnosis.projection.project import ProjectedPart
    from perfmodel.diagnosis.ranks.job import Job


def command(
    ctx: typer.Context,
    profiles: JobArgument,
    source: Annotated[
        list[str] | None,
        option("--from", "Machine that was profiled. Default: the device that the profile names.", "HW"),
    ] = None,
    assume: AssumeOption = False,
    target: TargetMachinesOption = None,
    host: HostOption = None,
    by: GroupEntriesOption = "shape",
    whole_trace: WholeTraceOption = False,
    ranks: RanksOption = False,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Project a profile to another machine: each operator, copy and gap, and the whole, with 80 % intervals.

    Kernels with known operators follow the ratio of the predictions on both machines, others the ratio of what limits
    them. The time line of a trace is replayed, so that a run that waits for its host does not become faster.

    Several traces are the ranks of one job, which takes as long as its slowest rank.

    Example: perfmodel project trace.json.gz --from a100-sxm4-80gb --to h100-sxm5-80gb
    """
    from perfmodel.core.report import report
    from perfmodel.diagnosis.projection.project import project
    from perfmodel.formats import read_profile
    from perfmodel.hardware_catalog import hardware

    destination = Destination.of("project", format_, output, wide=wide)
    check_plot(plot)
    to = only_machine(target, "--to")
    if not to:
        raise UsageError("--to is missing.", remedy="Add --to h100-sxm5-80gb; `perfmodel hardware list` has the names.")
    there = hardware(to)
    profiles = storage.expand(profiles)
    is_job = ranks or len(profiles) > 1
    refuse_idle(ctx, [of_several(is_job)])
    if is_job:
        reading = Reading(by, whole_trace, Sharing(workers, scheduler))
        return _project_job(profiles, reading, source, there, host, plot, destination, assume=assume)
    measured = read_profile(profiles[0], by=by, whole_trace=whole_trace)
    refuse_cpu_times(measured, source, place=profiles[0], option="--from")
    here = profiled_machine(measured, source, option="--from", assume=assume, needed=True)[0]
    assert here is not None  # as it is needed
    projection = project(measured, here, there, host=host)
    draw(projection, plot)
    facts = context(profile=profiles[0], **_facts(projection.whole, here, there, host))
    destination.write(report(projection, context=facts))
    return 0


def _project_job(
    paths: list[str],
    reading: Reading,
    source: list[str] | None,
    there: Hardware,
    host: float | None,
    plot: str | None,
    destination: Destination,
    *,
    assume: bool,
) -> int:
    """Project the ranks of a job, as many as are done when it ends."""
    from perfmodel.core.report import report
    from perfmodel.diagnosis.ranks.projection import project_job

    job = read_job(paths, reading)
    refuse_cpu_times(job, source, place="the job", option="--from")
    here = job_machine(job, source, option="--from", assume=assume, needed=True)
    assert here is not None  # as it is needed
    ranks = project_ranks(job, reading, (here, there), host)
    projected = project_job(_job_of(job, list(ranks), reading.sharing), list(ranks.values()), here, there)
    draw(projected, plot)
    facts = context(
        profiles=paths, **_facts(projected.whole, here, there, host), missing_ranks=list(projected.job.missing)
    )
    destination.write(report(projected, context=facts))
    return end_code(reading.sharing.ended)


def _job_of(job: Job, known: Sequence[int], sharing: Sharing) -> Job:
    """Return the job of the ranks that are known where the work was ended before all of them were.

    Raises
    ------
    KeyboardInterrupt, WorkersLostError
        What ended it, where they are no job of their own.
    """
    from perfmodel.diagnosis.ranks.job import join

    if sharing.ended is None:
        return job
    left_out = f"{len(job.ranks) - len(known)} ranks, since the run was interrupted"
    try:
        return join([replace(job.ranks[index], rank=job.numbers[index]) for index in known], [*job.left_out, left_out])
    except InputFileError:
        raise sharing.ended from None


def _facts(whole: ProjectedPart, here: Hardware, there: Hardware, host: float | None) -> dict[str, Any]:
    """Return what JSON says of the whole of a projection."""
    return {
        "hardware": [here.name, there.name],
        "host": host,
        "total_time_s": whole.time_s,
        "projected_time_s": whole.projected_time_s,
        "low": whole.low,
        "high": whole.high,
    }
