"""The profile itself: names once, times that can be times."""

import math

import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import UsageError
from perfmodel.profile.profile import Profile, ProfileEntry


def test_entries_of_one_name_are_summed_and_it_is_said():
    profile = Profile.from_entries([ProfileEntry("a", 1.0, 2), ProfileEntry("b", 5.0), ProfileEntry("a", 3.0, 4)])
    assert profile.entries == (ProfileEntry("a", 4.0, 6), ProfileEntry("b", 5.0))
    assert profile.total_time_s == 9.0
    assert profile.notes == ("2 rows share one name; they are summed.",)


def test_what_was_left_out_is_said_with_its_reason():
    profile = Profile.from_entries([ProfileEntry("a", 1.0)], notes=("read.",), skipped={"row without a time": 3})
    assert profile.notes == ("read.", "Left out: 3 x row without a time.")


def test_calls_are_unknown_where_one_summed_row_does_not_say_them():
    profile = Profile.from_entries([ProfileEntry("a", 1.0, 2), ProfileEntry("a", 3.0)])
    assert profile.entries[0].calls is None


@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_an_error(time):
    with pytest.raises(UsageError, match="the time of 'a'"):
        Profile((ProfileEntry("a", time),))


def test_a_name_that_stands_twice_is_an_error():
    with pytest.raises(UsageError, match="from_entries"):
        Profile((ProfileEntry("a", 1.0), ProfileEntry("a", 1.0)))


def test_a_category_is_one_of_the_vocabulary():
    assert ProfileEntry("a", 1.0, category="memcpy").category is EventKind.MEMCPY
    assert ProfileEntry("a", 1.0).category == ""
    with pytest.raises(UsageError, match=r"a: unknown category 'memcopy'\. Did you mean 'memcpy'"):
        ProfileEntry("a", 1.0, category="memcopy")


def test_what_differs_between_summed_entries_is_empty():
    rows = [ProfileEntry("a", 1.0, category=kind, launched_by="x") for kind in ("kernel", "memcpy")]
    (entry,) = Profile.from_entries(rows).entries
    assert (entry.category, entry.launched_by) == ("", "x")
