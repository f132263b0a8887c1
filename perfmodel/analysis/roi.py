"""Return on investment of optimisation candidates: which change first, by Amdahl's law on a measured profile.

Each candidate is set against the whole profile alone (``overall_speedup``), and in ranking order together with
those before it (``cumulative_*``), where speedups of one entry multiply.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.analysis.amdahl import amdahl_limit, amdahl_speedup, combined_time_s, roi_per_day, time_saved_fraction
from perfmodel.analysis.economics import Economics
from perfmodel.analysis.plan import Candidate, Plan
from perfmodel.analysis.profile import Profile
from perfmodel.analysis.roi_notes import money_notes, rank_notes
from perfmodel.analysis.roi_report import RoiRow, ranking_report
from perfmodel.analysis.roi_verdict import ceiling_verdict, claim_verdict, headroom_verdict, left_out, main_verdict
from perfmodel.core.report import Report
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError

__all__ = ["Candidate", "Economics", "Plan", "Ranking", "RoiRow", "headroom", "rank"]


@dataclass(frozen=True)
class Ranking:
    """Candidates in the order in which to do them, and the assumptions that the figures rest on."""

    rows: tuple[RoiRow, ...]
    profile: Profile
    title: str
    notes: tuple[str, ...]
    economics: Economics | None = None

    def report(self, *, context: Mapping[str, Any] | None = None, top: int | None = None) -> Report:
        """Return the ranking as a report, with the first ``top`` rows where that is given."""
        rows = [dataclasses.asdict(row) for row in self.rows[:top]]
        notes = self.notes
        if len(rows) < len(self.rows):
            rest_s = math.fsum(row.time_s for row in self.rows[len(rows) :])
            notes = (f"{len(self.rows) - len(rows)} more rows ({format_si(rest_s, 's')}) are not shown.", *notes)
        return ranking_report(
            rows, title=self.title, notes=notes, context=context or {}, with_money=self.economics is not None
        )

    def _repr_html_(self) -> str:
        """Show the ranking as a table in a notebook."""
        return self.report()._repr_html_()


def rank(profile: Profile, candidates: Plan | Sequence[Candidate], economics: Economics | None = None) -> Ranking:
    """Rank candidates by return on investment: gain in throughput for a day of development.

    Alone: S = 1 / ((1 - p) + p / s), with p the share of the targets (Amdahl, see `perfmodel.analysis.amdahl`).
    Ranking: by ``roi_per_day``; where any candidate lacks dev_days, all by time saved. What another candidate
    comes ``after`` stands before it. Together: each entry's time over the product of the local speedups of the
    candidates so far. Left out of the combination: what a candidate before it excludes, what needs something
    that is left out, and what makes the run slower unless a gain needs it.

    Verdicts, in this order: "claim contradicts the profile" where claimed and computed total differ by over 1 %;
    left out; slower; "does not pay back in a year" (net value below 0); "marginal" (overall under 1 %);
    "do first" for the first one that none of these holds for, "worth doing" for the rest; then "at most" where
    even removing the targets gives under 1.05x.

    Parameters
    ----------
    profile : the measured profile.
    candidates : a plan, or candidates made in Python.
    economics : fleet and prices for yearly saving, payback and net value.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        When the profile has no time, a plan is wrong (see `Plan`), or a target names no entry.
    """
    plan = candidates if isinstance(candidates, Plan) else Plan(tuple(candidates))
    times_s = _times(profile)
    total_s = profile.total_time_s
    estimates = {
        item.name: _estimate(item, item.resolve(profile, times_s), times_s, total_s, economics)
        for item in plan.candidates
    }
    by_name = {item.name: item for item in plan.candidates}
    unestimated = [row.name for row in estimates.values() if row.roi_per_day is None]
    order = _order(estimates, by_name, by_time=bool(unestimated))
    rows = _combine([estimates[name] for name in order], by_name, times_s)
    title = f"ROI of {_count(len(rows), 'candidate')} on {_profile_text(profile)}"
    notes = (*rank_notes(rows, unestimated), *money_notes(economics), *profile.notes)
    return Ranking(tuple(rows), profile, title, notes, economics)


def headroom(profile: Profile, *, local_speedup: float = 2.0, economics: Economics | None = None) -> Ranking:
    """Rank the entries of a profile by what they could be worth: without a plan, where to look first.

    Each entry is made ``local_speedup`` times faster alone; ``max_overall_speedup`` is the ceiling, the entry
    removed. Ranked by that ceiling.

    Raises
    ------
    UsageError
        When the profile has no time, or the speedup is not above 0.
    """
    times_s = _times(profile)
    total_s = profile.total_time_s
    rows = [
        _estimate(Candidate(name or "(unnamed)", (name,), local_speedup), (name,), times_s, total_s, economics)
        for name in times_s
    ]
    rows.sort(key=lambda row: (-row.max_overall_speedup, row.name))
    ranked = tuple(
        dataclasses.replace(row, rank=number, verdict=headroom_verdict(row, number))
        for number, row in enumerate(rows, start=1)
    )
    title = f"What each part is worth, of {_profile_text(profile)}"
    said = (
        f"Local and overall: this part alone made {local_speedup:g}x faster. At most: this part removed.",
        "The profile's total is the sum of its entries; time outside of them is not counted.",
        "With --plan, candidates are ranked by their return on investment.",
    )
    return Ranking(ranked, profile, title, (*said, *money_notes(economics), *profile.notes), economics)


def _times(profile: Profile) -> dict[str, float]:
    """Return the time of each entry [s], and check that there is any."""
    if not profile.total_time_s > 0:
        raise UsageError("the profile has no time.", place=profile.source, remedy="Some entry needs a time above zero.")
    return {entry.name: entry.time_s for entry in profile.entries}


def _estimate(
    candidate: Candidate,
    targets: tuple[str, ...],
    times_s: Mapping[str, float],
    total_s: float,
    economics: Economics | None,
) -> RoiRow:
    """Set one candidate alone against the whole profile; ``targets`` are the entries that it makes faster."""
    time_s = math.fsum(times_s[name] for name in targets)
    local = _local_speedup(candidate, time_s)
    fraction = time_s / total_s
    overall = float(amdahl_speedup(fraction, local))
    days = candidate.dev_days
    saved_s = time_s * float(time_saved_fraction(local))
    return RoiRow(
        rank=0,
        name=candidate.name,
        targets=targets,
        time_s=time_s,
        fraction=fraction,
        local_speedup=local,
        overall_speedup=overall,
        time_saved_s=saved_s,
        max_overall_speedup=float(amdahl_limit(fraction)),
        total_time_s=total_s - saved_s,
        dev_days=days,
        risk=candidate.risk,
        roi_per_day=None if days is None else float(roi_per_day(overall, days)),
        yearly_saving=economics.yearly_saving(overall) if economics else None,
        payback_days=economics.payback_days(overall, days) if economics and days is not None else None,
        net_value=economics.net_value(overall, days) if economics and days is not None else None,
        claimed_total_time_s=candidate.claimed_total_time_s,
    )


def _local_speedup(candidate: Candidate, time_s: float) -> float:
    """Return the speedup of the targets: as given, or old over new time."""
    if candidate.speedup is not None:
        return candidate.speedup
    new_time_s = candidate.new_time_s or 0.0
    if time_s == 0:
        raise candidate.error("its targets take no time, so there is no new_time to compare.", "Drop the candidate.")
    return time_s / new_time_s if new_time_s > 0 else math.inf


def _order(estimates: Mapping[str, RoiRow], by_name: Mapping[str, Candidate], *, by_time: bool) -> list[str]:
    """Return the names in ranking order; what a candidate comes after is put right before it."""

    def key(name: str) -> tuple[float, float, str]:
        row = estimates[name]
        return (0.0 if by_time else -(row.roi_per_day or 0.0), -row.time_saved_s, name)

    order: dict[str, None] = {}
    for wanted in sorted(estimates, key=key):
        stack = [wanted]
        while stack:
            waiting = [name for name in by_name[stack[-1]].after if name not in order]
            if waiting:
                stack.append(min(waiting, key=key))
            else:
                order.setdefault(stack.pop())
    return list(order)


def _combine(rows: Sequence[RoiRow], by_name: Mapping[str, Candidate], times_s: Mapping[str, float]) -> list[RoiRow]:
    """Do the candidates one after the other and judge each."""
    needed = _needed([by_name[row.name] for row in rows if row.overall_speedup >= 1], by_name)
    factors = dict.fromkeys(times_s, 1.0)
    total_s = math.fsum(times_s.values())
    days: float | None = 0.0
    chosen: list[Candidate] = []
    done: list[RoiRow] = []
    first_found = False
    for number, row in enumerate(rows, start=1):
        candidate = by_name[row.name]
        reason = left_out(row, candidate, chosen, needed)
        verdict = main_verdict(row, reason, needed=row.name in needed, first=not first_found)
        first_found = first_found or verdict == "do first"
        parts = (claim_verdict(row), verdict, ceiling_verdict(row, verdict))
        row = dataclasses.replace(row, rank=number, verdict="; ".join(part for part in parts if part))
        if not reason:
            chosen.append(candidate)
            for name in row.targets:
                factors[name] *= row.local_speedup
            days = None if days is None or row.dev_days is None else days + row.dev_days
            time_s = combined_time_s(list(times_s.values()), list(factors.values()))
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


def _profile_text(profile: Profile) -> str:
    name = os.path.basename(profile.source) or "the profile"
    return f"{name}: {format_si(profile.total_time_s, 's')} in {_count(len(profile.entries), 'entry', 'entries')}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
