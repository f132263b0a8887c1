"""The command `project`: what a profiled run would take on another machine, part by part."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import (
    AssumeOption,
    FormatOption,
    GroupEntriesOption,
    HostOption,
    OutputOption,
    ProfileArgument,
    TargetMachineOption,
    WholeTraceOption,
    WideOption,
)
from perfmodel.cli._output import Destination, context
from perfmodel.cli._profile import profiled_machine
from perfmodel.errors import UsageError


def command(
    profile: ProfileArgument,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="HW",
            help="Machine that was profiled. Default: the device that the profile names.",
            show_default=False,
        ),
    ] = None,
    assume: AssumeOption = False,
    target: TargetMachineOption = None,
    host: HostOption = None,
    by: GroupEntriesOption = "shape",
    whole_trace: WholeTraceOption = False,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Project a profile to another machine: each operator, copy and gap, and the whole, with 80 % intervals.

    Kernels with known operators follow the ratio of the predictions on both machines, others the ratio of what limits
    them. The time line of a trace is replayed, so that a run that waits for its host does not become faster.

    Example: perfmodel project trace.json.gz --from a100-sxm4-80gb --to h100-sxm5-80gb
    """
    from perfmodel.core.report import report
    from perfmodel.diagnosis.projection.project import project
    from perfmodel.formats import read_profile
    from perfmodel.hardware_catalog import hardware

    destination = Destination.of("project", format_, output, wide=wide)
    if not target:
        raise UsageError("--to is missing.", remedy="Add --to h100-sxm5-80gb; `perfmodel hardware list` has the names.")
    there = hardware(target)
    measured = read_profile(profile, by=by, all_steps=whole_trace)
    here = profiled_machine(measured, source, option="--from", assume=assume, needed=True)[0]
    assert here is not None  # as it is needed
    projection = project(measured, here, there, host=host)
    facts = context(
        profile=str(profile),
        hardware=[here.name, there.name],
        host=host,
        total_time_s=projection.whole.time_s,
        projected_time_s=projection.whole.projected_time_s,
        low=projection.whole.low,
        high=projection.whole.high,
    )
    destination.write(report(projection, context=facts))
