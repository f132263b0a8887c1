"""A ranking of candidates as a result, and one candidate set against the whole profile."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Report
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.investment.amdahl import amdahl_limit, amdahl_speedup, roi_per_day, time_saved_fraction
from perfmodel.investment.budget import Selection
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Bounds, Effect
from perfmodel.investment.order import PAYBACK, ROI, TIME
from perfmodel.investment.report import RoiRow, ranking_report
from perfmodel.investment.verdict import quadrant
from perfmodel.profile.profile import Profile

#: `Ranking.ranked_by` without a plan
HEADROOM = "headroom"


@dataclass(frozen=True)
class Ranking:
    """Candidates in the order in which to do them, and the assumptions that the figures rest on.

    Attributes
    ----------
    rows : the candidates, the first to do first.
    profile, economics, hardware : what they were set against.
    title, decision : heading, and what to do in one sentence.
    notes : sentences for people.
    ranked_by : "roi", "payback" or "time"; "headroom" without a plan.
    selection : the best set within a number of days, where one was asked for.
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

    def report(
        self,
        *,
        context: Mapping[str, Any] | None = None,
        top: int | None = None,
        more: Mapping[str, Report] | None = None,
        document: bool = False,
    ) -> Report:
        """Return the ranking as a report.

        Parameters
        ----------
        context : facts for JSON.
        top : only the first rows.
        more : further tables.
        document : put decision and assumptions above the table, as a page for others wants them; else below.
        """
        rows = [dataclasses.asdict(row) for row in self.rows[:top]]
        notes = self.notes
        if len(rows) < len(self.rows):
            rest_s = math.fsum(row.time_s for row in self.rows[len(rows) :])
            notes = (f"{len(self.rows) - len(rows)} more rows ({format_si(rest_s, 's')}) are not shown.", *notes)
        title = self.title
        if document:
            listed = "\n".join(f"- {said}" for said in self.assumptions)
            title = f"{title}\n\n**Decision:** {self.decision}\n\n{listed}"
        elif self.decision:
            notes = (self.decision, *notes)
        facts = {**(context or {}), "decision": self.decision, "ranked_by": self.ranked_by}
        shown = {"money": self.economics is not None, "bound": self.ranked_by != HEADROOM}
        return ranking_report(rows, title=title, notes=notes, context=facts, more=more, **shown)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on: profile, machine, ranking, prices."""
        device = f", measured on {self.profile.device}" if self.profile.device else ""
        kind = f" ({self.profile.format}{device})" if self.profile.format or device else ""
        machine = self.hardware.title or self.hardware.name if self.hardware else "none named, so nothing is bounded"
        ranked = {ROI: "gain a day", PAYBACK: "payback", TIME: "time saved"}.get(self.ranked_by, "what is allowed")
        said = [
            f"Profile: {os.path.basename(self.profile.source) or 'made in Python'}{kind}, "
            f"{format_si(self.profile.total_time_s, 's')}",
            f"Machine for the bounds: {machine}",
            f"Ranked by: {ranked}",
        ]
        if self.economics:
            said.append(f"Prices: {self.economics}")
        return tuple(said)

    def _repr_html_(self) -> str:
        """Show the ranking as a table in a notebook."""
        return self.report()._repr_html_()


@dataclass(frozen=True)
class Setting:
    """What every candidate is set against."""

    times_s: Mapping[str, float]
    economics: Economics | None
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def total_s(self) -> float:
        """The time of the whole run [s]."""
        return math.fsum(self.times_s.values())


def entry_times(profile: Profile) -> dict[str, float]:
    """Return the time of each entry [s], and check that there is any."""
    if not profile.total_time_s > 0:
        raise UsageError("the profile has no time.", place=profile.source, remedy="Some entry needs a time above zero.")
    return {entry.name: entry.time_s for entry in profile.entries}


def estimate(made: Effect, setting: Setting) -> RoiRow:
    """Set one candidate alone against the whole profile."""
    candidate, economics, bounds = made.candidate, setting.economics, setting.bounds
    fraction = min(made.time_s / setting.total_s, 1.0)
    overall = float(amdahl_speedup(fraction, made.local_speedup))
    days = candidate.dev_days
    saved_s = made.time_s * float(time_saved_fraction(made.local_speedup))
    bound = made.max_local_speedup
    known = made.efficiency is not None
    return RoiRow(
        rank=0,
        name=candidate.name,
        targets=made.targets,
        kind=candidate.kind,
        time_s=made.time_s,
        fraction=fraction,
        claimed_local_speedup=made.claimed_speedup,
        local_speedup=made.local_speedup,
        attainable_time_s=math.fsum(bounds.attainable_s(name) or 0.0 for name in made.targets) if known else None,
        efficiency=made.efficiency,
        max_local_speedup=bound,
        bounded_overall_speedup=None if bound is None else float(amdahl_speedup(fraction, bound)),
        overall_speedup=overall,
        time_saved_s=saved_s,
        max_overall_speedup=float(amdahl_limit(fraction)),
        total_time_s=setting.total_s - saved_s,
        dev_days=days,
        risk=candidate.risk,
        roi_per_day=None if days is None else float(roi_per_day(overall, days)),
        quadrant=quadrant(overall, days),
        yearly_saving=economics.yearly_saving(overall) if economics else None,
        payback_days=economics.payback_days(overall, days) if economics and days is not None else None,
        net_value=economics.net_value(overall, days) if economics and days is not None else None,
        claimed_total_time_s=candidate.claimed_total_time_s,
    )


def profile_text(profile: Profile, hardware: Hardware | None = None) -> str:
    """Return what a profile is, for a heading."""
    name = os.path.basename(profile.source) or "the profile"
    machine = f" on {hardware.name}" if hardware else ""
    entries = counted(len(profile.entries), "entry", "entries")
    return f"{name}{machine}: {format_si(profile.total_time_s, 's')} in {entries}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun in the right form."""
    return f"{number} {one if number == 1 else many or one + 's'}"
