"""The return of one candidate alone: its row of a ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.investment.amdahl import amdahl_limit, amdahl_speedup, roi_per_day, time_saved_fraction
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Effect, EntryBounds
from perfmodel.profile.profile import Profile

#: thresholds of the decision matrix, our own choice: more days than a working week is a high cost, a tenth more
#: throughput a high return
HIGH_COST_DAYS = 5.0
HIGH_RETURN_SPEEDUP = 1.10
QUICK_WIN, BIG_BET, FILL_IN, AVOID = "quick win", "big bet", "fill-in", "avoid"


@dataclass(frozen=True)
class RoiRow:
    """One candidate of a ranking; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    rank : 1 for the candidate to do first.
    name, targets, kind : the candidate and the entries that it changes.
    time_s, fraction : total time of the targets [s], and its share of the run's time.
    claimed_local_speedup, local_speedup : speedup of the targets, as claimed and as counted: at most what their bound
        allows; infinite if they are removed.
    attainable_time_s, efficiency : the bound of the targets on the machine [s], and bound over measured time; None
        without a machine, and if a target has no bound.
    max_local_speedup, bounded_overall_speedup : what that bound allows for the targets and for the run, as long as the
        operators stay the same; None if it is not known or the candidate replaces the operators.
    overall_speedup, time_saved_s : of the run, with this candidate alone [s].
    max_overall_speedup : speedup of the run if the targets took no time.
    dev_days, risk : as in the plan.
    roi_per_day : (overall_speedup - 1) / dev_days, or None without dev_days.
    quadrant : "quick win", "big bet", "fill-in" or "avoid": low or high cost, high or low return.
    yearly_saving, payback_days, net_value : money in the currency of the prices, and calendar days; None without
        prices. ``net_value`` is the present value over the horizon (one year by default).
    next_best, opportunity_gain, opportunity_cost : the best other candidate, and its return on the days spent on this
        one: gain in throughput, and present value in money.
    claimed_total_time_s, total_time_s : the claimed time of the run, and its time after this candidate alone [s].
    cumulative_time_s, cumulative_time_saved_s, cumulative_speedup, cumulative_dev_days : after this candidate and all
        before it; None for a candidate that is left out of the combination.
    verdict : what to do about it, see `perfmodel.investment.ranking.rank_candidates`.
    """

    rank: int
    name: str
    targets: tuple[str, ...]
    time_s: float
    fraction: float
    local_speedup: float
    overall_speedup: float
    time_saved_s: float
    max_overall_speedup: float
    total_time_s: float
    dev_days: float | None = None
    risk: str = ""
    roi_per_day: float | None = None
    yearly_saving: float | None = None
    payback_days: float | None = None
    net_value: float | None = None
    claimed_total_time_s: float | None = None
    cumulative_time_s: float | None = None
    cumulative_time_saved_s: float | None = None
    cumulative_speedup: float | None = None
    cumulative_dev_days: float | None = None
    verdict: str = ""
    kind: str = ""
    claimed_local_speedup: float | None = None
    attainable_time_s: float | None = None
    efficiency: float | None = None
    max_local_speedup: float | None = None
    bounded_overall_speedup: float | None = None
    quadrant: str = ""
    next_best: str = ""
    opportunity_gain: float | None = None
    opportunity_cost: float | None = None


@dataclass(frozen=True)
class Baseline:
    """The run before any change, with the prices and bounds that hold for every candidate.

    Attributes
    ----------
    times_s : entry -> time [s].
    economics : fleet and prices, or None.
    bounds : the bounds of the entries on the machine.
    """

    times_s: Mapping[str, float]
    economics: Economics | None = None
    bounds: EntryBounds = field(default_factory=EntryBounds)

    @classmethod
    def of(
        cls, profile: Profile, economics: Economics | None, hardware: Hardware | None, *, cap: bool = True
    ) -> Baseline:
        """Return the baseline of a profile.

        Raises
        ------
        UsageError
            If the profile has no time.
        """
        if not profile.total_time_s > 0:
            raise UsageError(
                "the profile has no time.", place=profile.source, remedy="At least one entry needs a time above 0."
            )
        times_s = {entry.name: entry.time_s for entry in profile.entries}
        return cls(times_s, economics, EntryBounds.of(profile, hardware, cap=cap))

    @property
    def total_s(self) -> float:
        """The time of the run [s]."""
        return math.fsum(self.times_s.values())


def roi_row(effect: Effect, baseline: Baseline) -> RoiRow:
    """Return the row of one candidate alone; rank, verdict and cumulative figures are added by the ranking."""
    candidate, economics, bounds = effect.candidate, baseline.economics, baseline.bounds
    fraction = min(effect.time_s / baseline.total_s, 1.0)
    overall = float(amdahl_speedup(fraction, effect.local_speedup))
    days = candidate.dev_days
    saved_s = effect.time_s * float(time_saved_fraction(effect.local_speedup))
    max_local = effect.max_local_speedup
    all_bounded = effect.efficiency is not None
    return RoiRow(
        rank=0,
        name=candidate.name,
        targets=effect.targets,
        kind=candidate.kind,
        time_s=effect.time_s,
        fraction=fraction,
        claimed_local_speedup=effect.claimed_speedup,
        local_speedup=effect.local_speedup,
        attainable_time_s=math.fsum(bounds.attainable_s(n) or 0.0 for n in effect.targets) if all_bounded else None,
        efficiency=effect.efficiency,
        max_local_speedup=max_local,
        bounded_overall_speedup=None if max_local is None else float(amdahl_speedup(fraction, max_local)),
        overall_speedup=overall,
        time_saved_s=saved_s,
        max_overall_speedup=float(amdahl_limit(fraction)),
        total_time_s=baseline.total_s - saved_s,
        dev_days=days,
        risk=candidate.risk,
        roi_per_day=None if days is None else float(roi_per_day(overall, days)),
        quadrant=quadrant(overall, days),
        yearly_saving=economics.yearly_saving(overall) if economics else None,
        payback_days=economics.payback_days(overall, days) if economics and days is not None else None,
        net_value=economics.net_value(overall, days) if economics and days is not None else None,
        claimed_total_time_s=candidate.claimed_total_time_s,
    )


def quadrant(overall_speedup: float, dev_days: float | None) -> str:
    """Return the place in the decision matrix: cost (high above 5 days) against return (high from 1.10x).

    A change that makes the run no faster is to be avoided, however cheap it is.

    >>> quadrant(1.36, 1), quadrant(1.36, 20), quadrant(1.02, 1), quadrant(1.02, 20), quadrant(1.36, None)
    ('quick win', 'big bet', 'fill-in', 'avoid', '')
    >>> quadrant(0.9, 1)
    'avoid'
    """
    if dev_days is None:
        return ""
    if overall_speedup <= 1.0:
        return AVOID
    high_return = overall_speedup >= HIGH_RETURN_SPEEDUP
    if dev_days > HIGH_COST_DAYS:
        return BIG_BET if high_return else AVOID
    return QUICK_WIN if high_return else FILL_IN
