"""The verdict on each candidate, by stated rules; see `perfmodel.analysis.roi.rank` for their order."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.analysis.plan import Candidate
from perfmodel.analysis.roi_report import RoiRow
from perfmodel.core.units import format_si

#: a claimed time may differ from the computed one by this share before it contradicts the profile
CLAIM_TOLERANCE = 0.01
#: below this overall speedup a change is marginal: it drowns in the noise of most measurements
MARGINAL_SPEEDUP = 1.01
#: where even the ceiling is below this, the verdict says so
LOW_CEILING = 1.05


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


def main_verdict(row: RoiRow, reason: str, *, needed: bool, first: bool) -> str:
    """Return the verdict proper; ``reason`` is what `left_out` says, ``first`` that none was "do first" yet."""
    if reason:
        return reason
    if row.overall_speedup < 1:
        return "slower: only as a step to what comes after it"
    if row.net_value is not None and row.net_value < 0:
        return "does not pay back in a year"
    if row.overall_speedup < MARGINAL_SPEEDUP:
        return "small, but others need it" if needed else "marginal: under 1 % overall"
    return "do first" if first else "worth doing"


def claim_verdict(row: RoiRow) -> str:
    """Say that the claimed total contradicts the computed one, or nothing."""
    claimed = row.claimed_total_time_s
    if claimed is None or abs(claimed - row.total_time_s) <= CLAIM_TOLERANCE * row.total_time_s:
        return ""
    return f"claim contradicts the profile: {format_si(row.total_time_s, 's')}, not {format_si(claimed, 's')}"


def ceiling_verdict(row: RoiRow, verdict: str) -> str:
    """Say where there is little to gain at all, unless the verdict is negative anyway."""
    negative = verdict.startswith(("left out", "slower"))
    return "" if negative or row.max_overall_speedup >= LOW_CEILING else f"at most {row.max_overall_speedup:.3f}x"


def headroom_verdict(row: RoiRow, number: int) -> str:
    """Return the verdict on an entry of a profile without a plan; ``number`` is its rank."""
    if row.max_overall_speedup < LOW_CEILING:
        return f"bounded: at most {row.max_overall_speedup:.3f}x"
    return "look here first" if number == 1 else "worth a look"
