"""What people need to know beside a ranking: what its figures mean and which assumptions they rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfmodel.analysis.amdahl import time_saved_fraction
from perfmodel.analysis.economics import Economics
from perfmodel.analysis.roi_report import RoiRow
from perfmodel.analysis.roi_verdict import claim_verdict
from perfmodel.core.units import format_si


def rank_notes(rows: Sequence[RoiRow], unestimated: Sequence[str]) -> list[str]:
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
    if len(together) > 1:
        last = together[-1]
        days = f", {last.cumulative_dev_days:g} days" if last.cumulative_dev_days is not None else ""
        time = format_si(last.cumulative_time_s or 0.0, "s")
        notes.append(f"Together, in this order: {time}, {last.cumulative_speedup:.4g}x{days}.")
    notes.extend(_claim_note(row) for row in rows if claim_verdict(row))
    notes.append("Entries do not overlap in time, and speedups of several candidates on one entry multiply.")
    return notes


def _claim_note(row: RoiRow) -> str:
    """Show the arithmetic of a claim that contradicts the profile."""
    free_s = row.total_time_s + row.time_saved_s - row.time_s
    claimed = format_si(row.claimed_total_time_s or 0.0, "s")
    return (
        f"{row.name!r} claims {claimed} in all. Its targets take {format_si(row.time_s, 's')}; "
        f"{row.local_speedup:.4g}x there gives {format_si(row.total_time_s, 's')} ({row.overall_speedup:.4g}x), "
        f"and {format_si(free_s, 's')} if they took no time at all."
    )


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
    else:
        notes.append(
            "Yearly: saved in a year. Payback: calendar days. Net: the first year's saving less the development."
        )
    return notes
