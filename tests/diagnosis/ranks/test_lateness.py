"""Which rank keeps which others waiting, of meetings made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.diagnosis.ranks.lateness import lateness, lateness_beside, lateness_of_group
from perfmodel.diagnosis.ranks.meetings import Meetings

NAN = np.nan
#: ranks 0 and 1 meet in every step, where 0 is kept for 1 s and 1 for 3; 0 and 2 meet in every second one
EACH = Meetings(np.array([0, 1]), np.arange(4), np.array([[1.0, 3.0]] * 4))
SECOND = Meetings(np.array([0, 2]), np.array([1, 3]), np.array([[2.0, 10.0], [4.0, 4.0]]))


def test_what_gathers_over_several_steps_falls_to_each_of_them() -> None:
    """Rank 2 is kept 8 s longer than 0 over two steps: 4 a step."""
    found = lateness_beside([EACH, SECOND], 0, 4, 3)
    expected = [[NAN, 2.0, NAN], [NAN, 2.0, 4.0], [NAN, 2.0, NAN], [NAN, 2.0, 0.0]]
    np.testing.assert_allclose(found, expected)
    # those that meet in every second step only have no other measure
    np.testing.assert_allclose(lateness_beside([EACH, SECOND], 2, 4, 3)[:, 0], [NAN, -8.0, NAN, 0.0])


def test_a_rank_is_as_late_as_for_the_median_other() -> None:
    found = lateness([EACH, SECOND], 4, 3)
    np.testing.assert_allclose(found[:, 0], [2.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(found[:, 1], [-2.0] * 4)


def test_a_group_is_as_late_as_the_others_wait_longer_than_the_last_of_it() -> None:
    together = Meetings(np.arange(4), np.array([0, 2]), np.array([[1.0, 2.0, 5.0, 7.0], [3.0, 3.0, 3.0, 3.0]]))
    np.testing.assert_allclose(lateness_of_group(together, 3, [0, 1]), [6.0 - 1.0, NAN, 0.0])
    assert np.isnan(lateness_of_group(together, 3, [0, 1, 2, 3])).all()


def test_how_often_ranks_meet() -> None:
    assert (EACH.every, SECOND.every) == (1.0, 2.0)
    assert Meetings(np.array([0, 1]), np.array([3]), np.array([[0.0, 0.0]])).every == pytest.approx(1.0)
