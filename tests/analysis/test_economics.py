"""Money: worked figures and the rules for what may be given."""

import math

import pytest

from perfmodel.analysis.economics import Economics
from perfmodel.errors import UsageError


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
    ],
)
def test_values_out_of_range_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Economics(**{"gpus": 1, "price_per_gpu_hour": 1, **wrong})
