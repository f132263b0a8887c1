"""What a speedup is worth in money: a fleet that does the same work in fewer GPU-hours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.analysis.amdahl import time_saved_fraction
from perfmodel.errors import UsageError

HOURS_PER_YEAR = 8760.0
_HOURS_PER_LEAP_YEAR = 8784.0
_DAYS_PER_YEAR = 365.0


@dataclass(frozen=True)
class Economics:
    """A fleet and its prices, all in one currency.

    Attributes
    ----------
    gpus : GPUs that run this work.
    price_per_gpu_hour : price of one GPU for an hour, not of the fleet.
    dev_day_cost : cost of a day of development, or None where unknown; then there is no payback and no net value.
    hours_per_year : hours that each GPU does this work in a year [h], at most 8784.

    Raises
    ------
    UsageError
        On construction, for a value that is not above 0 (``dev_day_cost``: below 0), or more hours than a year has.
    """

    gpus: float
    price_per_gpu_hour: float
    dev_day_cost: float | None = None
    hours_per_year: float = HOURS_PER_YEAR

    def __post_init__(self) -> None:
        for name in ("gpus", "price_per_gpu_hour", "hours_per_year"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise UsageError(f"{name} is {value:g}.", remedy="It has to be above 0.")
        if self.hours_per_year > _HOURS_PER_LEAP_YEAR:
            raise UsageError(f"hours_per_year is {self.hours_per_year:g}.", remedy="A year has 8760 hours.")
        if self.dev_day_cost is not None and not 0 <= self.dev_day_cost < math.inf:
            raise UsageError(f"dev_day_cost is {self.dev_day_cost:g}.", remedy="It is 0 or above.")

    @property
    def yearly_cost(self) -> float:
        """The cost of a year: GPUs x price per GPU-hour x hours a year."""
        return self.gpus * self.price_per_gpu_hour * self.hours_per_year

    def yearly_saving(self, speedup: float) -> float:
        """Return what an overall speedup S saves in a year: yearly cost x (1 - 1 / S). The work stays the same."""
        return self.yearly_cost * float(time_saved_fraction(speedup))

    def payback_days(self, speedup: float, dev_days: float) -> float | None:
        """Return the calendar days until the saving has paid for the development; infinite when it never does."""
        if self.dev_day_cost is None:
            return None
        saving = self.yearly_saving(speedup)
        return dev_days * self.dev_day_cost / (saving / _DAYS_PER_YEAR) if saving > 0 else math.inf

    def net_value(self, speedup: float, dev_days: float) -> float | None:
        """Return the saving of the first year less the cost of development."""
        return None if self.dev_day_cost is None else self.yearly_saving(speedup) - dev_days * self.dev_day_cost
