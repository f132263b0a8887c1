"""Which assumption flips the decision: how far each may be off before the net value is 0, or another comes first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.investment.amdahl import time_saved_fraction
from perfmodel.investment.chains import PAYBACK, ROI, TIME, Chain, all_chains, figure
from perfmodel.investment.economics import Economics
from perfmodel.investment.effect import Combination
from perfmodel.investment.ranking import Ranking
from perfmodel.investment.roi import RoiRow

SPEEDUP, DAYS, DAY_COST = "local speedup", "development days", "cost of a day"
PRICE, GPUS, HOURS, HORIZON = "price per GPU-hour", "GPUs", "hours a year", "horizon [years]"


@dataclass(frozen=True)
class Flip:
    """One assumption behind the first candidate; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    candidate, assumption, value : the candidate, the assumption, and its value now.
    net_zero_value, net_zero_factor : the value at which the net value is 0, and that over the value now; None if there
        is no such value, or without prices.
    rank_change_value, rank_change_factor : the value at which ``instead`` comes first; None if there is none.
    instead : the next candidate, or what that one needs first.
    """

    candidate: str
    assumption: str
    value: float
    net_zero_value: float | None = None
    net_zero_factor: float | None = None
    rank_change_value: float | None = None
    rank_change_factor: float | None = None
    instead: str = ""


@dataclass(frozen=True)
class Sensitivity(Reportable):
    """The assumptions behind a decision, and where each of them flips it; empty if no candidate is to be done."""

    flips: tuple[Flip, ...]

    @property
    def tightest(self) -> tuple[Flip, float, str] | None:
        """The assumption with the least room: its flip, the factor nearest to 1, and what happens there; or None."""
        named = [
            (flip, factor, event)
            for flip in self.flips
            for factor, event in (
                (flip.net_zero_factor, "the net value is 0"),
                (flip.rank_change_factor, f"{flip.instead!r} comes first"),
            )
            if factor
        ]
        return min(named, key=lambda item: abs(math.log(item[1])), default=None)


def sensitivity(ranking: Ranking) -> Sensitivity:
    """Return for each assumption where the decision flips; empty if no candidate is to be done.

    Each assumption is changed alone, in closed form. Net value V = A a - c with the yearly saving A = K u, u = p (1 - 1
    / s) for the share p of the time and the local speedup s, K the yearly cost of the fleet, a the years that the
    horizon is worth, c days x cost of a day. V = 0: price, GPUs and hours at the factor c / (A a); days and the cost of
    a day at its inverse; s at 1 / (1 - u0 / p) with u0 = c / (K a); the horizon as `Economics.break_even_years`. First
    place is lost where the figure that ranks (gain per day, payback, or time saved) equals the next candidate's, each
    taken with what it needs (`perfmodel.investment.chains`). Price, fleet and horizon change all candidates alike and
    leave the order.
    """
    at = next((index for index, row in enumerate(ranking.rows) if _is_done(row)), None)
    if at is None:
        return Sensitivity(())
    first = ranking.rows[at]
    race = _Race.of(ranking, first)
    flips = [_speedup_flip(first, race, ranking)]
    if first.dev_days is not None:
        flips.append(_days_flip(first, race, ranking))
    flips.extend(_money_flips(first, ranking.economics))
    return Sensitivity(tuple(flips))


def _is_done(row: RoiRow) -> bool:
    return row.cumulative_time_s is not None and row.overall_speedup > 1


@dataclass(frozen=True)
class _Race:
    """The chains by which the first candidate comes first, and the best one without it, which could come first instead.

    Attributes
    ----------
    own : the chains that hold the first candidate: it leads as long as one of them does.
    rival : the best chain that saves something and does not need it, even if it excludes it; or None.
    """

    own: tuple[Chain, ...]
    rival: Chain | None

    @classmethod
    def of(cls, ranking: Ranking, first: RoiRow) -> _Race:
        chosen = None if ranking.selection is None else ranking.selection.names
        chains = [
            chain
            for chain in all_chains(ranking.effects, ranking.baseline)
            if chain.overall_speedup > 1 and (chosen is None or chosen.issuperset(chain.names))
        ]
        others = [chain for chain in chains if first.name not in chain.names]
        rival = min(others, key=lambda chain: (figure(chain, ranking.ranked_by), -chain.time_saved_s), default=None)
        return cls(tuple(chain for chain in chains if first.name in chain.names), rival)


def _speedup_flip(first: RoiRow, race: _Race, ranking: Ranking) -> Flip:
    """Return the local speedups at which the net value is 0, and at which the rival comes first."""
    days, economics = first.dev_days or 0.0, ranking.economics
    zero = None
    if economics and economics.dev_day_cost is not None and first.dev_days is not None:
        saved = days * economics.dev_day_cost / (economics.yearly_cost * economics.annuity_years)
        zero = _local((first.name,), first, saved, ranking)
    changes = [
        value
        for chain in race.own
        if race.rival is not None
        and (value := _local(chain.names, first, _equal_saving(chain, race.rival, ranking.ranked_by), ranking))
    ]
    return _flip(first, SPEEDUP, first.local_speedup, zero, min(changes, default=None), race.rival)


def _equal_saving(chain: Chain, rival: Chain, by: str) -> float:
    """Return the share of the run's time that a chain has to save to be as good as the rival."""
    rival_saving = float(time_saved_fraction(rival.overall_speedup))
    if by == TIME or chain.dev_days is None or rival.dev_days is None:
        return rival_saving
    if by == PAYBACK:
        return rival_saving * chain.dev_days / rival.dev_days
    assert by == ROI
    return float(time_saved_fraction(1.0 + (rival.overall_speedup - 1.0) * chain.dev_days / rival.dev_days))


