"""The verdict on each candidate by stated rules, the decision, and the notes below a ranking.

`perfmodel.investment.ranking.rank_candidates` states the order of the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfmodel.core.hardware import Hardware
from perfmodel.core.kernel_name import short_name
from perfmodel.core.units import format_si
from perfmodel.diagnosis.limits import FASTER_TOLERANCE, TOO_FAST, Limit
from perfmodel.investment.amdahl import time_saved_fraction
from perfmodel.investment.chains import Chain
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Effect
from perfmodel.investment.roi import HIGH_COST_DAYS, HIGH_RETURN_SPEEDUP, RoiRow
from perfmodel.profile.candidate import Candidate

#: a claimed figure may differ from the computed one by this share before it contradicts the profile
CLAIM_TOLERANCE = 0.01
#: below this overall speedup a change is marginal: the noise of most measurements hides it
MARGINAL_SPEEDUP = 1.01
#: if even removing the targets gives less than this, the verdict states that ceiling
LOW_CEILING = 1.05
#: the verdict on the best candidate
DO_FIRST = "do first"
#: names that a note lists before it stops
_MOST_LISTED = 6


def exclusion_reason(row: RoiRow, candidate: Candidate, chosen: Sequence[Candidate], needed: set[str]) -> str:
    """Return why a candidate is left out of the combination, or an empty string."""
    for other in chosen:
        if other.name in candidate.excludes or candidate.name in other.excludes:
            return f"left out: excludes {other.name!r}, which ranks higher"
    names = {other.name for other in chosen}
    missing = next((name for name in candidate.after if name not in names), None)
    if missing is not None:
        return f"left out: needs {missing!r}, which is left out"
    if row.overall_speedup < 1 and row.name not in needed:
        return "slower: do not do it"
    return ""


def main_verdict(row: RoiRow, reason: str, *, needed: bool, first: bool, horizon: str = "a year") -> str:
    """Return the main part of a verdict.

    Parameters
    ----------
    row : the candidate alone.
    reason : the result of `exclusion_reason`.
    needed : whether a candidate with a gain comes after it.
    first : whether no candidate before it is "do first".
    horizon : over which the net value is counted, in words.
    """
    if reason:
        return reason
    if row.overall_speedup < 1:
        return "slower: only as a step towards a gain"
    if row.net_value is not None and row.net_value < 0:
        return f"does not pay back in {horizon}"
    if row.overall_speedup < MARGINAL_SPEEDUP:
        return "small, but others need it" if needed else "marginal: under 1 % overall"
    return DO_FIRST if first else "worth doing"


def contradicts(claimed: float, computed: float) -> bool:
    """Whether a claimed figure differs from the computed one by more than `CLAIM_TOLERANCE`."""
    return abs(claimed - computed) > CLAIM_TOLERANCE * computed


def claim_verdict(row: RoiRow) -> str:
    """Return that the claimed total contradicts the computed one, or an empty string."""
    claimed = row.claimed_total_time_s
    if claimed is None or not contradicts(claimed, row.total_time_s):
        return ""
    return f"claim contradicts the profile: {format_si(row.total_time_s, 's')}, not {format_si(claimed, 's')}"


def bound_verdict(effect: Effect) -> str:
    """Return that a claimed local speedup exceeds what the machine allows for the same operators, or an empty string.

    Two limits count: the floor, which nothing that computes the same can beat, and the bound with every tensor crossing
    device memory once, which only data that is already in a cache can beat. Claims beyond either count as the bound.
    """
    claimed = effect.claimed_speedup * (1 - CLAIM_TOLERANCE)
    claim = "claims to take no time" if math.isinf(claimed) else f"claims {effect.claimed_speedup:.3g}x"
    bound, floor = effect.max_local_speedup, effect.floor_speedup
    if claimed > floor:
        bound = floor if bound is None else bound
        cached = f" ({floor:.3g}x if its data stays in a cache)" if floor > bound * (1 + CLAIM_TOLERANCE) else ""
        return f"{claim}, physics allows {bound:.3g}x{cached}"
    if bound is not None and claimed > bound:
        return f"{claim}, beyond the bound of {bound:.3g}x unless its data stays in a cache"
    return ""


def ceiling_verdict(row: RoiRow, verdict: str) -> str:
    """Return a low ceiling, unless the verdict is negative anyway."""
    negative = verdict.startswith(("left out", "slower"))
    return "" if negative or row.max_overall_speedup >= LOW_CEILING else f"at most {row.max_overall_speedup:.3f}x"


def headroom_verdict(row: RoiRow, limit: Limit | None = None) -> str:
    """Return the verdict on an entry of a profile without a plan.

    Parameters
    ----------
    row : the entry, with its rank.
    limit : the entry's limit on the machine, or None if no machine is named.
    """
    if limit is not None and row.efficiency is None:
        most = row.max_overall_speedup
        without = "it is all of the time" if math.isinf(most) else f"{most:.3g}x if it took no time"
        return f"no bound: {limit.why_unknown}; {without}"
    look = "look here first" if row.rank == 1 else "worth a look"
    if limit is None or row.efficiency is None:
        return f"at most {row.max_overall_speedup:.3f}x" if row.max_overall_speedup < LOW_CEILING else look
    if row.efficiency > 1 + FASTER_TOLERANCE:
        return TOO_FAST
    local, overall = row.max_local_speedup or 1.0, row.bounded_overall_speedup or 1.0
    if local < 1 + CLAIM_TOLERANCE:
        return "at its bound: only another algorithm or dtype makes it faster"
    headroom = f"at {100 * row.efficiency:.0f} % of its bound: at most {local:.3g}x locally, {overall:.3f}x overall"
    return f"{look}: {headroom}" if overall >= LOW_CEILING else headroom


def decision(rows: Sequence[RoiRow], total_s: float, economics: Economics | None, budget_days: float | None) -> str:
    """Return what to do, in one sentence."""
    done = [row for row in rows if row.cumulative_time_s is not None]
    total = format_si(total_s, "s")
    if budget_days is not None and done:
        last = done[-1]
        names, left = ", ".join(repr(row.name) for row in done), format_si(last.cumulative_time_s or 0.0, "s")
        gain = f"{last.cumulative_speedup:.4g}x overall, from {total} to {left}"
        return f"Within {days_text(budget_days)} do {names}: {gain}, in {days_text(last.cumulative_dev_days or 0.0)}."
    if budget_days is not None:
        return f"No candidate is worth doing within {days_text(budget_days)}."
    first = next((row for row in rows if DO_FIRST in row.verdict.split("; ")), None)
    if first is None:
        return "Do none of the candidates: each is left out, marginal, slower, or does not pay back."
    gains = [f"saves {format_si(first.time_saved_s, 's')} of {total}"]
    if math.isfinite(first.overall_speedup):  # nothing may be left
        gains.insert(0, f"{first.overall_speedup:.4g}x overall")
    if first.dev_days is not None:
        gains.append(f"in {days_text(first.dev_days)}")
    if economics and first.net_value is not None:
        gains.append(f"pays back in {_payback_text(first.payback_days or 0.0)}")
        gains.append(f"net value {first.net_value:,.0f} over {economics.horizon_text}")
    return f"Do {first.name!r} first: {', '.join(gains)}."


def _payback_text(days: float) -> str:
    """Return calendar days in words, rounded."""
    return "less than a day" if days < 1 else f"{days:,.0f} day{'' if round(days) == 1 else 's'}"


def days_text(days: float) -> str:
    """Return a number of days in words.

    >>> days_text(1), days_text(2.5)
    ('1 day', '2.5 days')
    """
    return f"{days:g} day{'' if days == 1 else 's'}"


def ranking_notes(rows: Sequence[RoiRow], *, selected: bool = False) -> list[str]:
    """Return what the figures mean, with the first row as the example, and what all candidates give together.

    Parameters
    ----------
    rows : the ranking.
    selected : whether a set within some days was chosen; the decision then states what it gives.
    """
    first = rows[0]
    less, more = time_saved_fraction(first.overall_speedup), first.overall_speedup - 1
    notes = []
    if math.isfinite(more) and more >= 0:
        notes.append(
            f"{first.name!r}: {first.overall_speedup:.4g}x overall is {100 * less:.3g} % less time for the same work, "
            f"or {100 * more:.3g} % more work in the same time"
            + ("." if first.dev_days is None else "; ROI/day is the latter divided by the days.")
        )
    without_days = [row.name for row in rows if row.dev_days is None]
    if without_days:
        notes.append(f"Ranked by time saved, since these have no dev_days and so no ROI: {_names(without_days)}.")
    done = [row for row in rows if row.cumulative_time_s is not None]
    if len(done) > 1 and not selected:
        last = done[-1]
        days = f", {days_text(last.cumulative_dev_days)}" if last.cumulative_dev_days is not None else ""
        time = format_si(last.cumulative_time_s or 0.0, "s")
        notes.append(f"All together, in this order: {time}, {last.cumulative_speedup:.4g}x{days}.")
    notes.extend(_claim_note(row) for row in rows if claim_verdict(row))
    notes.extend(_matrix_note(rows))
    notes.append("Assumes that entries do not overlap in time; speedups of several candidates on one entry multiply.")
    return notes


def chain_notes(chains: Sequence[Chain], rows: Sequence[RoiRow]) -> list[str]:
    """Return for candidates that were ranked together, since one needs the others, what they take and give."""
    done = {row.name for row in rows if row.cumulative_time_s is not None}
    return [
        f"{_names(chain.names[:-1])} {'is' if len(chain.names) == 2 else 'are'} ranked with {chain.names[-1]!r}, which "
        f"needs {'it' if len(chain.names) == 2 else 'them'}: {chain.overall_speedup:.4g}x overall together"
        + ("" if chain.dev_days is None else f", in {days_text(chain.dev_days)}")
        + ("." if chain.roi_per_day is None else f", {chain.roi_per_day:.4g} a day.")
        for chain in chains
        if len(chain.names) > 1 and done.issuperset(chain.names)
    ]


def _names(names: Sequence[str]) -> str:
    """Return the first names of a list."""
    more = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(map(repr, names[:_MOST_LISTED])) + more


def _matrix_note(rows: Sequence[RoiRow]) -> list[str]:
    """Return where in the decision matrix the candidates stand."""
    places: dict[str, list[str]] = {}
    for row in rows:
        if row.quadrant:
            places.setdefault(row.quadrant, []).append(short_name(row.name))
    listed = "; ".join(f"{place}: {_names(names)}" for place, names in places.items())
    rule = f"high cost: over {HIGH_COST_DAYS:g} days, high return: from {HIGH_RETURN_SPEEDUP:.2f}x overall"
    return [f"Cost and return ({rule}): {listed}."] if places else []


def _claim_note(row: RoiRow) -> str:
    """Return the arithmetic of a claim that contradicts the profile."""
    removed_s = row.total_time_s + row.time_saved_s - row.time_s
    claimed = format_si(row.claimed_total_time_s or 0.0, "s")
    return (
        f"{row.name!r} claims a total of {claimed}. Its targets take {format_si(row.time_s, 's')}; "
        f"{row.local_speedup:.4g}x there gives {format_si(row.total_time_s, 's')} ({row.overall_speedup:.4g}x), "
        f"and {format_si(removed_s, 's')} if they took no time at all."
    )


def bound_notes(effects: Mapping[str, Effect], hardware: Hardware | None, *, cap: bool) -> list[str]:
    """Return how claims compare with the machine's bounds."""
    if hardware is None:
        return []
    beyond = [name for name, e in effects.items() if e.claimed_speedup * (1 - CLAIM_TOLERANCE) > e.limit_speedup]
    notes = []
    if beyond:
        counted = "counts as that limit" if cap else "counts as claimed, as requested"
        notes.append(
            f"A claim beyond what {hardware.name} allows for the same operators {counted}: {_names(beyond)}. "
            'If a change of dtype or algorithm explains it, state that in the plan: kind = "dtype" or "algorithm".'
            + (" If its data stays in a cache, --as-claimed counts it in full." if cap else "")
        )
    replaced = [name for name, e in effects.items() if not e.candidate.keeps_operators]
    if replaced:
        notes.append(f"Not checked against bounds, since these replace the operators: {_names(replaced)}.")
    unbounded = [name for name, e in effects.items() if e.candidate.keeps_operators and e.efficiency is None]
    if unbounded:
        notes.append(f"Not every target has a bound: {_names(unbounded)}.")
    return notes


def money_notes(economics: Economics | None) -> list[str]:
    """Return how the money is counted."""
    if economics is None:
        return []
    notes = [
        f"{economics.gpus:g} GPUs x {economics.price_per_gpu_hour:g} per GPU-hour (one GPU, not the fleet) x "
        f"{economics.hours_per_year:g} h a year = {economics.yearly_cost:.10g} a year now; the work stays the same."
    ]
    if economics.dev_day_cost is None:
        notes.append("Payback and net value need the cost of a development day (--dev-day-cost).")
    elif economics.horizon_years == 1 and not economics.discount_rate:
        notes.append(
            "Yearly saving: in one year. Payback: calendar days. Net value: the first year's saving less development."
        )
    else:
        d, years = economics.discount_rate, economics.horizon_years
        notes.append(
            f"Yearly saving: in one year. Payback: calendar days, not discounted. Net value: present value of the "
            f"saving over {years:g} years at {100 * d:g} % a year, {economics.annuity_years:.4g} yearly savings "
            "((1 - (1 + d)^-years) / ln(1 + d), since it accrues daily), less development, paid today."
        )
    return notes
