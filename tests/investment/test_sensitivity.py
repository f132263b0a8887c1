"""Where a decision flips: by hand, and by putting the value in and looking."""

import dataclasses

import pytest

from perfmodel.investment.decision import decide
from perfmodel.investment.economics import Economics
from perfmodel.investment.ranking import rank_candidates
from perfmodel.investment.sensitivity import SPEEDUP, Sensitivity, sensitivity
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry

ABC = Profile(tuple(ProfileEntry(n, t) for n, t in (("a", 0.050), ("b", 0.030), ("c", 0.010), ("rest", 0.010))))
A, B = Candidate("A", ("a",), 2.0, dev_days=2), Candidate("B", ("b",), 3.0, dev_days=3)
MONEY = Economics(8, 10, 1000, 720, horizon_years=3, discount_rate=0.1)


def flips(candidates=(A, B), economics=MONEY, **more):
    return {flip.assumption: flip for flip in sensitivity(rank_candidates(ABC, candidates, economics, **more)).flips}


def test_first_place_is_lost_where_the_gain_a_day_is_the_others():
    found = flips(economics=None)
    # B: 0.25 / 3 = 0.0833 a day; A has as little with 0.3333 / 0.0833 = 4 days, or with 1.1667x in its 2 days:
    # 1 - 1 / 1.16667 = 1/7 saved of its half, so 1 / (1 - 2/7) = 1.4x locally
    assert set(found) == {SPEEDUP, "development days"}
    assert found["development days"].rank_change_value == pytest.approx(4)
    assert found["development days"].rank_change_factor == pytest.approx(2)
    assert found[SPEEDUP].rank_change_value == pytest.approx(1.4)
    assert found[SPEEDUP].instead == "B"
    assert found[SPEEDUP].net_zero_value is None


@pytest.mark.parametrize("by", ["roi", "payback", "time"])
@pytest.mark.parametrize("assumption", [SPEEDUP, "development days"])
def test_just_before_the_value_the_order_stands_and_just_after_it_does_not(by, assumption):
    flip = flips(by=by)[assumption]
    if flip.rank_change_value is None:
        assert (by, assumption) == ("time", "development days")
        return
    worse = -1 if assumption == SPEEDUP else 1
    for shift, first in ((-worse * 1e-6, "A"), (worse * 1e-6, "B")):
        value = flip.rank_change_value * (1 + shift)
        changed = dataclasses.replace(A, **{"speedup" if assumption == SPEEDUP else "dev_days": value})
        assert rank_candidates(ABC, [changed, B], MONEY, by=by).rows[0].name == first


@pytest.mark.parametrize("by", ["roi", "payback", "time"])
@pytest.mark.parametrize("changes", ["prep", "alone"])
@pytest.mark.parametrize("assumption", [SPEEDUP, "development days"])
def test_what_needs_others_comes_first_with_them_or_not_at_all(by, changes, assumption):
    """Nothing may come first without what it needs; the value is that of the ranking itself."""
    plan = {
        "prep": Candidate("prep", ("a",), 1.2, dev_days=1 if changes == "prep" else 9),
        "gain": Candidate("gain", ("b",), 3.0, dev_days=1, after=("prep",)),
        "alone": Candidate("alone", ("a",), 2.0 if changes == "prep" else 9.0, dev_days=3),
    }
    ranking = rank_candidates(ABC, list(plan.values()), MONEY, by=by)
    assert ranking.rows[0].name == changes
    flip = {one.assumption: one for one in sensitivity(ranking).flips}[assumption]
    if flip.rank_change_value is None:
        assert (by, assumption) == ("time", "development days")
        return
    assert flip.instead == ("alone" if changes == "prep" else "prep")
    worse = -1 if assumption == SPEEDUP else 1
    for shift, first in ((-worse * 1e-6, changes), (worse * 1e-6, flip.instead)):
        field = {"speedup" if assumption == SPEEDUP else "dev_days": flip.rank_change_value * (1 + shift)}
        changed = {**plan, changes: dataclasses.replace(plan[changes], **field)}
        assert rank_candidates(ABC, list(changed.values()), MONEY, by=by).rows[0].name == first


@pytest.mark.parametrize(
    ("assumption", "field"),
    [
        ("price per GPU-hour", "price_per_gpu_hour"),
        ("GPUs", "gpus"),
        ("hours a year", "hours_per_year"),
        ("cost of a day", "dev_day_cost"),
        ("horizon [years]", "horizon_years"),
    ],
)
def test_with_that_value_the_net_value_is_nothing(assumption, field):
    flip = flips()[assumption]
    economics = dataclasses.replace(MONEY, **{field: flip.net_zero_value})
    assert rank_candidates(ABC, [A], economics).rows[0].net_value == pytest.approx(0, abs=1e-6)
    assert flip.net_zero_factor == pytest.approx(flip.net_zero_value / flip.value)
    assert flip.rank_change_value is None  # moves all candidates alike


def test_the_candidates_own_assumptions_at_a_net_value_of_nothing():
    found = flips()
    for field, assumption in (("speedup", SPEEDUP), ("dev_days", "development days")):
        changed = dataclasses.replace(A, **{field: found[assumption].net_zero_value})
        assert rank_candidates(ABC, [changed], MONEY).rows[0].net_value == pytest.approx(0, abs=1e-6)


def test_a_cost_that_no_speedup_brings_back_has_no_such_value():
    # 2 days of 1,000,000 against a fleet of 57,600 a year
    dear = dataclasses.replace(MONEY, dev_day_cost=1e6)
    assert flips(economics=dear)[SPEEDUP].net_zero_value is None


def test_the_table_names_the_assumption_with_the_least_room():
    report = sensitivity(rank_candidates(ABC, [A, B], MONEY)).report()
    assert report.notes == ("The tightest assumption: local speedup; at 0.7x of its value now, 'B' comes first.",)
    assert report.as_json()["rows"][0]["candidate"] == "A"


def test_where_nothing_is_to_be_done_there_is_no_decision_to_flip():
    nothing = sensitivity(rank_candidates(ABC, [Candidate("slower", ("a",), 0.5)]))
    assert nothing == Sensitivity(())
    assert nothing.report().notes == ("No candidate is to be done.",)
    made = decide(ABC)
    without_plan = made.report(flips=True)
    assert "sensitivity" not in without_plan.more
    assert "give a plan (--plan)" in without_plan.notes[0]
    alone = sensitivity(rank_candidates(ABC, [A])).flips
    assert [flip.rank_change_value for flip in alone] == [None, None]
