"""Which optimisation first: Amdahl's law on a profile, in days and money."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._common import FormatOption, OutputOption, context, emit
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.analysis.economics import Economics


def command(
    profile: Annotated[
        Path,
        typer.Argument(
            metavar="PROFILE",
            help="Table with a name, a time with its unit (time_ms, 'Time (ns)', or cells like '12 ms') and "
            "optionally calls: CSV, TSV, JSON, TOML or YAML.",
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="PLAN",
            help="Candidates as TOML, YAML or JSON: name, targets, speedup or new_time, dev_days.",
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
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", help="Only the first N rows.", min=1, show_default=False)
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """What is worth optimising first: overall speedup, upper bound and ROI a day of each candidate.

    Without --plan: each entry of the profile made 2x faster, and its ceiling.

    Example: perfmodel roi profile.csv --plan plan.toml
    """
    from perfmodel.analysis.plan import read_plan
    from perfmodel.analysis.roi import headroom, rank
    from perfmodel.profiles import read_profile

    economics = _economics(gpus, price_per_gpu_hour, dev_day_cost, hours_per_year)
    measured = read_profile(profile)
    ranking = rank(measured, read_plan(plan), economics) if plan else headroom(measured, economics=economics)
    sources = {"profile": str(profile), **({"plan": str(plan)} if plan else {})}
    facts = {"total_time_s": measured.total_time_s, "skipped_rows": dict(measured.skipped)}
    emit(ranking.report(context=context(**sources, **facts), top=top), format_, output)


def _economics(
    gpus: int | None, price: float | None, dev_day_cost: float | None, hours_per_year: float | None
) -> Economics | None:
    """Return fleet and prices, or None where none is given."""
    from perfmodel.analysis.economics import HOURS_PER_YEAR, Economics

    if gpus is None and price is None and dev_day_cost is None and hours_per_year is None:
        return None
    if gpus is None or price is None:
        missing = [name for name, value in (("--gpus", gpus), ("--price-per-gpu-hour", price)) if value is None]
        raise UsageError(
            f"{' and '.join(missing)} is missing.",
            remedy="A saving needs both --gpus and --price-per-gpu-hour; --dev-day-cost adds payback and net value.",
        )
    return Economics(gpus, price, dev_day_cost, HOURS_PER_YEAR if hours_per_year is None else hours_per_year)