def _local(names: Sequence[str], first: RoiRow, saved_fraction: float, ranking: Ranking) -> float | None:
    """Return the local speedup of one of some candidates with which they save a share of the run's time together.

    With t the time of its targets after the others, r that of the rest, and T the run's: t / s + r = (1 - u) T, so s =
    t / ((1 - u) T - r). For one alone that is 1 / (1 - u / p). None if no speedup saves as much.
    """
    others = Combination(ranking.baseline.times_s, ranking.baseline.bounds)
    for name in names:
        if name != first.name:
            others.add(ranking.effects[name])
    targets_s = math.fsum(map(others.entry_s, first.targets))
    left_s = targets_s - (others.time_s() - (1.0 - saved_fraction) * ranking.baseline.total_s)
    return targets_s / left_s if left_s > 0 and targets_s > 0 else None


def _days_flip(first: RoiRow, race: _Race, ranking: Ranking) -> Flip:
    """Return the days at which the net value is 0, and at which the rival comes first."""
    days, economics = first.dev_days or 0.0, ranking.economics
    zero = None
    if economics and economics.dev_day_cost:
        zero = economics.present_saving(first.overall_speedup) / economics.dev_day_cost
    changes = (
        []
        if race.rival is None
        else [
            value - ((chain.dev_days or 0.0) - days)
            for chain in race.own
            if (value := _equal_days(chain, race.rival, ranking.ranked_by)) is not None
        ]
    )
    return _flip(first, DAYS, days, zero, max(changes, default=None), race.rival)


def _equal_days(chain: Chain, rival: Chain, by: str) -> float | None:
    """Return the days with which a chain would be as good as the rival; None if the days do not rank."""
    if by == ROI and rival.roi_per_day:
        return (chain.overall_speedup - 1.0) / rival.roi_per_day
    if by == PAYBACK and rival.payback_days is not None and chain.payback_days:
        return (chain.dev_days or 0.0) * rival.payback_days / chain.payback_days
    return None


def _money_flips(first: RoiRow, economics: Economics | None) -> list[Flip]:
    """Return the flips of the assumptions that change only the net value."""
    if economics is None or not economics.dev_day_cost or first.dev_days is None:
        return []
    cost = first.dev_days * economics.dev_day_cost
    factor = cost / economics.present_saving(first.overall_speedup)
    years = economics.break_even_years(first.overall_speedup, first.dev_days)
    values = {PRICE: economics.price_per_gpu_hour, GPUS: economics.gpus, HOURS: economics.hours_per_year}
    return [
        *(_flip(first, name, value, value * factor) for name, value in values.items()),
        _flip(first, DAY_COST, economics.dev_day_cost, economics.dev_day_cost / factor),
        _flip(first, HORIZON, economics.horizon_years, None if years is None or math.isinf(years) else years),
    ]


def _flip(
    first: RoiRow,
    assumption: str,
    value: float,
    zero: float | None,
    change: float | None = None,
    rival: Chain | None = None,
) -> Flip:
    def factor(at: float | None) -> float | None:
        return None if at is None or math.isinf(value) or not value else at / value

    instead = rival.names[0] if rival is not None and change is not None else ""
    return Flip(first.name, assumption, value, zero, factor(zero), change, factor(change), instead)
