"""Shared physics of memory traffic: the two curves of what lies in L2, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.core.vocabulary import CacheState
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    beside_math,
    fitting_share,
    issue_s,
    left_share,
    surviving_share,
    warm_bandwidth,
)

#: L2 of 10 MB
ROUND = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
COLD, WARM = Conditions(), Conditions(cache=CacheState.WARM)


def test_what_is_used_again_fits_or_not() -> None:
    # all up to 9.5 MB, half at 10.5 MB, none from 11.5 MB on
    assert fitting_share(np.array([1e6, 9.5e6, 10.5e6, 11.5e6, 1e9]), 1e7).tolist() == pytest.approx([1, 1, 0.5, 0, 0])


def test_nothing_fits_without_an_l2() -> None:
    assert fitting_share(1e6, 0.0) == 0.0
    assert fitting_share(np.array([0.0, 1e6]), 0.0).tolist() == [0.0, 0.0]


def test_a_stream_survives_less_than_what_fits() -> None:
    # fill = 0.5: all up to 5 MB, half at (0.5 + 1.1) / 2 = 0.8 of the capacity, none from 11 MB on
    shares = surviving_share(np.array([5e6, 8e6, 11e6]), ROUND, {"fill": 0.5}, WARM)
    assert shares.tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert surviving_share(8e6, ROUND, {"fill": 0.5}, COLD) == 0.0


def test_a_serving_kernel_finds_the_last_part_of_what_the_one_before_wrote() -> None:
    # a third of 12 MB, x = bytes of 4 MB: (1 + x^2)^(-1/2) of them; half as much of L2 where it has two copies
    machine = replace(ROUND, l2_bytes=12e6)
    sizes = np.array([1.0, 4e6, 8e6, 40e6])
    found = left_share(sizes, machine, {"left": 1 / 3}, WARM)
    assert found.tolist() == pytest.approx([1.0, 0.5**0.5, 5**-0.5, 101**-0.5])
    assert np.all(np.diff(sizes * found) > 0)  # more data save more, up to what is left
    assert np.all(sizes * found <= machine.l2_bytes / 3)
    assert left_share(8e6, replace(machine, l2_copies=2.0), {"left": 1 / 3}, WARM) == pytest.approx(17**-0.5)
    assert left_share(8e6, machine, {"left": 1 / 3}, COLD) == 0.0
    assert left_share(8e6, replace(machine, l2_bytes=0.0), {"left": 1 / 3}, WARM) == 0.0


def test_loads_wait_half_as_long_for_what_lies_in_l2() -> None:
    # 2 cycles of each of 1e5 elements on 100 SMs of 1 GHz: 2 us, and 1 us where all of them lie in L2
    assert issue_s(1e5, ROUND, {"issue": 2.0}) == pytest.approx(2e-6)
    assert issue_s(1e5, ROUND, {"issue": 2.0}, 1.0) == pytest.approx(1e-6)
    assert issue_s(1e5, ROUND, {"issue": 2.0}, 0.5) == pytest.approx(1.5e-6)


def test_warm_data_are_as_fast_as_the_part_in_l2() -> None:
    # half of the data three times as fast counts as a bandwidth of 1 + (3 - 1) / 2
    assert warm_bandwidth(1e12, 3.0, 10.5e6, ROUND, WARM) == pytest.approx(2e12)
    assert warm_bandwidth(1e12, 3.0, 10.5e6, ROUND, COLD) == 1e12
    assert warm_bandwidth(1e12, 3.0, 10.5e6, replace(ROUND, l2_bytes=0.0), WARM) == 1e12


def test_arithmetic_hides_the_stream_or_the_other_way_round() -> None:
    hidden = beside_math(3e-6, 1e-6, 0.5e-6, {"launch": 1e-6})
    assert (hidden.adds["math"], hidden.adds["hbm"], hidden.adds["l2"]) == (3e-6, 0.0, 0.0)  # type: ignore[index]
    shown = beside_math(1e-6, 2e-6, 1e-6, {"launch": 1e-6})
    assert (shown.adds["math"], shown.adds["hbm"], shown.adds["l2"]) == (0.0, 2e-6, 1e-6)  # type: ignore[index]
    # ||1, 2 + 1||_6 us and 1 us of launch
    assert shown.time_s == pytest.approx((1 + 3**6) ** (1 / 6) * 1e-6 + 1e-6)
