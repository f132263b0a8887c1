"""Which optimisation first: Amdahl's law on a profile, bounded by physics, in days and money."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._common import (
    Format,
    FormatOption,
    OutputOption,
    check_destination,
    context,
    emit,
    output_format,
)
from perfmodel.cli._profile import AllOption, ByOption, MachineOption, ProfileArgument, profiled_machine
from perfmodel.core.units import parse_fraction
from perfmodel.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.core.report import Report
    from perfmodel.investment.decide import Decision
    from perfmodel.investment.economics import Economics

#: rows of the table of parts that stands below a ranking of diagnose's candidates
_PARTS = 10


def command(
    profile: ProfileArgument,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="PLAN",
            help="Candidates as TOML, YAML or JSON: name, targets, speedup or new_time, kind, dev_days.",
            show_default=False,
        ),
    ] = None,
    on: MachineOption = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates",
            metavar="WHERE",
            help="'diagnose' adds what diagnose advises, 'none' does not; default: diagnose for a trace without plan.",
            show_default=False,
        ),
    ] = None,
    as_claimed: Annotated[
        bool,
        typer.Option("--as-claimed", help="Count a speedup beyond the machine's limit as claimed, not as that limit."),
    ] = False,
    rank_by: Annotated[
        str, typer.Option("--rank", metavar="BY", help="roi (gain a day), payback (days), or time (time saved).")
    ] = "roi",
    days: Annotated[
        float | None,
        typer.Option(
            "--days",
            metavar="N",
            help="Pick the candidates that together make the run fastest in N development days.",
            show_default=False,
        ),
    ] = None,
    effort: Annotated[
        list[str] | None,
        typer.Option(
            "--effort",
            metavar="KIND=DAYS",
            help="Days of a kind of change, for candidates without dev_days: fuse=3, cuda-graph=5:high; repeatable.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="GPUs that run this work.", show_default=False)
    ] = None,
    price_per_gpu_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-gpu-hour",
            metavar="X",
            help="Price of ONE GPU for an hour, not of the fleet; any currency.",
            show_default=False,
        ),
    ] = None,
    dev_day_cost: Annotated[
        float | None,
        typer.Option(
            "--dev-day-cost",
            metavar="Y",
            help="Cost of a day of development, same currency; needed for payback and net value.",
            show_default=False,
        ),
    ] = None,
    hours_per_year: Annotated[
        float | None,
        typer.Option(
            "--hours-per-year",
            metavar="H",
            help="Hours of a year in which the GPUs do this work; default 8760, all of them.",
            show_default=False,
        ),
    ] = None,
    horizon_years: Annotated[
        float | None,
        typer.Option(
            "--horizon-years",
            metavar="T",
            help="Years for which the saving counts in the net value; default 1.",
            show_default=False,
        ),
    ] = None,
    discount_rate: Annotated[
        str | None,
        typer.Option(
            "--discount-rate",
            metavar="D",
            help="What a year takes off the value of money (10%, 0.1); default 0.",
            show_default=False,
        ),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Add where each assumption flips the decision.", show_default=False)
    ] = False,
    by: ByOption = "shape",
    all_steps: AllOption = False,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", help="Only the first N rows.", min=1, show_default=False)
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """What is worth optimising first: overall speedup, upper bound and ROI a day of each candidate.

    Without --plan: what diagnose advises for a trace; else each entry down to its physical bound (or, where no machine
    is named, made 2x faster), and its ceiling.

    Example: perfmodel roi profile.csv --plan plan.toml
    """
    from perfmodel.formats import read_profile
    from perfmodel.investment.budget import check_days
    from perfmodel.investment.decide import Question, decide
    from perfmodel.investment.order import check_ranking
    from perfmodel.investment.plan import read_plan
    from perfmodel.profile.effort import parse_effort

    economics = _economics(gpus, price_per_gpu_hour, dev_day_cost, hours_per_year, horizon_years, discount_rate)
    diagnosed, efforts = _diagnosed(candidates), parse_effort(effort or ())
    # before a large profile is read
    check_ranking(rank_by, economics)
    check_days(days)
    document = _is_document(format_, output)
    if output is not None:
        check_destination(output)
    measured = read_profile(profile, by=by, all_steps=all_steps)
    planned, machine = read_plan(plan) if plan else None, profiled_machine(measured, on)[0]
    made = decide(measured, Question(planned, diagnosed, machine, economics, efforts, not as_claimed, rank_by, days))
    facts = context(
        profile=str(profile),
        **({"plan": str(plan)} if plan else {}),
        **({"hardware": [machine.name]} if machine else {}),
        total_time_s=made.ranking.profile.total_time_s,
        skipped_rows=dict(measured.skipped),
    )
    emit(_report(made, facts, top, sensitivity, document), format_, output)


def _report(made: Decision, facts: Mapping[str, Any], top: int | None, sensitivity: bool, document: bool) -> Report:
    """Return the ranking, and below it what each part is worth and what flips the decision, where that is wanted."""
    more = {}
    if made.parts is not None:
        more["parts"] = made.parts.report(top=top or _PARTS)
    if sensitivity:
        from perfmodel.investment import sensitivity as roi_sensitivity

        more["sensitivity"] = roi_sensitivity.sensitivity_report(roi_sensitivity.sensitivity(made.ranking))
    return made.ranking.report(context=facts, top=top, more=more, document=document)


def _is_document(format_: Format | None, output: Path | None) -> bool:
    """Whether the result is a page for others: Markdown."""
    if output is not None and str(output) != "-":
        format_ = output_format(format_, output)
    return format_ is Format.markdown


def _diagnosed(candidates: str | None) -> bool | None:
    """Return whether diagnose's candidates are wanted; None where that is not said."""
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
    discount_rate: str | None,
) -> Economics | None:
    """Return fleet and prices, or None where none is given."""
    from perfmodel.investment.economics import HOURS_PER_YEAR, Economics

    given = (gpus, price, dev_day_cost, hours_per_year, horizon_years, discount_rate)
    if all(value is None for value in given):
        return None
    if gpus is None or price is None:
        missing = [name for name, value in (("--gpus", gpus), ("--price-per-gpu-hour", price)) if value is None]
        raise UsageError(
            f"{' and '.join(missing)} is missing.",
            remedy="A saving needs both --gpus and --price-per-gpu-hour; --dev-day-cost adds payback and net value.",
        )
    return Economics(
        gpus,
        price,
        dev_day_cost,
        HOURS_PER_YEAR if hours_per_year is None else hours_per_year,
        1.0 if horizon_years is None else horizon_years,
        0.0 if discount_rate is None else parse_fraction(discount_rate, "--discount-rate"),
    )
