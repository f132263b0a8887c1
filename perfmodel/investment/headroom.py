"""Without a plan: what physics still allows for each part of a profile, and so where to look first."""

from __future__ import annotations

import dataclasses
import math

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis.limits import Limit
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Bounds, effect
from perfmodel.investment.notes import money_notes
from perfmodel.investment.ranking import HEADROOM, Ranking, Setting, entry_times, estimate, profile_text
from perfmodel.investment.report import RoiRow
from perfmodel.investment.verdict import headroom_verdict
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile


def headroom(
    profile: Profile,
    *,
    local_speedup: float = 2.0,
    economics: Economics | None = None,
    hardware: Hardware | None = None,
) -> Ranking:
    """Rank the entries of a profile by what they could be worth: without a plan, where to look first.

    With ``hardware`` each entry is taken down to its bound there, alone: ``local_speedup`` is then measured over
    attainable time, ``overall_speedup`` what that is worth overall. Ranked by the time that this saves; an entry
    without a bound, for which physics excludes nothing, stands where its whole time puts it, says why it has none, and
    has no speedup. Without ``hardware`` each entry is made ``local_speedup`` times faster, ranked by its ceiling.
    ``max_overall_speedup`` is in both cases the ceiling, the entry removed.

    Raises
    ------
    UsageError
        When the profile has no time, or the speedup is not above 0.
    """
    bounds = Bounds.of(profile, hardware, cap=False)
    setting = Setting(entry_times(profile), economics, bounds)
    pairs = [_row(name, setting, local_speedup) for name in setting.times_s]
    pairs.sort(key=lambda pair: (-_allowed_s(pair[0]), pair[0].name))
    rows = tuple(
        dataclasses.replace(row, rank=number, verdict=headroom_verdict(row, number, found))
        for number, (row, found) in enumerate(pairs, start=1)
    )
    said = _notes(rows, setting, hardware, local_speedup)
    title = f"What each part is worth, of {profile_text(profile, hardware)}"
    notes = (*said, *money_notes(economics), *profile.notes)
    return Ranking(rows, profile, title, notes, economics, hardware, _decision(rows), HEADROOM)


def _row(name: str, setting: Setting, local_speedup: float) -> tuple[RoiRow, Limit | None]:
    """Return one entry alone: down to its bound where a machine is named, and what its limit says."""
    found = setting.bounds.limits.get(name)
    bounded = found is not None and found.efficiency is not None
    speedup = found.max_local_speedup if found is not None and bounded else local_speedup
    candidate = Candidate(name or "(unnamed)", (name,), speedup if math.isfinite(speedup) else 1.0)
    row = estimate(effect(candidate, (name,), setting.times_s, setting.bounds), setting)
    row = dataclasses.replace(row, claimed_local_speedup=None)
    if found is not None and not bounded:
        nan = math.nan
        row = dataclasses.replace(
            row, local_speedup=nan, overall_speedup=nan, time_saved_s=nan, total_time_s=nan, yearly_saving=None
        )
    return row, found


def _allowed_s(row: RoiRow) -> float:
    """Return the most that an entry can save [s]: without a bound, all of it."""
    if row.max_local_speedup is None:
        return row.time_s
    return row.time_saved_s


def _decision(rows: tuple[RoiRow, ...]) -> str:
    first = rows[0]
    says = f"Look first at {first.name!r}: {100 * first.fraction:.3g} % of the time"
    if first.efficiency is None:
        return f"{says}."
    most = f"at most {first.local_speedup:.3g}x locally and {first.overall_speedup:.3f}x overall"
    return f"{says}, at {100 * first.efficiency:.0f} % of its bound, so {most}."


def _notes(
    rows: tuple[RoiRow, ...], setting: Setting, hardware: Hardware | None, local_speedup: float
) -> tuple[str, ...]:
    total = "The profile's total is the sum of its entries; time outside of them is not counted."
    if hardware is None:
        made = f"Local and overall: this part alone made {local_speedup:g}x faster. At most: this part removed."
        return (made, "With --on, each part is held against what the machine allows.", total)
    bounded = [row for row in rows if row.efficiency is not None]
    saved_s = math.fsum(row.time_saved_s for row in bounded)
    left_s = setting.total_s - saved_s
    share = math.fsum(row.fraction for row in bounded)
    whole = f"{setting.total_s / left_s:.3g}x" if left_s > 0 else "without end"
    return (
        f"Local and overall: this part alone taken down to its bound on {hardware.name}, every tensor crossing device "
        "memory once. At most: this part removed.",
        f"{len(bounded)} of {len(rows)} entries, {100 * share:.3g} % of the time, have a bound; all of them at it: "
        f"{format_si(left_s, 's')}, {whole} overall. More takes another algorithm, dtype or fusion.",
        total,
    )
