"""The order in which candidates are done, what they give together, and what each keeps one from doing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from perfmodel.errors import UsageError, unknown_name
from perfmodel.investment.budget import Selection
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Bounds, Combination, Effect
from perfmodel.investment.plan import Plan
from perfmodel.investment.report import RoiRow
from perfmodel.investment.verdict import bound_verdict, ceiling_verdict, claim_verdict, left_out, main_verdict
from perfmodel.profile.candidate import Candidate

ROI, PAYBACK, TIME = "roi", "payback", "time"
RANKINGS = (ROI, PAYBACK, TIME)


def check_ranking(by: str, economics: Economics | None) -> None:
    """Check that a ranking is known, and has what it needs.

    Raises
    ------
    UsageError
        For an unknown one, and for "payback" without prices.
    """
    if by not in RANKINGS:
        raise unknown_name("ranking", by, RANKINGS)
    if by == PAYBACK and (economics is None or economics.dev_day_cost is None):
        raise UsageError(
            "ranking by payback needs prices.", remedy="Give --gpus, --price-per-gpu-hour and --dev-day-cost."
        )


def order(estimates: Mapping[str, RoiRow], plan: Plan, by: str, selection: Selection | None = None) -> list[RoiRow]:
    """Return the rows in ranking order; what a candidate comes after is put right before it, a selection to the top."""
    by_name = {item.name: item for item in plan.candidates}

    def key(name: str) -> tuple[bool, float, float, str]:
        row = estimates[name]
        first = {ROI: -(row.roi_per_day or 0.0), PAYBACK: _payback(row), TIME: 0.0}[by]
        return (selection is not None and name not in selection.names, first, -row.time_saved_s, name)

    found: dict[str, None] = {}
    for wanted in sorted(estimates, key=key):
        stack = [wanted]
        while stack:
            waiting = [name for name in by_name[stack[-1]].after if name not in found]
            if waiting:
                stack.append(min(waiting, key=key))
            else:
                found.setdefault(stack.pop())
    return [estimates[name] for name in found]


def _payback(row: RoiRow) -> float:
    return math.inf if row.payback_days is None else row.payback_days


def combine(
    rows: Sequence[RoiRow],
    effects: Mapping[str, Effect],
    times_s: Mapping[str, float],
    bounds: Bounds,
    economics: Economics | None = None,
    selection: Selection | None = None,
) -> list[RoiRow]:
    """Do the candidates one after the other and judge each."""
    by_name = {name: made.candidate for name, made in effects.items()}
    needed = _needed([by_name[row.name] for row in rows if row.overall_speedup >= 1], by_name)
    horizon = economics.horizon_text if economics else "a year"
    together, total_s = Combination(times_s, bounds), math.fsum(times_s.values())
    days: float | None = 0.0
    chosen: list[Candidate] = []
    done: list[RoiRow] = []
    first_found = False
    for number, row in enumerate(rows, start=1):
        made = effects[row.name]
        reason = left_out(row, made.candidate, chosen, needed)
        if not reason and selection is not None:
            reason = selection.why_not(row.name)
        verdict = main_verdict(row, reason, needed=row.name in needed, first=not first_found, horizon=horizon)
        first_found = first_found or verdict == "do first"
        parts = (claim_verdict(row), bound_verdict(made), verdict, ceiling_verdict(row, verdict))
        row = dataclasses.replace(row, rank=number, verdict="; ".join(part for part in parts if part))
        if not reason:
            chosen.append(made.candidate)
            together.add(made)
            days = None if days is None or row.dev_days is None else days + row.dev_days
            time_s = together.time_s()
            row = dataclasses.replace(
                row,
                cumulative_time_s=time_s,
                cumulative_time_saved_s=total_s - time_s,
                cumulative_speedup=total_s / time_s if time_s > 0 else math.inf,
                cumulative_dev_days=days,
            )
        done.append(row)
    return done


def _needed(gains: Iterable[Candidate], by_name: Mapping[str, Candidate]) -> set[str]:
    """Return the names of everything that some gain comes after, directly or not."""
    needed: set[str] = set()
    waiting = [name for candidate in gains for name in candidate.after]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(by_name[name].after)
    return needed


def with_opportunity(rows: Sequence[RoiRow], economics: Economics | None) -> list[RoiRow]:
    """Add what the days of each candidate would bring if they went into the best of the others.

    The best of the others is the one with the highest ROI a day; of its gain counts the share min(1, days / its days).
    """
    best = sorted((row for row in rows if row.roi_per_day and row.roi_per_day > 0), key=lambda row: -_roi(row))[:2]
    done = []
    for row in rows:
        other = next((item for item in best if item.name != row.name), None)
        if other is None or row.dev_days is None:
            done.append(row)
            continue
        share = min(1.0, row.dev_days / (other.dev_days or math.inf))
        saving = economics.present_saving(other.overall_speedup) if economics else None
        done.append(
            dataclasses.replace(
                row,
                next_best=other.name,
                opportunity_gain=share * (other.overall_speedup - 1.0),
                opportunity_cost=None if saving is None else share * saving,
            )
        )
    return done


def _roi(row: RoiRow) -> float:
    return row.roi_per_day or 0.0
