"""What is said below a ranking: what the figures mean, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import short_name
from perfmodel.core.units import format_si
from perfmodel.investment.amdahl import time_saved_fraction
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Effect
from perfmodel.investment.report import RoiRow
from perfmodel.investment.verdict import HIGH_COST_DAYS, HIGH_RETURN_SPEEDUP, claim_verdict


def decision(rows: Sequence[RoiRow], total_s: float, economics: Economics | None, days: float | None) -> str:
    """Return what to do, in one sentence."""
    together = [row for row in rows if row.cumulative_time_s is not None]
    total = format_si(total_s, "s")
    if days is not None and together:
        last = together[-1]
        names, left = ", ".join(repr(row.name) for row in together), format_si(last.cumulative_time_s or 0.0, "s")
        made = f"{last.cumulative_speedup:.4g}x overall, {total} become {left}"
        return f"Within {days_text(days)} do {names}: {made}, in {days_text(last.cumulative_dev_days or 0.0)}."
    if days is not None:
        return f"Nothing is worth doing within {days_text(days)}."
    first = next((row for row in rows if "do first" in row.verdict.split("; ")), None)
    if first is None:
        return "Do none of them: each is left out, marginal, slower, or does not pay back."
    said = [f"{first.overall_speedup:.4g}x overall", f"{format_si(first.time_saved_s, 's')} less of {total}"]
    if first.dev_days is not None:
        said.append(f"in {days_text(first.dev_days)}")
    if economics and first.net_value is not None:
        said.append(f"paid back in {first.payback_days:,.0f} days")
        said.append(f"net value {first.net_value:,.0f} over {economics.horizon_text}")
    return f"Do {first.name!r} first: {', '.join(said)}."


def days_text(days: float) -> str:
    """Return a number of days in words.

    >>> days_text(1), days_text(2.5)
    ('1 day', '2.5 days')
    """
    return f"{days:g} day{'' if days == 1 else 's'}"


def rank_notes(rows: Sequence[RoiRow], unestimated: Sequence[str], *, selected: bool = False) -> list[str]:
    """Say what the figures mean, with the first row's as the example, and what all candidates give together."""
    first = rows[0]
    less, more = time_saved_fraction(first.overall_speedup), first.overall_speedup - 1
    notes = []
    if math.isfinite(more) and more >= 0:
        notes.append(
            f"{first.name!r}: {first.overall_speedup:.4g}x overall is {100 * less:.3g} % less time for the same work, "
            f"or {100 * more:.3g} % more work in the same time; ROI a day is the latter over the days."
        )
    if unestimated:
        notes.append(f"Ranked by time saved: {', '.join(map(repr, unestimated[:4]))} without dev_days has no ROI.")
    together = [row for row in rows if row.cumulative_time_s is not None]
    if len(together) > 1 and not selected:
        last = together[-1]
        days = f", {last.cumulative_dev_days:g} days" if last.cumulative_dev_days is not None else ""
        time = format_si(last.cumulative_time_s or 0.0, "s")
        notes.append(f"Together, in this order: {time}, {last.cumulative_speedup:.4g}x{days}.")
    notes.extend(_claim_note(row) for row in rows if claim_verdict(row))
    notes.extend(_matrix_note(rows))
    notes.append("Entries do not overlap in time, and speedups of several candidates on one entry multiply.")
    return notes


def _matrix_note(rows: Sequence[RoiRow]) -> list[str]:
    """Say where in the decision matrix the candidates stand."""
    places: dict[str, list[str]] = {}
    for row in rows:
        if row.quadrant:
            places.setdefault(row.quadrant, []).append(repr(short_name(row.name)))
    listed = "; ".join(f"{place}: {', '.join(names[:6])}" for place, names in places.items())
    rule = f"over {HIGH_COST_DAYS:g} days is a high cost, from {HIGH_RETURN_SPEEDUP:.2f}x overall a high return"
    return [f"Cost against return ({rule}): {listed}."] if places else []


def _claim_note(row: RoiRow) -> str:
    """Show the arithmetic of a claim that contradicts the profile."""
    free_s = row.total_time_s + row.time_saved_s - row.time_s
    claimed = format_si(row.claimed_total_time_s or 0.0, "s")
    return (
        f"{row.name!r} claims {claimed} in all. Its targets take {format_si(row.time_s, 's')}; "
        f"{row.local_speedup:.4g}x there gives {format_si(row.total_time_s, 's')} ({row.overall_speedup:.4g}x), "
        f"and {format_si(free_s, 's')} if they took no time at all."
    )


def bound_notes(effects: Mapping[str, Effect], hardware: Hardware | None, *, cap: bool) -> list[str]:
    """Say how claims were held against the machine's bounds."""
    if hardware is None:
        return []
    beyond = [name for name, made in effects.items() if made.claimed_speedup * 0.99 > made.floor_speedup]
    notes = []
    if beyond:
        counted = "counts as that floor" if cap else "is counted as claimed, as asked for"
        notes.append(
            f"A claim beyond what {hardware.name} allows for the same operators {counted}: "
            f"{', '.join(map(repr, beyond[:6]))}. If it changes the dtype or the algorithm, let the plan say so: "
            'kind = "dtype" or "algorithm".'
        )
    free = [name for name, made in effects.items() if not made.candidate.keeps_operators]
    if free:
        notes.append(f"Not held against the bounds of today's operators: {', '.join(map(repr, free[:6]))}.")
    unknown = [n for n, made in effects.items() if made.candidate.keeps_operators and made.efficiency is None]
    if unknown:
        notes.append(f"Without a bound for all of its targets: {', '.join(map(repr, unknown[:6]))}.")
    return notes


def money_notes(economics: Economics | None) -> list[str]:
    """Say how the money is counted."""
    if economics is None:
        return []
    notes = [
        f"{economics.gpus:g} GPUs x {economics.price_per_gpu_hour:g} per GPU-hour (one GPU, not the fleet) x "
        f"{economics.hours_per_year:g} h a year = {economics.yearly_cost:.10g} a year now; the same work is done after."
    ]
    if economics.dev_day_cost is None:
        notes.append("No payback and no net value without the cost of a development day (--dev-day-cost).")
    elif economics.horizon_years == 1 and not economics.discount_rate:
        notes.append(
            "Yearly: saved in a year. Payback: calendar days. Net: the first year's saving less the development."
        )
    else:
        d, years = economics.discount_rate, economics.horizon_years
        notes.append(
            f"Yearly: saved in a year. Payback: calendar days, not discounted. Net: present value of the saving over "
            f"{years:g} years at {100 * d:g} % a year, {economics.annuity_years:.4g} yearly savings "
            f"((1 - (1 + d)^-years) / ln(1 + d), since it comes day by day), less the development, paid today."
        )
    return notes
