"""The command `diagnose`: where the time of a profiled run goes, why, and which changes would save time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._idle import Idle, of_several, refuse_idle
from perfmodel.cli._options import (
    AssumeOption,
    EffortOption,
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
    option,
)
from perfmodel.cli._output import (
    BAD_FINDING,
    Destination,
    check_plot,
    check_stdout,
    check_writable,
    context,
    save_plot,
    status,
    wrote,
)
from perfmodel.cli._profile import profiled_machine
from perfmodel.cli._ranks import Reading, job_machine, read_job
from perfmodel.cli._sharing import Sharing, end_code
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.diagnosis.result import Diagnosis
    from perfmodel.profile.profile import Profile


def command(
    ctx: typer.Context,
    profiles: JobArgument,
    on: ProfiledMachineOption = None,
    assume: AssumeOption = False,
    by: GroupEntriesOption = "shape",
    whole_trace: WholeTraceOption = False,
    plan_output: Annotated[
        str | None,
        option("--plan-output", "Write the candidates to FILE (.toml), a plan for `perfmodel roi --plan`.", "FILE"),
    ] = None,
    effort: EffortOption = None,
    against: Annotated[
        str | None,
        option(
            "--against",
            "Compare two profiles: PROFILE before a change and FILE after it (as in `compare A B`).",
            "FILE",
        ),
    ] = None,
    annotate: Annotated[
        str | None,
        option(
            "--annotate",
            "Write the trace (torch.profiler) to FILE (.json, .json.gz) with bound, expectation and efficiency in "
            "the arguments of its kernels, and counter tracks, for Perfetto.",
            "FILE",
        ),
    ] = None,
    ranks: RanksOption = False,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Divide the wall time of a profile into compute, memory, launch, transfer, sync and idle, and suggest changes.

    Several traces are the ranks of one job: exposed communication, stragglers, and who waits for whom.

    Example: perfmodel diagnose trace.json.gz --on h100-sxm5-80gb --plan-output plan.toml

    Example: perfmodel diagnose rank*.json.gz --workers 4 --plot ranks.png
    """
    from perfmodel.core.report import report
    from perfmodel.diagnosis.diagnose import diagnose
    from perfmodel.diagnosis.ranks.job import alone_notes
    from perfmodel.formats.torch_trace.annotate import is_annotated
    from perfmodel.profile.effort import parse_effort
    from perfmodel.records.output_file import check_new

    table = parse_effort(effort or ())
    destination = Destination.of("diagnose", format_, output, wide=wide)
    check_plot(plot)
    check_stdout(output, plan_output=plan_output, annotate=annotate)
    if plan_output is not None:
        check_writable(plan_output, ".toml")
        check_new(plan_output, "Write to another file: somebody may have edited this one.")
    if annotate is not None:
        check_writable(annotate, ".json", ".gz", may_replace=is_annotated)
    profiles = storage.expand(profiles)
    is_job = ranks or len(profiles) > 1
    refuse_idle(ctx, (
        Idle(is_job, ("plan_output", "effort", "against", "annotate", "by"), "it belongs to one profile",
             "Diagnose the slowest rank alone with it."),
        Idle(against is not None, ("plan_output", "annotate"), "it belongs to one profile",
             "Write it of the later profile in a run without --against."),
        of_several(is_job),
    ))  # fmt: skip
    if is_job:
        reading = Reading(by, whole_trace, Sharing(workers, scheduler))
        return _diagnose_ranks(profiles, reading, on, plot, destination, assume=assume)
    (profile,) = profiles
    measured = _read(profile, by, whole_trace)
    machine, machine_source = profiled_machine(measured, on, assume=assume)
    diagnosis = diagnose(measured, machine, effort=table)
    diagnosis = replace(diagnosis, notes=(*diagnosis.notes, *alone_notes(measured)))
    if against is not None:
        later = _read(against, by, whole_trace)
        after = diagnose(later, profiled_machine(later, on, assume=assume)[0], effort=table)
        _compare(diagnosis, after, (profile, against), plot, destination)
        return 0
    if plot is not None:
        _draw(diagnosis, plot)
    if annotate is not None:
        _annotate(diagnosis, profile, annotate)
    destination.write(report(diagnosis, context=_facts(diagnosis, profile, machine_source)), result=diagnosis)
    written = plan_output is None or _write_plan(diagnosis, plan_output)
    return 0 if written else BAD_FINDING


