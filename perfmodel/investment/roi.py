"""Return on investment of optimisation candidates: which change first, by Amdahl's law on a measured profile.

Each candidate is set against the whole profile alone (``overall_speedup``), and in ranking order together with
those before it (``cumulative_*``), where speedups of one entry multiply. Where a machine is named, no entry gets
faster than its operators allow there.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.core.hardware import Hardware
from perfmodel.investment.budget import best_set
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Bounds, effect
from perfmodel.investment.headroom import headroom
from perfmodel.investment.notes import bound_notes, decision, money_notes, rank_notes
from perfmodel.investment.order import ROI, check_ranking, combine, order, with_opportunity
from perfmodel.investment.plan import Plan
from perfmodel.investment.ranking import Ranking, Setting, counted, entry_times, estimate, profile_text
from perfmodel.investment.report import RoiRow
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile

__all__ = ["Candidate", "Economics", "Plan", "Ranking", "RoiRow", "headroom", "rank"]


def rank(
    profile: Profile,
    candidates: Plan | Sequence[Candidate],
    economics: Economics | None = None,
    *,
    hardware: Hardware | None = None,
    cap: bool = True,
    by: str = ROI,
    days: float | None = None,
) -> Ranking:
    """Rank candidates by return on investment: gain in throughput for a day of development.

    Alone: S = 1 / ((1 - p) + p / s), with p the share of the targets (Amdahl, see `perfmodel.investment.amdahl`).
    Ranking: by ``roi_per_day``; where any candidate lacks dev_days, all by time saved. What another candidate
    comes ``after`` stands before it. Together: each entry's time over the product of the local speedups of the
    candidates so far. Left out of the combination: what a candidate before it excludes, what needs something
    that is left out, and what makes the run slower unless a gain needs it.

    With ``hardware`` no unchanged operator gets faster than its floor there, alone or together; a claim beyond it is
    flagged, and counts as the floor. A candidate whose ``kind`` makes other operators of its targets (another dtype,
    another algorithm, fused) has a bound of its own, and is not held against theirs.

    Verdicts, in this order: "claim contradicts the profile" where claimed and computed total differ by over 1 %;
    "claims ..., physics allows ..."; left out; slower; "does not pay back in a year" (net value below 0); "marginal"
    (overall under 1 %); "do first" for the first one that none of these holds for, "worth doing" for the rest; then
    "at most" where even removing the targets gives under 1.05x.

    Parameters
    ----------
    profile : the measured profile.
    candidates : a plan, or candidates made in Python.
    economics : fleet and prices for yearly saving, payback and net value.
    hardware : the machine that the profile was measured on, for the bounds.
    cap : False counts claims beyond the floor as claimed; they are still flagged.
    by : "roi" (gain a day), "payback" (calendar days, needs prices), or "time" (time saved).
    days : development days to spend: the set that makes the run fastest within them is picked, see
        `perfmodel.investment.budget.best_set`.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        When the profile has no time, a plan is wrong (see `Plan`), a target names no entry, the ranking is unknown, or
        payback is asked for without prices.
    """
    plan = candidates if isinstance(candidates, Plan) else Plan(tuple(candidates))
    check_ranking(by, economics)
    setting = Setting(entry_times(profile), economics, Bounds.of(profile, hardware, cap=cap))
    effects = {
        item.name: effect(item, item.resolve(profile, setting.times_s), setting.times_s, setting.bounds)
        for item in plan.candidates
    }
    estimates = {name: estimate(made, setting) for name, made in effects.items()}
    unestimated = [row.name for row in estimates.values() if row.dev_days is None]
    selection = None if days is None else best_set(effects, setting.times_s, setting.bounds, days)
    ordered = order(estimates, plan, "time" if unestimated else by, selection)
    rows = with_opportunity(combine(ordered, effects, setting.times_s, setting.bounds, economics, selection), economics)
    notes = (
        *rank_notes(rows, unestimated, selected=selection is not None),
        *bound_notes(effects, hardware, cap=cap),
        *(selection.notes if selection else ()),
        *money_notes(economics),
        *profile.notes,
    )
    return Ranking(
        rows=tuple(rows),
        profile=profile,
        title=f"ROI of {counted(len(rows), 'candidate')} on {profile_text(profile, hardware)}",
        notes=notes,
        economics=economics,
        hardware=hardware,
        decision=decision(rows, setting.total_s, economics, days),
        ranked_by="time" if unestimated else by,
        selection=selection,
    )
