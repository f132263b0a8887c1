"""The best set within some days: by hand, against trying everything, and monotonic."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import UsageError
from perfmodel.investment import budget
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry

ABC = Profile(tuple(ProfileEntry(n, t) for n, t in (("a", 0.050), ("b", 0.030), ("c", 0.010), ("rest", 0.010))))
FOUR = (
    Candidate("A 2x", ("a",), 2.0, dev_days=2),
    Candidate("B 3x", ("b",), 3.0, dev_days=3),
    Candidate("C 10x", ("c",), 10.0, dev_days=5),
    Candidate("fuse", ("a", "b"), 1.5, dev_days=1),
)


def chosen(candidates, days, profile=ABC):
    return rank_candidates(profile, candidates, days=days).selection


@pytest.mark.parametrize(
    ("days", "names", "time_s"),
    [
        (1, {"fuse"}, 0.080 / 1.5 + 0.020),
        (2, {"fuse"}, 0.080 / 1.5 + 0.020),  # 73.3 ms; A alone: 75 ms
        (3, {"fuse", "A 2x"}, 0.050 / 3 + 0.020 + 0.020),
        (5, {"A 2x", "B 3x"}, 0.055),  # fuse and A 56.7 ms, fuse and B 60 ms
        (6, {"fuse", "A 2x", "B 3x"}, 0.050 / 3 + 0.030 / 4.5 + 0.020),
        (11, {"fuse", "A 2x", "B 3x", "C 10x"}, 0.050 / 3 + 0.030 / 4.5 + 0.011),
    ],
)
def test_the_worked_example_within_some_days(days, names, time_s):
    found = chosen(FOUR, days)
    assert found.names == names
    assert found.time_s == pytest.approx(time_s)
    assert found.dev_days <= days
    assert found.exact


def test_the_ranking_does_the_set_and_says_why_the_others_are_left_out():
    ranking = rank_candidates(ABC, FOUR, days=4.5)
    # fuse, A: 56.7 ms; fuse, B: 60 ms
    done = {row.name for row in ranking.rows if row.cumulative_time_s is not None}
    assert done == ranking.selection.names == {"fuse", "A 2x"}
    verdicts = {row.name: row.verdict for row in ranking.rows}
    assert verdicts["C 10x"] == "left out: it takes 5 days"
    assert verdicts["B 3x"] == "left out: not among the best for 4.5 days"
    assert ranking.decision.startswith(
        "Within 4.5 days do 'fuse', 'A 2x': 1.765x overall, from 100 ms to 56.67 ms, in 3"
    )
    assert any("Left out: 'B 3x'" in note for note in ranking.notes)


def test_what_a_candidate_needs_counts_into_its_days():
    candidates = (
        Candidate("gain", ("a",), 10.0, dev_days=1, after=("groundwork",)),
        Candidate("groundwork", ("c",), 0.9, dev_days=4),
        Candidate("other", ("b",), 1.5, dev_days=1),
    )
    assert chosen(candidates, 4).names == {"other"}
    assert chosen(candidates, 5).names == {"gain", "groundwork"}


def test_what_needs_a_candidate_that_does_not_fit_says_so():
    candidates = (
        Candidate("gain", ("a",), 10.0, dev_days=1, after=("groundwork",)),
        Candidate("groundwork", ("c",), 2.0, dev_days=4),
        Candidate("other", ("b",), 1.5, dev_days=0.5),
        Candidate("less", ("b",), 1.2, dev_days=0.75),
    )
    assert chosen(candidates, 1).reasons == {
        "gain": "needs 'groundwork', which is left out",
        "groundwork": "it takes 4 days",
        "less": "not among the best for 1 day",
    }
    assert chosen(candidates[:2], 1).reasons["gain"] == "needs 'groundwork', which is left out"


def test_of_two_that_exclude_each_other_one_is_chosen():
    candidates = (
        Candidate("rewrite", ("a",), 5.0, dev_days=4, excludes=("tune",)),
        Candidate("tune", ("a",), 1.5, dev_days=1),
    )
    found = chosen(candidates, 5)
    assert found.names == {"rewrite"}
    assert found.reasons["tune"] == "excludes 'rewrite', which is chosen"


def test_of_sets_that_are_as_fast_the_one_with_fewer_days():
    candidates = (Candidate("no gain", ("b",), 1.0, dev_days=1), Candidate("a", ("a",), 2.0, dev_days=1))
    found = chosen(candidates, 10)
    assert (found.names, found.dev_days) == ({"a"}, 1)
    assert found.reasons["no gain"] == "it saves nothing"


def test_without_days_a_candidate_cannot_be_chosen():
    found = chosen((Candidate("a", ("a",), 2.0), Candidate("b", ("b",), 2.0, dev_days=1)), 10)
    assert found.names == {"b"}
    assert found.reasons == {"a": "it has no dev_days"}


def test_nothing_that_fits_is_said():
    ranking = rank_candidates(ABC, FOUR, days=0.5)
    assert ranking.selection.names == set()
    assert ranking.decision == "No candidate is worth doing within 0.5 days."


def test_removing_an_entry_is_no_fault_of_the_arithmetic():
    found = chosen((Candidate("gone", ("a",), new_time_s=0.0, dev_days=1), Candidate("2x", ("a",), 2.0, dev_days=1)), 2)
    assert found.names == {"gone"}
    assert found.time_s == pytest.approx(0.050)


def test_the_speedup_of_a_set_is_old_over_new_time_of_the_run():
    assert chosen(FOUR, 5).speedup == pytest.approx(0.100 / 0.055)
    everything_removed = chosen((Candidate("all", ("*",), new_time_s=0.0, dev_days=1),), 1)
    assert (everything_removed.time_s, everything_removed.speedup) == (0.0, math.inf)


@pytest.mark.parametrize("days", [0, -1, math.nan, math.inf])
def test_days_have_to_be_above_zero(days):
    with pytest.raises(UsageError, match="days is"):
        chosen(FOUR, days)


def test_many_candidates_are_added_one_by_one_and_that_is_said():
    entries = tuple(ProfileEntry(f"e{n}", 1.0) for n in range(30))
    candidates = tuple(Candidate(f"c{n}", (f"e{n}",), 2.0 + n, dev_days=1) for n in range(30))
    ranking = rank_candidates(Profile(entries), candidates, days=3)
    # one day each, so the three with the largest speedups: 30 - 3 + 1/29 + 1/30 + 1/31
    assert ranking.selection.names == {"c27", "c28", "c29"}
    assert ranking.selection.time_s == pytest.approx(27 + 1 / 29 + 1 / 30 + 1 / 31)
    assert not ranking.selection.exact
    assert any("a better set may exist" in note for note in ranking.notes)


def test_one_by_one_the_most_time_saved_for_each_day_is_added(monkeypatch):
    monkeypatch.setattr(budget, "EXACT_CANDIDATES", 0)
    # "long" saves 45 ms in 10 days, 4.5 ms a day; "b" 20 ms in 2 days and "c" 9 ms in 1 day, 10 and 9 ms a day
    candidates = (
        Candidate("long", ("a",), 10.0, dev_days=10),
        Candidate("b", ("b",), 3.0, dev_days=2),
        Candidate("c", ("c",), 10.0, dev_days=1),
    )
    assert chosen(candidates, 10).names == {"b", "c"}
    assert chosen(candidates, 13).names == {"long", "b", "c"}


@st.composite
def plans(draw):
    names = ("a", "b", "c", "rest")
    count = draw(st.integers(1, 5))
    made = []
    for n in range(count):
        earlier = [f"c{m}" for m in range(n)]
        after = draw(st.lists(st.sampled_from(earlier), max_size=1)) if earlier else []
        others = [name for name in earlier if name not in after]
        excludes = draw(st.lists(st.sampled_from(others), max_size=1)) if others else []
        targets = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        speedup, days = draw(st.floats(0.7, 20)), draw(st.integers(1, 6))
        made.append(
            Candidate(f"c{n}", tuple(targets), speedup, dev_days=days, after=tuple(after), excludes=tuple(excludes))
        )
    return made


def everything(candidates, days):
    """Try every set: the shortest time of those that are allowed [s]."""
    best = math.inf
    for size in range(len(candidates) + 1):
        for some in itertools.combinations(candidates, size):
            names = {one.name for one in some}
            allowed = all(set(one.after) <= names and not names & set(one.excludes) for one in some)
            if allowed and sum(one.dev_days for one in some) <= days:
                best = min(
                    best,
                    sum(e.time_s / math.prod(c.speedup for c in some if e.name in c.targets) for e in ABC.entries),
                )
    return best


@settings(max_examples=40)
@given(plans(), st.integers(1, 15))
def test_the_set_is_the_best_of_all(candidates, days):
    found = chosen(candidates, days)
    assert found.time_s == pytest.approx(everything(candidates, days), rel=1e-9)
    assert sum(one.dev_days for one in candidates if one.name in found.names) == pytest.approx(found.dev_days)


@settings(max_examples=30)
@given(plans(), st.integers(1, 10), st.integers(0, 5))
def test_more_days_are_never_slower(candidates, days, more):
    assert chosen(candidates, days + more).time_s <= chosen(candidates, days).time_s * (1 + 1e-9)


@settings(max_examples=30)
@given(plans(), st.integers(1, 15))
def test_one_by_one_is_allowed_and_no_better_than_the_best(candidates, days):
    best = chosen(candidates, days)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "EXACT_CANDIDATES", 0)
        greedy = chosen(candidates, days)
    assert greedy.time_s >= best.time_s * (1 - 1e-9)
    assert greedy.dev_days <= days
    for one in candidates:
        if one.name in greedy.names:
            assert set(one.after) <= greedy.names
            assert not greedy.names & set(one.excludes)


speedup = st.floats(1, 100)


@given(speedup, speedup)
def test_on_different_entries_saved_times_add_and_speedups_make_more_than_their_product(first, second):
    # with u and v saved alone: 1 / (1 - u - v) >= 1 / ((1 - u) (1 - v)), since (1 - u)(1 - v) = 1 - u - v + u v
    rows = rank_candidates(ABC, [Candidate("a", ("a",), first), Candidate("b", ("b",), second)]).rows
    assert rows[-1].cumulative_time_saved_s == pytest.approx(sum(row.time_saved_s for row in rows), abs=1e-12)
    assert rows[-1].cumulative_speedup >= math.prod(row.overall_speedup for row in rows) * (1 - 1e-9)


@given(speedup, speedup)
def test_on_the_same_entry_they_make_at_most_their_product_and_save_less_than_their_sum(first, second):
    # (1 - p + p x)(1 - p + p y) - (1 - p + p x y) = -p (1 - p)(1 - x)(1 - y) <= 0, with x = 1 / s, y = 1 / t
    rows = rank_candidates(ABC, [Candidate("a", ("a",), first), Candidate("b", ("a",), second)]).rows
    assert rows[-1].cumulative_speedup <= math.prod(row.overall_speedup for row in rows) * (1 + 1e-9)
    assert rows[-1].cumulative_time_saved_s <= sum(row.time_saved_s for row in rows) + 1e-12
