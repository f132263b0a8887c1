"""Money: worked figures and the rules for what may be given."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import UsageError
from perfmodel.investment.economics import Economics


def test_a_month_on_eight_gpus_made_three_times_faster():
    month = Economics(gpus=8, price_per_gpu_hour=10, hours_per_year=30 * 24)
    assert month.yearly_cost == pytest.approx(57_600)
    assert month.yearly_saving(3.0) == pytest.approx(38_400)
    assert month.yearly_cost - month.yearly_saving(3.0) == pytest.approx(19_200)


def test_payback_and_net_value_of_the_first_year():
    # 100 GPUs x 1 x 3650 h = 365,000 a year; 1.25x saves a fifth, 73,000, which is 200 a day
    fleet = Economics(gpus=100, price_per_gpu_hour=1, dev_day_cost=1000, hours_per_year=3650)
    assert fleet.payback_days(1.25, 10) == pytest.approx(10 * 1000 / 200)
    assert fleet.net_value(1.25, 10) == pytest.approx(73_000 - 10_000)


@pytest.mark.parametrize("speedup", [1.0, 0.5])
def test_what_saves_nothing_never_pays_back(speedup):
    fleet = Economics(gpus=1, price_per_gpu_hour=1, dev_day_cost=1000)
    assert fleet.payback_days(speedup, 1) == math.inf
    assert fleet.net_value(speedup, 1) <= -1000


def test_without_the_cost_of_a_day_there_is_no_payback():
    fleet = Economics(gpus=1, price_per_gpu_hour=1)
    assert fleet.payback_days(2.0, 1) is None
    assert fleet.net_value(2.0, 1) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpus": 0},
        {"price_per_gpu_hour": -1},
        {"price_per_gpu_hour": math.nan},
        {"hours_per_year": 0},
        {"hours_per_year": 9000},
        {"dev_day_cost": -1},
        {"dev_day_cost": math.inf},
        {"horizon_years": 0},
        {"discount_rate": -0.1},
        {"discount_rate": math.nan},
    ],
)
def test_values_out_of_range_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Economics(**{"gpus": 1, "price_per_gpu_hour": 1, **wrong})


@pytest.mark.parametrize("too_much", [{"price_per_gpu_hour": 1e308}, {"horizon_years": 1e305}])
def test_a_fleet_that_costs_more_than_any_number_is_refused(too_much):
    with pytest.raises(UsageError, match="more than any number"):
        fleet(**too_much)
    assert fleet(horizon_years=1e305, discount_rate=0.1).annuity_years == pytest.approx(1 / math.log(1.1))


def fleet(**changes):
    """100 GPUs x 1 x 3650 h = 365,000 a year; 1.25x saves a fifth, 73,000."""
    return Economics(**{"gpus": 100, "price_per_gpu_hour": 1, "dev_day_cost": 1000, "hours_per_year": 3650, **changes})


def test_the_present_value_of_three_years():
    # (1 - 1.1^-3) / ln 1.1 = (1 - 0.7513148) / 0.09531018 = 2.609220 years of saving
    made = fleet(horizon_years=3, discount_rate=0.1)
    assert made.annuity_years == pytest.approx(2.609220, rel=1e-6)
    assert made.net_value(1.25, 10) == pytest.approx(2.609220 * 73_000 - 10_000, rel=1e-6)
    assert fleet(horizon_years=3).net_value(1.25, 10) == pytest.approx(3 * 73_000 - 10_000)


def test_saving_day_by_day_is_the_sum_of_many_small_payments():
    made = fleet(horizon_years=2, discount_rate=0.25)
    steps = 100_000
    by_hand = sum(1.25 ** (-2 * (n + 0.5) / steps) for n in range(steps)) * 2 / steps
    assert made.annuity_years == pytest.approx(by_hand, rel=1e-8)


def test_the_horizon_at_which_nothing_is_gained():
    # undiscounted: 10,000 of 73,000 a year; with a discount a little later
    assert fleet().break_even_years(1.25, 10) == pytest.approx(10 / 73)
    rate = fleet(discount_rate=0.3)
    years = rate.break_even_years(1.25, 60)
    assert years > 60 / 73
    at = fleet(discount_rate=0.3, horizon_years=years)
    assert at.net_value(1.25, 60) == pytest.approx(0, abs=1e-6)
    # at 100 % a year the saving is worth at most 73,000 / ln 2 = 105,316, however long
    assert fleet(discount_rate=1.0).break_even_years(1.25, 106) == math.inf
    assert fleet().break_even_years(1.0, 1) == math.inf
    assert fleet(dev_day_cost=None).break_even_years(1.25, 1) is None


@given(st.floats(1.001, 100), st.floats(0.01, 20), st.floats(0, 2))
def test_a_discount_never_adds_value_and_a_longer_horizon_never_takes_it(speedup, years, rate):
    plain, discounted = fleet(horizon_years=years), fleet(horizon_years=years, discount_rate=rate)
    assert discounted.present_saving(speedup) <= plain.present_saving(speedup) * (1 + 1e-12)
    longer = fleet(horizon_years=2 * years, discount_rate=rate)
    assert longer.present_saving(speedup) >= discounted.present_saving(speedup)


def test_development_and_interest_may_cost_nothing_but_a_fleet_has_a_price():
    free = Economics(8, 10, dev_day_cost=0.0, discount_rate=0.0)
    assert free.net_value(2.0, 5) == free.yearly_saving(2.0)
    assert free.payback_days(2.0, 5) == 0.0
    for field in ("gpus", "price_per_gpu_hour", "hours_per_year", "horizon_years"):
        for value in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(UsageError, match=f"{field} is"):
                dataclasses.replace(free, **{field: value})
    for field in ("dev_day_cost", "discount_rate"):
        for value in (-1e-9, math.inf, math.nan):
            with pytest.raises(UsageError, match=f"{field} is"):
                dataclasses.replace(free, **{field: value})
