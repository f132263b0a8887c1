"""Where the time of a profiled run goes, why, and what would bring it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._common import (
    Format,
    FormatOption,
    OutputOption,
    PlotOption,
    check_destination,
    context,
    emit,
    status,
)
from perfmodel.cli._profile import AllOption, ByOption, MachineOption, ProfileArgument, profiled_machine
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.diagnosis.result import Diagnosis
    from perfmodel.profile.profile import Profile


def command(
    profile: ProfileArgument,
    on: MachineOption = None,
    all_: AllOption = False,
    by: ByOption = "shape",
    plan_output: Annotated[
        Path | None,
        typer.Option(
            "--plan-output",
            metavar="FILE",
            help="Write the candidates as a plan (.toml) for `perfmodel roi --plan`.",
            show_default=False,
        ),
    ] = None,
    effort: Annotated[
        list[str] | None,
        typer.Option(
            "--effort",
            metavar="KIND=DAYS[:RISK]",
            help="Days of development and risk (low, medium, high) of a kind of change; may be repeated.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Compare with another profile: PROFILE is before, FILE is after (as in `compare A B`).",
            show_default=False,
        ),
    ] = None,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Where the wall time goes (compute, memory, launch, transfer, sync, idle), and what would bring it back.

    Example: perfmodel diagnose trace.json.gz --on h100-sxm5-80gb --plan-output plan.toml
    """
    from perfmodel.diagnosis.diagnose import diagnose
    from perfmodel.profile.effort import parse_effort

    table = parse_effort(effort or ())
    for path, suffixes in ((plan_output, (".toml",)), (plot, (".png", ".svg", ".pdf")), (output, ())):
        if path is not None:
            check_destination(path, *suffixes)
    if against is not None and plan_output is not None:
        raise UsageError(
            "a plan is of one profile.", place="--plan-output", remedy="Write it without --against, of the later one."
        )
    measured = _read(profile, by, all_)
    machine, found = profiled_machine(measured, on)
    made = diagnose(measured, machine, effort=table)
    if against is not None:
        later = _read(against, by, all_)
        after = diagnose(later, profiled_machine(later, on)[0], effort=table)
        _compare(made, after, (profile, against), plot, format_, output)
        return
    if plot is not None:
        _draw(made, plot)
    emit(made.report(_facts(made, profile, found)), format_, output)
    if plan_output is not None and not _write_plan(made, plan_output):
        raise typer.Exit(1)


def _read(path: Path, by: str, all_steps: bool) -> Profile:
    from perfmodel.formats import read_profile

    return read_profile(path, by=by, all_steps=all_steps)


def _facts(made: Diagnosis, path: Path, found: str) -> dict[str, object]:
    """Return the context of the report."""
    machine = {"hardware": [made.hardware.name], "hardware_from": found} if made.hardware else {}
    return dict(
        context(
            profile=str(path),
            format=made.profile.format,
            device=made.profile.device,
            **machine,
            total_time_s=made.total_s,
            gpus=len(made.decomposition.devices) if made.decomposition else None,
            time_line=made.decomposition is not None,
            skipped=dict(made.profile.skipped),
        )
    )


def _write_plan(made: Diagnosis, path: Path) -> bool:
    """Write the candidates, and return whether there are any."""
    from perfmodel.files import write_atomic
    from perfmodel.investment.plan import plan_toml

    if not made.advice:
        status(f"nothing saves 1 % or more: {path} is not written.")
        return False
    write_atomic(path, plan_toml(made.advice))
    status(f"wrote {path}")
    return True


def _compare(
    before: Diagnosis,
    after: Diagnosis,
    paths: tuple[Path, Path],
    plot: Path | None,
    format_: Format | None,
    output: Path | None,
) -> None:
    """Report what changed from one diagnosis to the other, and draw it; tables list the entries that changed most."""
    from perfmodel.diagnosis.against import against

    found = against(before, after)
    if plot is not None:
        from perfmodel.render.plots.breakdown import against_plot
        from perfmodel.render.plots.figure import save_figure

        save_figure(against_plot(found), plot)
        status(f"wrote {plot}")
    machines = [one.hardware.name for one in (before, after) if one.hardware]
    facts = context(before=str(paths[0]), after=str(paths[1]), hardware=list(dict.fromkeys(machines)))
    emit(found.report(facts), format_, output)


def _draw(made: Diagnosis, path: Path) -> None:
    from perfmodel.render.plots.breakdown import breakdown_plot
    from perfmodel.render.plots.figure import save_figure

    save_figure(breakdown_plot(made), path)
    status(f"wrote {path}")
