"""The command `whatif`: the effect of each step of a scenario on a profiled run, and doubtful claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import (
    AssumeOption,
    FormatOption,
    GroupEntriesOption,
    OutputOption,
    ProfileArgument,
    ProfiledMachineOption,
    WholeTraceOption,
    WideOption,
)
from perfmodel.cli._output import BAD_FINDING, Destination, context
from perfmodel.cli._profile import check_names_machine, deployment_path, profiled_machine

if TYPE_CHECKING:
    from perfmodel.investment.what_if import WhatIf


def command(
    profile: ProfileArgument,
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
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Apply a scenario of changes to a run: total, throughput and bottleneck after each step, and doubtful claims.

    Exit code 1 if a step's claim contradicts the profile or the machine's limit.

    Example: perfmodel whatif examples/profile_gpt2.csv examples/gpt2_scenario.toml --on a100-sxm4-40gb
    """
    from perfmodel.formats import read_profile
    from perfmodel.hardware_catalog import hardware
    from perfmodel.investment.scenario import read_scenario
    from perfmodel.investment.what_if import what_if
    from perfmodel.serving.case import is_deployment_file

    destination = Destination.of("whatif", format_, output, wide=wide)
    if is_deployment_file(profile):
        check_names_machine(profile, on)
        _write(deployment_path(profile, scenario), profile, scenario, destination)
        return
    steps = read_scenario(scenario)
    measured = read_profile(profile, by=by, all_steps=whole_trace)
    machine = profiled_machine(measured, on, assume=assume)[0]
    if measured.timeline is not None:
        from perfmodel.diagnosis.diagnose import diagnose

        # Steps change wall time: overlapping work counts once, and idle gaps of the GPU are entries too.
        measured = diagnose(measured, machine).wall
    _write(what_if(measured, steps, machine, find=hardware), profile, scenario, destination)


def _write(result: WhatIf, profile: str, scenario: str, destination: Destination) -> None:
    """Write the steps, and end with an exit code for doubtful claims."""
    from perfmodel.core.report import report

    facts = context(
        profile=str(profile),
        scenario=str(scenario),
        **({"hardware": [result.hardware.name]} if result.hardware else {}),
        total_time_s=result.profile.total_time_s,
    )
    destination.write(report(result, context=facts))
    if any(step.flags for step in result.steps):
        raise typer.Exit(BAD_FINDING)
