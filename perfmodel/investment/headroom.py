"""Without a plan: what physics still allows for each part of a profile, and so where to look first."""

from __future__ import annotations

import dataclasses
import math

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis.diagnose import wall_time
from perfmodel.diagnosis.limits import FASTER_TOLERANCE, TOO_FAST, Limit
from perfmodel.diagnosis.wall import WAITS, without_waiting_bounds
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import candidate_effect
from perfmodel.investment.ranking import HEADROOM, Ranking
from perfmodel.investment.roi import Baseline, RoiRow, roi_row
from perfmodel.investment.verdict import headroom_verdict, money_notes
from perfmodel.investment.wall import WALL_NOTE
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile
from perfmodel.profile.report import profile_summary


def headroom(
    profile: Profile,
    *,
    local_speedup: float = 2.0,
    economics: Economics | None = None,
    hardware: Hardware | None = None,
) -> Ranking:
    """Rank the entries of a profile by what they could be worth: without a plan, where to look first.

    With ``hardware`` each entry is taken down to its bound there, alone: ``local_speedup`` is measured over attainable
    time, and ``overall_speedup`` what that is worth for the run. Entries are ranked by the time that this saves. An
    entry without a bound, for which physics excludes nothing, is ranked by its whole time; its verdict states why it
    has no bound, and it has no speedup. Without ``hardware`` each entry is made ``local_speedup`` times faster, and
    entries are ranked by the time that this saves. ``max_overall_speedup`` is the ceiling in both cases: the entry
    removed. Exchanges of a traced run have no bound, since their time holds waits for other ranks.

    Parameters
    ----------
    profile : the measured profile; of one with a time line, the entries of its wall time (`perfmodel.diagnosis.wall`).
    local_speedup : speedup of each entry without ``hardware``.
    economics : fleet and prices for the yearly saving.
    hardware : the machine that the profile was measured on, for the bounds.

    Raises
    ------
    UsageError
        If the profile has no time, or the speedup is not above 0.
    """
    given, profile = profile, wall_time(profile, hardware)
    if profile is not given:
        profile = without_waiting_bounds(profile)
    baseline = Baseline.of(profile, economics, hardware, cap=False)
    pairs = [_entry_row(name, baseline, local_speedup) for name in baseline.times_s]
    pairs.sort(key=lambda pair: (-_allowed_s(pair[0]), pair[0].name))
    rows = []
    for number, (row, limit) in enumerate(pairs, start=1):
        row = dataclasses.replace(row, rank=number)
        rows.append(dataclasses.replace(row, verdict=headroom_verdict(row, limit)))
    title = f"Headroom of each part of {profile_summary(profile, hardware)}"
    walls = () if profile is given else (WALL_NOTE,)
    notes = (*walls, *_notes(rows, baseline, hardware, local_speedup), *money_notes(economics), *profile.notes)
    return Ranking(tuple(rows), profile, title, notes, economics, hardware, _decision(*pairs[0]), HEADROOM)


def _entry_row(name: str, baseline: Baseline, local_speedup: float) -> tuple[RoiRow, Limit | None]:
    """Return the row of one entry alone, down to its bound if a machine is named, and its limit."""
    limit = baseline.bounds.limits.get(name)
    bounded = limit is not None and limit.efficiency is not None
    speedup = limit.max_local_speedup if limit is not None and bounded else local_speedup
    candidate = Candidate(name or "(unnamed)", (name,), speedup if math.isfinite(speedup) else 1.0)
    row = roi_row(candidate_effect(candidate, (name,), baseline.times_s, baseline.bounds), baseline)
    row = dataclasses.replace(row, claimed_local_speedup=None)
    if limit is not None and not bounded:
        nan = math.nan
        row = dataclasses.replace(
            row, local_speedup=nan, overall_speedup=nan, time_saved_s=nan, total_time_s=nan, yearly_saving=None
        )
    return row, limit


def _allowed_s(row: RoiRow) -> float:
    """Return the most that an entry can save [s]: all of its time if it has no bound."""
    return row.time_s if row.max_local_speedup is None else row.time_saved_s


def _decision(first: RoiRow, limit: Limit | None) -> str:
    start = f"Look first at {first.name!r}: {100 * first.fraction:.3g} % of the time"
    if first.efficiency is None:
        waits = limit is not None and limit.why_unknown == WAITS
        return f"{start}; {WAITS}." if waits else f"{start}."
    if first.efficiency > 1 + FASTER_TOLERANCE:
        return f"{start}, {TOO_FAST}."
    most = f"at most {first.local_speedup:.3g}x locally and {first.overall_speedup:.3f}x overall"
    return f"{start}, at {100 * first.efficiency:.0f} % of its bound, so {most}."


def _notes(rows: list[RoiRow], baseline: Baseline, hardware: Hardware | None, local_speedup: float) -> tuple[str, ...]:
    total = "The profile's total is the sum of its entries; time outside of them is not counted."
    if hardware is None:
        return (
            f"Local and overall: this part alone made {local_speedup:g}x faster.",
            "Pass --on HW to compare each part with what the machine allows.",
            total,
        )
    bounded = [row for row in rows if row.efficiency is not None]
    left_s = baseline.total_s - math.fsum(row.time_saved_s for row in bounded)
    share = math.fsum(row.fraction for row in bounded)
    speedup = f"{baseline.total_s / left_s:.3g}x overall" if left_s > 0 else "no time left"
    return (
        f"Local and overall: this part alone at its bound on {hardware.name}, every tensor crossing device memory "
        "once.",
        f"{len(bounded)} of {len(rows)} entries, {100 * share:.3g} % of the time, have a bound; with all of them at "
        f"it: {format_si(left_s, 's')}, {speedup}. More needs another algorithm, dtype or fusion.",
        total,
    )
