"""The command `whatif`: the effect of each step of a scenario on a profiled run, and doubtful claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._idle import of_several, refuse_idle
from perfmodel.cli._options import (
    AssumeOption,
    FormatOption,
    GroupEntriesOption,
    JobArgument,
    OutputOption,
    PlotOption,
    ProfiledMachineOption,
    RanksOption,
    SchedulerOption,
    WholeTraceOption,
    WideOption,
    WorkersOption,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, draw
from perfmodel.cli._profile import check_names_machine, deployment_path, profiled_machine
from perfmodel.cli._ranks import Reading, job_machine, pace_profile, read_job
from perfmodel.cli._sharing import Sharing

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.diagnosis.ranks.job import Job
    from perfmodel.investment.what_if import WhatIf
    from perfmodel.profile.profile import Profile


def command(
    ctx: typer.Context,
    profiles: JobArgument,
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="Steps as TOML, YAML or JSON: name, kind (scale, dtype, algorithm, hardware, batch, checkpoint, "
            "fuse, remove), targets, and what the kind needs (speedup or new_time, dtype, algorithm, hardware or "
            "factor).",
        ),
    ],
    on: ProfiledMachineOption = None,
    assume: AssumeOption = False,
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
    """Apply a scenario of changes to a run: total, throughput and bottleneck after each step, and doubtful claims.

    Several traces are the ranks of one job: the steps change the rank that the others wait for, and so the job.

    Exit code 1 if a step's claim contradicts the profile or the machine's limit.

    Example: perfmodel whatif examples/profile_gpt2.csv examples/gpt2_scenario.toml --on a100-sxm4-40gb
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.investment.scenario import read_scenario
    from perfmodel.investment.what_if import what_if
    from perfmodel.serving.case import is_deployment_file

    destination = Destination.of("whatif", format_, output, wide=wide)
    check_plot(plot)
    profiles = storage.expand(profiles)
    several = ranks or len(profiles) > 1
    refuse_idle(ctx, [of_several(several)])
    if not several and is_deployment_file(profiles[0]):
        check_names_machine(profiles[0], on)
        return _write(deployment_path(profiles[0], scenario), profiles, scenario, plot, destination)
    steps = read_scenario(scenario)
    reading = Reading(by, whole_trace, Sharing(workers, scheduler))
    job, measured, machine = (_of_job if several else _alone)(profiles, reading, on, assume)
    return _write(what_if(measured, steps, machine, find=hardware, job=job), profiles, scenario, plot, destination)


def _alone(
    profiles: list[str], reading: Reading, on: list[str] | None, assume: bool
) -> tuple[None, Profile, Hardware | None]:
    """Return one profile and its machine; it is no job."""
    from perfmodel.formats import read_profile

    measured = read_profile(profiles[0], by=reading.by, whole_trace=reading.whole_trace)
    return None, measured, profiled_machine(measured, on, assume=assume)[0]


def _of_job(
    profiles: list[str], reading: Reading, on: list[str] | None, assume: bool
) -> tuple[Job, Profile, Hardware | None]:
    """Return a job, the rank of it that sets the pace, and their machine."""
    job = read_job(profiles, reading)
    machine = job_machine(job, on, assume=assume)
    return job, pace_profile(job, reading), machine


def _write(result: WhatIf, profiles: list[str], scenario: str, plot: str | None, destination: Destination) -> int:
    """Write and draw the steps, and return the exit code, which tells doubtful claims."""
    from perfmodel.core.report import report

    draw(result, plot)
    facts = context(
        **({"profiles": profiles} if result.ranks else {"profile": str(profiles[0])}),
        scenario=str(scenario),
        **({"hardware": [result.hardware.name]} if result.hardware else {}),
        total_time_s=result.profile.total_time_s,
    )
    destination.write(report(result, context=facts))
    return BAD_FINDING if any(step.flags for step in result.steps) else 0