def _diagnose_ranks(
    paths: list[str],
    reading: Reading,
    on: list[str] | None,
    plot: str | None,
    destination: Destination,
    *,
    assume: bool,
) -> int:
    """Report where the time of a job's ranks goes and who waits for whom."""
    from perfmodel.core.report import report

    job = read_job(paths, reading, keep=True)
    hardware = job_machine(job, on, assume=assume)
    if plot is not None:
        from perfmodel.render.plots.diagnosis.ranks import ranks_plot

        save_plot(ranks_plot(job), plot)
    facts = context(profiles=paths, hardware=[hardware.name] if hardware else [])
    destination.write(report(job, hardware=hardware, context=facts))
    return end_code(reading.sharing.ended)


def _read(path: str, by: str, whole_trace: bool) -> Profile:
    from perfmodel.formats import read_profile

    return read_profile(path, by=by, whole_trace=whole_trace)


def _facts(diagnosis: Diagnosis, path: str, machine_source: str) -> dict[str, object]:
    """Return the context of the report."""
    from perfmodel.diagnosis.ranks.job import missing_beside

    machine = {"hardware": [diagnosis.hardware.name], "hardware_from": machine_source} if diagnosis.hardware else {}
    return dict(
        context(
            profile=str(path),
            format=diagnosis.profile.format,
            device=diagnosis.profile.device,
            **machine,
            total_time_s=diagnosis.total_s,
            gpus=len(diagnosis.decomposition.devices) if diagnosis.decomposition else None,
            time_line=diagnosis.decomposition is not None,
            before_first_gpu_work_s=diagnosis.outside_s[0],
            after_last_gpu_work_s=diagnosis.outside_s[1],
            skipped=dict(diagnosis.profile.skipped),
            **({"missing_ranks": list(missing)} if (missing := missing_beside(diagnosis.profile)) else {}),
        )
    )


def _annotate(diagnosis: Diagnosis, source: str, target: str) -> None:
    """Write the trace with what the diagnosis says about its kernels."""
    from perfmodel.diagnosis.annotation import event_notes
    from perfmodel.formats.torch_trace.annotate import annotate
    from perfmodel.formats.torch_trace.reader import NAME

    timeline = diagnosis.profile.timeline
    if diagnosis.profile.format != NAME or timeline is None:
        raise UsageError(
            f"{source} is no trace of torch.profiler.", place="--annotate", remedy="Record one with torch.profiler."
        )
    names = [timeline.names[name] for name in timeline.gpu.name.tolist()]
    work = list(zip(names, timeline.gpu.duration_s.tolist(), strict=True))
    noted = annotate(source, target, event_notes(diagnosis), work)
    status(f"wrote {target}: {noted} GPU events with notes; open it in Perfetto (ui.perfetto.dev).")


def _write_plan(diagnosis: Diagnosis, path: str) -> bool:
    """Write the candidates as a plan; return False if there are none."""
    from perfmodel.files import write_atomic
    from perfmodel.investment.plan import plan_toml

    if not diagnosis.advice:
        status(f"no change saves 1 % or more; {path} is not written.")
        return False
    write_atomic(path, plan_toml(diagnosis.advice))
    wrote(path)
    return True


def _compare(
    before: Diagnosis,
    after: Diagnosis,
    paths: tuple[str, str],
    plot: str | None,
    destination: Destination,
) -> None:
    """Report the changes from one diagnosis to another, and draw them."""
    from perfmodel.core.report import report
    from perfmodel.diagnosis.against import compare_diagnoses

    comparison = compare_diagnoses(before, after)
    if plot is not None:
        from perfmodel.render.plots.diagnosis.breakdown import against_plot

        save_plot(against_plot(comparison), plot)
    machines = [side.hardware.name for side in (before, after) if side.hardware]
    facts = context(before=str(paths[0]), after=str(paths[1]), hardware=list(dict.fromkeys(machines)))
    destination.write(report(comparison, context=facts))


def _draw(diagnosis: Diagnosis, path: str) -> None:
    from perfmodel.render.plots.diagnosis.breakdown import breakdown_plot

    save_plot(breakdown_plot(diagnosis), path)
