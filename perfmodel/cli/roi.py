"""The command `roi`: rank optimisations by Amdahl's law on a profile, within physical bounds, by days and money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._idle import Idle, of_several, refuse_idle
from perfmodel.cli._options import (
    AssumeOption,
    EffortOption,
    FormatOption,
    GroupEntriesOption,
    HostOption,
    JobArgument,
    OutputOption,
    PlotOption,
    PriceOption,
    ProfiledMachineOption,
    RanksOption,
    SchedulerOption,
    TargetMachinesOption,
    TopOption,
    WholeTraceOption,
    WideOption,
    WorkersOption,
    fraction_option,
    only_machine,
    option,
)
from perfmodel.cli._output import Destination, check_plot, context, draw, status
from perfmodel.cli._profile import check_names_machine, deployment_and_plan, fleet_of, profiled_machine
from perfmodel.cli._ranks import Reading, job_machine, pace_profile, read_job, refuse_cpu_times
from perfmodel.cli._sharing import Sharing
from perfmodel.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.investment.economics import Economics
    from perfmodel.investment.plan import Plan
    from perfmodel.profile.effort import Effort
    from perfmodel.profile.profile import Profile


def command(
    ctx: typer.Context,
    profiles: JobArgument,
    plan: Annotated[
        str | None,
        option(
            "--plan", "Candidates in TOML, YAML or JSON: name, targets, speedup or new_time, kind, dev_days.", "PLAN"
        ),
    ] = None,
    on: ProfiledMachineOption = None,
    assume: AssumeOption = False,
    to: TargetMachinesOption = None,
    host: HostOption = None,
    candidates: Annotated[
        str | None,
        option(
            "--candidates",
            "diagnose: also rank the advice of a diagnosis; none: rank only the plan. Default: diagnose for a "
            "trace without a plan.",
            "SOURCE",
        ),
    ] = None,
    as_claimed: Annotated[
        bool,
        typer.Option("--as-claimed", help="Count claimed speedups in full, even beyond the machine's limit."),
    ] = False,
    rank_by: Annotated[
        str,
        typer.Option("--rank", metavar="BY", help="Rank by roi (gain per day), payback (days) or time (saved)."),
    ] = "roi",
    days: Annotated[
        float | None,
        option("--days", "Select the candidates that together save the most time in N development days."),
    ] = None,
    effort: EffortOption = None,
    gpus: Annotated[
        int | None,
        option("--gpus", "Number of GPUs that run this work. Default: those of a training plan."),
    ] = None,
    price_per_gpu_hour: PriceOption = None,
    dev_day_cost: Annotated[
        float | None,
        option("--dev-day-cost", "Cost of a development day in the same currency, for payback and net value.", "Y"),
    ] = None,
    hours_per_year: Annotated[
        float | None,
        option("--hours-per-year", "Hours in a year that the GPUs do this work. Default: 8760, all of them.", "H"),
    ] = None,
    horizon_years: Annotated[
        float | None,
        option("--horizon-years", "Years of savings in the net value. Default: 1.", "T"),
    ] = None,
    discount_rate: Annotated[
        float | None,
        fraction_option("--discount-rate", "Discount rate of the net value per year (10%, 0.1). Default: 0."),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Add the value of each assumption at which the decision between candidates changes.",
            show_default=False,
        ),
    ] = False,
    by: GroupEntriesOption = "shape",
    whole_trace: WholeTraceOption = False,
    ranks: RanksOption = False,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    top: TopOption = None,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Rank what to optimise first: overall speedup, its upper bound, and return per development day.

    Without --plan, the candidates are the advice of a diagnosis for a trace. For other profiles, each entry is a
    candidate that reaches its physical bound (or a speedup of 2x if the machine is unknown).

    Several traces are the ranks of one job: what shortens the rank that the others wait for shortens the job.

    Example: perfmodel roi profile.csv --plan plan.toml
    """
    from perfmodel.core.report import report
    from perfmodel.investment.budget import check_days
    from perfmodel.investment.decision import decide
    from perfmodel.investment.plan import read_plan
    from perfmodel.investment.ranking import check_ranking
    from perfmodel.profile.effort import parse_effort

    profiles = storage.expand(profiles)
    money = (price_per_gpu_hour, dev_day_cost, hours_per_year, horizon_years, discount_rate)
    economics = _economics(fleet_of(profiles, gpus, money), *money)
    diagnosed, efforts = _diagnosed(candidates), parse_effort(effort or ())
    # before a large profile is read
    check_ranking(rank_by, economics)
    check_days(days)
    destination = Destination.of("roi", format_, output, wide=wide)
    check_plot(plot)
    target = only_machine(to, "--to")
    is_job = ranks or len(profiles) > 1
    refuse_idle(ctx, (
        of_several(is_job),
        Idle(is_job, ("to",), "the candidates of a job are ranked on the machine that it ran on",
             "Use `perfmodel project` for the job, or rank one rank alone with --to."),
        Idle(target is None, ("host",), "it belongs to a projection", "Add --to HW, or leave it out."),
    ))  # fmt: skip
    reading = Reading(by, whole_trace, Sharing(workers, scheduler))
    job = None
    if is_job:
        job = read_job(profiles, reading)
        planned, machine = read_plan(plan) if plan else None, job_machine(job, on, assume=assume)
        measured = pace_profile(job, reading)
    else:
        measured, planned, machine = _alone(profiles[0], plan, reading, on, target, efforts, assume=assume)
    if target is not None:
        measured, machine = _projected(measured, machine, target, host)
    decision = decide(
        measured,
        plan=planned,
        diagnosed=diagnosed,
        hardware=machine,
        economics=economics,
        effort=efforts,
        cap=not as_claimed,
        by=rank_by,
        days=days,
        job=job,
    )
    draw(decision, plot)
    facts = context(
        **({"profiles": profiles} if job else {"profile": profiles[0]}),
        **({"plan": str(plan)} if plan else {}),
        **({"hardware": [machine.name]} if machine else {}),
        total_time_s=decision.ranking.profile.total_time_s,
        skipped_rows=dict(measured.skipped),
    )
    destination.write(report(decision, context=facts, top=top, flips=sensitivity))


