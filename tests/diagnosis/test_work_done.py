"""How much of the same work two windows hold, by the calls of their kernels."""

from __future__ import annotations

import pytest

from perfmodel.diagnosis.work_done import work_done
from perfmodel.profile.profile import ProfileEntry


def pairs(*rows: tuple[float, int, int]) -> list[tuple[ProfileEntry, ProfileEntry]]:
    """Return entries of some time whose calls before and after are given."""
    return [
        (ProfileEntry(f"k{index}", time_s, before), ProfileEntry(f"k{index}", time_s, after))
        for index, (time_s, before, after) in enumerate(rows)
    ]


def test_kernels_of_most_of_the_time_tell_the_ratio() -> None:
    ratio, warning = work_done(pairs((3.0, 10, 20), (2.0, 50, 100), (1.0, 5, 5)))
    assert ratio == pytest.approx(2.0)
    assert "kernels of 83 % of the time ran 2 times as often after" in warning


def test_kernels_that_ran_as_often_have_done_the_same_work() -> None:
    assert work_done(pairs((3.0, 100, 100), (1.0, 10, 20))) == (1.0, "")
    assert work_done(pairs((3.0, 1000, 1005))) == (1.0, "")
    assert work_done([]) == (1.0, "")


def test_without_a_common_ratio_nothing_is_claimed() -> None:
    ratio, warning = work_done(pairs((1.0, 10, 20), (1.1, 10, 30), (1.0, 10, 40)))
    assert ratio == 1.0
    assert "without a common ratio" in warning
