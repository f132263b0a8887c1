"""The value of a speedup in money: a fleet that does the same work in fewer GPU-hours."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real

from perfmodel.errors import UsageError, suggesting_class
from perfmodel.investment.amdahl import time_saved_fraction

HOURS_PER_YEAR = 8760.0
_HOURS_PER_LEAP_YEAR = 8784.0
_DAYS_PER_YEAR = 365.0


@suggesting_class
@dataclass(frozen=True)
class Economics:
    """A fleet and its prices, all in one currency.

    Attributes
    ----------
    gpus : GPUs that run this work.
    price_per_gpu_hour : price of one GPU for an hour, not of the fleet.
    dev_day_cost : cost of a day of development, or None if unknown; without it there is no payback and no net value.
    hours_per_year : hours per year that each GPU does this work [h], at most 8784: the utilisation.
    horizon_years : the period over which the saving is counted [years].
    discount_rate : loss of value of money per year, as a fraction: 0.1 is 10 % a year.

    Raises
    ------
    UsageError
        On construction, for a value that is not above 0 (``dev_day_cost``, ``discount_rate``: not 0 or above), more
        hours than a year has, or a fleet whose cost is no number.
    """

    gpus: float
    price_per_gpu_hour: float
    dev_day_cost: float | None = None
    hours_per_year: float = HOURS_PER_YEAR
    horizon_years: float = 1.0
    discount_rate: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Real) and not (value is None and item.name == "dev_day_cost"):
                raise UsageError(f"{item.name} is {value!r}, no number.", remedy="Give a number.")
        for name in ("gpus", "price_per_gpu_hour", "hours_per_year", "horizon_years"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise UsageError(f"{name} is {value:g}.", remedy="It has to be above 0 and finite.")
        if self.hours_per_year > _HOURS_PER_LEAP_YEAR:
            raise UsageError(f"hours_per_year is {self.hours_per_year:g}.", remedy="A year has 8760 hours.")
        if self.dev_day_cost is not None and not 0 <= self.dev_day_cost < math.inf:
            raise UsageError(f"dev_day_cost is {self.dev_day_cost:g}.", remedy="It is 0 or above.")
        if not 0 <= self.discount_rate < math.inf:
            raise UsageError(
                f"discount_rate is {self.discount_rate:g}.", remedy="It is 0 or above; 0.1 is 10 % a year."
            )
        if math.isinf(self.yearly_cost * self.annuity_years):
            raise UsageError(
                f"{self}: the fleet costs more than any number.", remedy="Check its GPUs, their price and the horizon."
            )

    def __str__(self) -> str:
        day = f", {self.dev_day_cost:g} a day of development" if self.dev_day_cost is not None else ""
        rate = f" at {100 * self.discount_rate:g} % a year" if self.discount_rate else ""
        return (
            f"{self.gpus:g} GPUs, {self.price_per_gpu_hour:g} a GPU-hour, {self.hours_per_year:g} h a year{day}, over "
            f"{self.horizon_text}{rate}"
        )

    @property
    def yearly_cost(self) -> float:
        """The cost of a year: GPUs x price per GPU-hour x hours a year."""
        return self.gpus * self.price_per_gpu_hour * self.hours_per_year

    @property
    def horizon_text(self) -> str:
        """The horizon in words: "a year", "3 years"."""
        return "a year" if self.horizon_years == 1 else f"{self.horizon_years:g} years"

    @property
    def annuity_years(self) -> float:
        """The present value of the horizon, in yearly savings: (1 - (1 + d)^-T) / ln(1 + d), or T if d is 0.

        The saving accrues daily, so a yearly saving A is worth the integral of A (1 + d)^-t from 0 to T years.
        """
        exponent = math.log1p(self.discount_rate) * self.horizon_years
        # the mean of (1 + d)^-t over the horizon is 1 - exponent / 2 + ..., which rounds to 1 below this
        return self.horizon_years * (-math.expm1(-exponent) / exponent if exponent > 1e-16 else 1.0)

    def yearly_saving(self, speedup: float) -> float:
        """Return the saving of an overall speedup S in a year: yearly cost x (1 - 1 / S), for the same work."""
        return self.yearly_cost * float(time_saved_fraction(speedup))

    def present_saving(self, speedup: float) -> float:
        """Return the present value of the saving over the horizon: the yearly saving x `annuity_years`."""
        return self.yearly_saving(speedup) * self.annuity_years

    def payback_days(self, speedup: float, dev_days: float) -> float | None:
        """Return the calendar days until the saving has paid for the development; infinite if it never does.

        Not discounted: development cost / (yearly saving / 365).
        """
        if self.dev_day_cost is None:
            return None
        saving = self.yearly_saving(speedup)
        return dev_days * self.dev_day_cost / (saving / _DAYS_PER_YEAR) if saving > 0 else math.inf

    def net_value(self, speedup: float, dev_days: float) -> float | None:
        """Return the net present value: `present_saving` less the cost of development, paid today."""
        return None if self.dev_day_cost is None else self.present_saving(speedup) - dev_days * self.dev_day_cost

    def break_even_years(self, speedup: float, dev_days: float) -> float | None:
        """Return the horizon at which the net value is 0 [years]: -ln(1 - c ln(1 + d) / A) / ln(1 + d).

        A is the yearly saving, c the cost of development. None without the cost of a day; infinite if the discounted
        saving never reaches the cost.
        """
        if self.dev_day_cost is None:
            return None
        saving, cost = self.yearly_saving(speedup), dev_days * self.dev_day_cost
        if saving <= 0:
            return math.inf
        years = cost / saving
        exponent = years * math.log1p(self.discount_rate)
        if exponent >= 1:
            return math.inf
        return years * (-math.log1p(-exponent) / exponent if exponent > 1e-16 else 1.0)