def _alone(
    path: str,
    plan: str | None,
    reading: Reading,
    on: list[str] | None,
    to: str | None,
    efforts: Mapping[str, Effort],
    *,
    assume: bool,
) -> tuple[Profile, Plan | None, Hardware | None]:
    """Return one profile or deployment, its plan and its machine; ``to`` is the one that it is projected to."""
    from perfmodel.formats import read_profile
    from perfmodel.investment.plan import read_plan
    from perfmodel.serving.case import is_deployment_file

    if is_deployment_file(path):
        check_names_machine(path, on, to)
        return deployment_and_plan(path, plan, efforts)
    measured = read_profile(path, by=reading.by, whole_trace=reading.whole_trace)
    if to is not None:
        refuse_cpu_times(measured, on, place=path, option="--to")
    return measured, read_plan(plan) if plan else None, profiled_machine(measured, on, assume=assume)[0]


def _projected(measured: Profile, machine: Hardware | None, to: str, host: float | None) -> tuple[Profile, Hardware]:
    """Return the profile as it would be read on another machine, and that machine; report the whole on stderr."""
    from perfmodel.core.units import format_si
    from perfmodel.diagnosis.projection.project import project
    from perfmodel.hardware_catalog import hardware

    target = hardware(to)
    if machine is None:
        raise UsageError("the machine of the profile is not known.", place="--to", remedy="Name it: --on HW.")
    projection = project(measured, machine, target, host=host)
    whole = projection.whole
    new, low, high = (format_si(time_s, "s", 3) for time_s in (whole.projected_time_s, whole.low, whole.high))
    status(
        f"projected from {machine.name} ({format_si(whole.time_s, 's', 3)}) to {target.name}: {new} ({low} to {high})."
    )
    return projection.profile_there, target


def _diagnosed(candidates: str | None) -> bool | None:
    """Return whether to add the candidates of a diagnosis; None without the option."""
    if candidates is None:
        return None
    if candidates not in ("diagnose", "none"):
        raise unknown_name("source of candidates", candidates, ("diagnose", "none"), place="--candidates")
    return candidates == "diagnose"


def _economics(
    gpus: int | None,
    price: float | None,
    dev_day_cost: float | None,
    hours_per_year: float | None,
    horizon_years: float | None,
    discount_rate: float | None,
) -> Economics | None:
    """Return fleet and prices, or None without any of these options."""
    from perfmodel.investment.economics import HOURS_PER_YEAR, Economics

    options = (gpus, price, dev_day_cost, hours_per_year, horizon_years, discount_rate)
    if all(value is None for value in options):
        return None
    if gpus is None or price is None:
        missing = [name for name, value in (("--gpus", gpus), ("--price-per-gpu-hour", price)) if value is None]
        raise UsageError(
            f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing.",
            remedy="A saving needs both --gpus and --price-per-gpu-hour; --dev-day-cost adds payback and net value.",
        )
    return Economics(
        gpus,
        price,
        dev_day_cost,
        HOURS_PER_YEAR if hours_per_year is None else hours_per_year,
        1.0 if horizon_years is None else horizon_years,
        0.0 if discount_rate is None else discount_rate,
    )
