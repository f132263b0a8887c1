"""The verdict on each candidate, by stated rules; see `perfmodel.investment.roi.rank` for their order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfmodel.core.units import format_si
from perfmodel.diagnosis.limits import Limit
from perfmodel.investment.effect import Effect
from perfmodel.investment.report import RoiRow
from perfmodel.profile.candidate import Candidate

#: a claimed time may differ from the computed one by this share before it contradicts the profile
CLAIM_TOLERANCE = 0.01
#: below this overall speedup a change is marginal: it drowns in the noise of most measurements
MARGINAL_SPEEDUP = 1.01
#: where even the ceiling is below this, the verdict says so
LOW_CEILING = 1.05
#: thresholds of the decision matrix, our own choice: more days than a working week is a high cost, a tenth more
#: throughput a high return
HIGH_COST_DAYS = 5.0
HIGH_RETURN_SPEEDUP = 1.10
QUICK_WIN, BIG_BET, FILL_IN, AVOID = "quick win", "big bet", "fill-in", "avoid"


def left_out(row: RoiRow, candidate: Candidate, chosen: Sequence[Candidate], needed: set[str]) -> str:
    """Return why a candidate is left out of the combination, or an empty string."""
    for other in chosen:
        if other.name in candidate.excludes or candidate.name in other.excludes:
            return f"left out: excludes {other.name!r}, which comes first"
    names = {other.name for other in chosen}
    missing = next((name for name in candidate.after if name not in names), None)
    if missing is not None:
        return f"left out: needs {missing!r}, which is left out"
    if row.overall_speedup < 1 and row.name not in needed:
        return "slower: leave it"
    return ""


def main_verdict(row: RoiRow, reason: str, *, needed: bool, first: bool, horizon: str = "a year") -> str:
    """Return the verdict proper; ``reason`` is what `left_out` says, ``first`` that none was "do first" yet."""
    if reason:
        return reason
    if row.overall_speedup < 1:
        return "slower: only as a step to what comes after it"
    if row.net_value is not None and row.net_value < 0:
        return f"does not pay back in {horizon}"
    if row.overall_speedup < MARGINAL_SPEEDUP:
        return "small, but others need it" if needed else "marginal: under 1 % overall"
    return "do first" if first else "worth doing"


def claim_verdict(row: RoiRow) -> str:
    """Say that the claimed total contradicts the computed one, or nothing."""
    claimed = row.claimed_total_time_s
    if claimed is None or abs(claimed - row.total_time_s) <= CLAIM_TOLERANCE * row.total_time_s:
        return ""
    return f"claim contradicts the profile: {format_si(row.total_time_s, 's')}, not {format_si(claimed, 's')}"


def bound_verdict(made: Effect) -> str:
    """Say where a claimed local speedup goes beyond what the machine allows for the same operators, or nothing.

    Two limits: the floor, which nothing that computes the same beats, and the bound with every tensor crossing device
    memory once, which only data that is already in a cache beats.
    """
    claimed = made.claimed_speedup * (1 - CLAIM_TOLERANCE)
    says = "claims to take no time" if math.isinf(claimed) else f"claims {made.claimed_speedup:.3g}x"
    if claimed > made.floor_speedup:
        return f"{says}, physics allows {made.floor_speedup:.3g}x"
    if made.max_local_speedup is not None and claimed > made.max_local_speedup:
        return f"{says}, beyond the bound of {made.max_local_speedup:.3g}x unless its data stays in a cache"
    return ""


def ceiling_verdict(row: RoiRow, verdict: str) -> str:
    """Say where there is little to gain at all, unless the verdict is negative anyway."""
    negative = verdict.startswith(("left out", "slower"))
    return "" if negative or row.max_overall_speedup >= LOW_CEILING else f"at most {row.max_overall_speedup:.3f}x"


def headroom_verdict(row: RoiRow, number: int, limit: Limit | None = None) -> str:
    """Return the verdict on an entry of a profile without a plan.

    Parameters
    ----------
    row : the entry.
    number : its rank.
    limit : what the machine allows for it, or None where no machine is named.
    """
    if limit is not None and row.efficiency is None:
        return f"no bound: {limit.why_unknown}; {row.max_overall_speedup:.3g}x if it took no time"
    look = "look here first" if number == 1 else "worth a look"
    if limit is None or row.efficiency is None:
        return f"bounded: at most {row.max_overall_speedup:.3f}x" if row.max_overall_speedup < LOW_CEILING else look
    local, overall = row.max_local_speedup or 1.0, row.bounded_overall_speedup or 1.0
    if local < 1 + CLAIM_TOLERANCE:
        return "at its bound: only another algorithm or dtype makes it faster"
    says = f"at {100 * row.efficiency:.0f} % of its bound: at most {local:.3g}x locally, {overall:.3f}x overall"
    return f"{look}: {says}" if overall >= LOW_CEILING else says


def quadrant(overall_speedup: float, dev_days: float | None) -> str:
    """Return the place in the decision matrix: cost (above 5 days is high) against return (from 1.10x on high).

    >>> quadrant(1.36, 1), quadrant(1.36, 20), quadrant(1.02, 1), quadrant(1.02, 20), quadrant(1.36, None)
    ('quick win', 'big bet', 'fill-in', 'avoid', '')
    """
    if dev_days is None:
        return ""
    high_return = overall_speedup >= HIGH_RETURN_SPEEDUP
    if dev_days > HIGH_COST_DAYS:
        return BIG_BET if high_return else AVOID
    return QUICK_WIN if high_return else FILL_IN
