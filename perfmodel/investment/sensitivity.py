"""Which assumption flips the decision: how far each may be off before the net value is 0, or another comes first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.investment.amdahl import time_saved_fraction
from perfmodel.investment.economics import Economics
from perfmodel.investment.ranking import PAYBACK, ROI, TIME, Ranking
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
    instead : the next candidate.
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
    place is lost where the figure that ranks (gain per day, payback, or time saved) equals the next candidate's. Price,
    fleet and horizon change all candidates alike and leave the order.
    """
    at = next((index for index, row in enumerate(ranking.rows) if _is_done(row)), None)
    if at is None:
        return Sensitivity(())
    first = ranking.rows[at]
    rival = next((row for row in ranking.rows[at + 1 :] if _is_rival(row, first)), None)
    flips = [_speedup_flip(first, rival, ranking.economics, ranking.ranked_by)]
    if first.dev_days is not None:
        flips.append(_days_flip(first, rival, ranking.economics, ranking.ranked_by))
    flips.extend(_money_flips(first, ranking.economics))
    return Sensitivity(tuple(flips))


def _is_done(row: RoiRow) -> bool:
    return row.cumulative_time_s is not None and row.overall_speedup > 1


def _is_rival(row: RoiRow, first: RoiRow) -> bool:
    """Whether a candidate could come first instead: one that saves something, even if the first excludes it."""
    return row.overall_speedup > 1 and row.name != first.name and "needs" not in row.verdict


def _speedup_flip(first: RoiRow, rival: RoiRow | None, economics: Economics | None, by: str) -> Flip:
    """Return the local speedups at which the net value is 0, and at which the rival comes first."""
    days = first.dev_days or 0.0
    zero = change = None
    if economics and economics.dev_day_cost is not None and first.dev_days is not None:
        zero = _local(first, days * economics.dev_day_cost / (economics.yearly_cost * economics.annuity_years))
    if rival is not None:
        change = _local(first, _equal_saving(first, rival, by))
    return _flip(first, SPEEDUP, first.local_speedup, zero, change, rival)


def _equal_saving(first: RoiRow, rival: RoiRow, by: str) -> float:
    """Return the share of the run's time that the first has to save to be as good as the rival."""
    rival_saving = float(time_saved_fraction(rival.overall_speedup))
    if by == TIME or first.dev_days is None or rival.dev_days is None:
        return rival_saving
    if by == PAYBACK:
        return rival_saving * first.dev_days / rival.dev_days
    assert by == ROI
    return float(time_saved_fraction(1.0 + (rival.overall_speedup - 1.0) * first.dev_days / rival.dev_days))


def _local(row: RoiRow, saved_fraction: float) -> float | None:
    """Return the local speedup that saves a share of the run's time: 1 / (1 - u / p); None if no speedup does."""
    left = 1.0 - saved_fraction / row.fraction if row.fraction else 0.0
    return 1.0 / left if left > 0 else None


def _days_flip(first: RoiRow, rival: RoiRow | None, economics: Economics | None, by: str) -> Flip:
    """Return the days at which the net value is 0, and at which the rival comes first."""
    days = first.dev_days or 0.0
    zero = change = None
    if economics and economics.dev_day_cost:
        zero = economics.present_saving(first.overall_speedup) / economics.dev_day_cost
    if rival is not None and by == ROI and rival.roi_per_day:
        change = (first.overall_speedup - 1.0) / rival.roi_per_day
    elif rival is not None and by == PAYBACK and rival.payback_days is not None and first.payback_days:
        change = days * rival.payback_days / first.payback_days
    return _flip(first, DAYS, days, zero, change, rival)


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
    rival: RoiRow | None = None,
) -> Flip:
    def factor(at: float | None) -> float | None:
        return None if at is None or math.isinf(value) or not value else at / value

    instead = rival.name if rival is not None and change is not None else ""
    return Flip(first.name, assumption, value, zero, factor(zero), change, factor(change), instead)
