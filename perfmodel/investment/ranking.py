"""Which change first: candidates ranked by their return, alone and together, by Amdahl's law on a measured profile.

Each candidate is set against the whole profile alone (``overall_speedup``), and in ranking order together with those
before it (``cumulative_*``), where speedups of one entry multiply. If a machine is named, no entry becomes faster than
its operators allow there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_count
from perfmodel.errors import UsageError, unknown_name
from perfmodel.investment.algorithm import with_speedups
from perfmodel.investment.budget import Selection, best_set
from perfmodel.investment.chains import PAYBACK, ROI, TIME, Chain, all_chains, figure, in_order
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Combination, Effect, candidate_effect
from perfmodel.investment.plan import Plan
from perfmodel.investment.roi import Baseline, RoiRow, roi_row
from perfmodel.investment.verdict import (
    DO_FIRST,
    bound_notes,
    bound_verdict,
    ceiling_verdict,
    chain_notes,
    claim_verdict,
    decision,
    exclusion_reason,
    main_verdict,
    money_notes,
    ranking_notes,
)
from perfmodel.investment.wall import WALL_NOTE, baseline_profile
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile
from perfmodel.profile.report import profile_summary

#: what candidates can be ranked by
RANKINGS = (ROI, PAYBACK, TIME)
#: `Ranking.ranked_by` without a plan: entries ranked by what physics allows
HEADROOM = "headroom"


@dataclass(frozen=True)
class Ranking(Reportable):
    """Candidates in the order in which to do them, and what the figures rest on.

    Attributes
    ----------
    rows : the candidates, the one to do first at the top.
    profile, economics, hardware : the baseline that they were compared with.
    title, decision : heading, and what to do in one sentence.
    notes : sentences for people.
    ranked_by : "roi", "payback" or "time"; "headroom" without a plan.
    selection : the best set within a number of days, if days were given.
    effects, baseline : the candidates by name and the run before any change, for `sensitivity`; no candidate without a
        plan.
    """

    rows: tuple[RoiRow, ...]
    profile: Profile
    title: str
    notes: tuple[str, ...]
    economics: Economics | None = None
    hardware: Hardware | None = None
    decision: str = ""
    ranked_by: str = ROI
    selection: Selection | None = None
    effects: Mapping[str, Effect] = field(default_factory=dict, repr=False)
    baseline: Baseline = field(default_factory=lambda: Baseline({}), repr=False)


def rank_candidates(
    profile: Profile,
    candidates: Plan | Sequence[Candidate],
    economics: Economics | None = None,
    *,
    hardware: Hardware | None = None,
    cap: bool = True,
    by: str = ROI,
    days: float | None = None,
) -> Ranking:
    """Rank candidates by return on investment: gain in throughput per day of development.

    Alone: S = 1 / ((1 - p) + p / s), with p the share of the targets (Amdahl, see `perfmodel.investment.amdahl`).
    Ranking: by ``roi_per_day``; if any candidate lacks dev_days, all by time saved. A candidate that comes ``after``
    others stands after them, and is ranked by what they take and give together: (S - 1) / days with the S of all of
    them and the sum of their days (`perfmodel.investment.chains`). Together: each entry's time over the product of the
    local speedups of the candidates so far. The combination leaves out a candidate that one before it excludes, one
    that needs a candidate that is left out, and one that makes the run slower unless a gain needs it.

    With ``hardware`` no unchanged operator becomes faster than its bound there, alone or together; a claim beyond it is
    flagged, and counts as the bound, even where data that stays in a cache could beat it. A candidate whose ``kind``
    replaces the operators of its targets (another dtype, another algorithm, a fused kernel) is not limited by their
    bounds.

    Verdicts, in this order: "claim contradicts the profile" if claimed and computed total differ by over 1 %;
    "claims ..., physics allows ..."; left out; slower; "does not pay back in a year" (net value below 0); "marginal"
    (overall under 1 %); "do first" for the first candidate to which none of these applies, "worth doing" for the rest;
    then "at most" if even removing the targets gives under 1.05x.

    Parameters
    ----------
    profile : the measured profile. Candidates change the wall time of one with a time line
        (`perfmodel.diagnosis.wall`), so that a gap of the GPU can be a target; a table is taken as it is.
    candidates : a plan, or candidates made in Python, such as those of a `Diagnosis`.
    economics : fleet and prices for yearly saving, payback and net value.
    hardware : the machine that the profile was measured on, for the bounds.
    cap : False counts claims beyond the bound as claimed; they are still flagged.
    by : "roi" (gain per day), "payback" (calendar days, needs prices), or "time" (time saved).
    days : development days to spend: `perfmodel.investment.budget.best_set` picks the set that makes the run fastest
        within them.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        If the profile has no time, a plan is wrong (see `Plan`), a target names no entry, the ranking is unknown, or
        a ranking by payback has no prices.
    """
    plan = candidates if isinstance(candidates, Plan) else Plan(tuple(candidates))
    check_ranking(by, economics)
    given, profile = profile, baseline_profile(profile, hardware)
    plan = with_speedups(plan, profile, hardware)
    baseline = Baseline.of(profile, economics, hardware, cap=cap)
    effects = {
        item.name: candidate_effect(item, item.resolve(profile, baseline.times_s), baseline.times_s, baseline.bounds)
        for item in plan.candidates
    }
    alone = {name: roi_row(effect, baseline) for name, effect in effects.items()}
    ranked_by = TIME if any(row.dev_days is None for row in alone.values()) else by
    selection = None if days is None else best_set(effects, baseline.times_s, baseline.bounds, days)
    chains = in_order(alone, effects, baseline, ranked_by, selection.names if selection else None)
    ordered = [alone[name] for chain in chains for name in chain.names]
    rows = _with_opportunity(_combined(ordered, effects, baseline, selection), all_chains(effects, baseline), economics)
    notes = (
        *(() if profile is given else (WALL_NOTE,)),
        *ranking_notes(rows, selected=selection is not None),
        *chain_notes(chains, rows),
        *bound_notes(effects, hardware, cap=cap),
        *(selection.notes if selection else ()),
        *money_notes(economics),
        *profile.notes,
    )
    return Ranking(
        rows=tuple(rows),
        profile=profile,
        title=f"ROI of {format_count(len(rows), 'candidate')} on {profile_summary(profile, hardware)}",
        notes=notes,
        economics=economics,
        hardware=hardware,
        decision=decision(rows, baseline.total_s, economics, days),
        ranked_by=ranked_by,
        selection=selection,
        effects=effects,
        baseline=baseline,
    )


def check_ranking(by: str, economics: Economics | None) -> None:
    """Check that a ranking is known, and has what it needs.

    Raises
    ------
    UsageError
        For an unknown ranking, and for "payback" without prices.
    """
    if by not in RANKINGS:
        raise unknown_name("ranking", by, RANKINGS)
    if by == PAYBACK and (economics is None or economics.dev_day_cost is None):
        raise UsageError(
            "ranking by payback needs prices.", remedy="Give --gpus, --price-per-gpu-hour and --dev-day-cost."
        )


def _combined(
    rows: Sequence[RoiRow], effects: Mapping[str, Effect], baseline: Baseline, selection: Selection | None
) -> list[RoiRow]:
    """Apply the candidates one after the other, and judge each."""
    by_name = {name: effect.candidate for name, effect in effects.items()}
    needed = _needed([by_name[row.name] for row in rows if row.overall_speedup >= 1], by_name)
    horizon = baseline.economics.horizon_text if baseline.economics else "a year"
    combination, days = Combination(baseline.times_s, baseline.bounds), 0.0
    all_estimated = True
    chosen: list[Candidate] = []
    judged: list[RoiRow] = []
    first_found = False
    for number, row in enumerate(rows, start=1):
        effect = effects[row.name]
        reason = exclusion_reason(row, effect.candidate, chosen, needed)
        if not reason and selection is not None:
            reason = selection.why_not(row.name)
        verdict = main_verdict(row, reason, needed=row.name in needed, first=not first_found, horizon=horizon)
        first_found = first_found or verdict == DO_FIRST
        parts = (claim_verdict(row), bound_verdict(effect), verdict, ceiling_verdict(row, verdict))
        row = dataclasses.replace(row, rank=number, verdict="; ".join(part for part in parts if part))
        if not reason:
            chosen.append(effect.candidate)
            combination.add(effect)
            all_estimated = all_estimated and row.dev_days is not None
            days += row.dev_days or 0.0
            row = _with_cumulative(row, combination.time_s(), baseline.total_s, days if all_estimated else None)
        judged.append(row)
    return judged


def _with_cumulative(row: RoiRow, time_s: float, total_s: float, days: float | None) -> RoiRow:
    """Return a row with the time of the run after this candidate and all before it."""
    return dataclasses.replace(
        row,
        cumulative_time_s=time_s,
        cumulative_time_saved_s=total_s - time_s,
        cumulative_speedup=total_s / time_s if time_s > 0 else math.inf,
        cumulative_dev_days=days,
    )


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


def _with_opportunity(rows: Sequence[RoiRow], chains: Sequence[Chain], economics: Economics | None) -> list[RoiRow]:
    """Add what the days of each candidate would return if they were spent on the best other one.

    The best other one has the highest ROI per day together with what it needs, and does not need this one; the share
    min(1, days / its days) of its gain counts.
    """
    gains = [chain for chain in chains if chain.roi_per_day and chain.roi_per_day > 0]
    best = sorted(gains, key=lambda chain: (figure(chain, ROI), -chain.time_saved_s))
    extended = []
    for row in rows:
        other = next((chain for chain in best if row.name not in chain.names), None)
        if other is None or row.dev_days is None:
            extended.append(row)
            continue
        share = min(1.0, row.dev_days / (other.dev_days or math.inf))
        saving = economics.present_saving(other.overall_speedup) if economics else None
        extended.append(
            dataclasses.replace(
                row,
                next_best=other.names[-1],
                opportunity_gain=share * (other.overall_speedup - 1.0),
                opportunity_cost=None if saving is None else share * saving,
            )
        )
    return extended
