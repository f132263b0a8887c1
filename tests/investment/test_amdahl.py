"""Amdahl's law and Gustafson's: limiting cases with their algebra, worked figures, and scalar equals array."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import UsageError
from perfmodel.investment.amdahl import (
    amdahl_limit,
    amdahl_speedup,
    fit_scaling,
    gustafson_speedup,
    parallel_efficiency,
    roi_per_day,
    serial_fraction,
    time_saved_fraction,
)

fractions = st.floats(0.0, 1.0)
speedups = st.floats(0.01, 1e6)


@pytest.mark.parametrize(
    ("fraction", "local", "overall", "days", "roi"),
    [
        (0.5, 2.0, 4 / 3, 2, 0.1667),  # 1 / (0.5 + 0.25)
        (0.3, 3.0, 1.25, 3, 0.0833),  # 1 / (0.7 + 0.1)
        (0.1, 10.0, 1 / 0.91, 5, 0.0198),  # 1 / (0.9 + 0.01)
        (0.8, 1.5, 15 / 11, 1, 0.3636),  # 1 / (0.2 + 0.5333)
    ],
)
def test_the_worked_example_of_three_kernels(fraction, local, overall, days, roi):
    assert amdahl_speedup(fraction, local) == pytest.approx(overall)
    assert roi_per_day(overall, days) == pytest.approx(roi, abs=5e-5)


@pytest.mark.parametrize(
    ("fraction", "local", "overall"), [(0.05, 2.0, 1.0256), (0.02, 10.0, 1.0183), (0.4, 2.0, 1.25)]
)
def test_small_parts_gain_little(fraction, local, overall):
    assert amdahl_speedup(fraction, local) == pytest.approx(overall, abs=5e-5)


def test_quarter_more_throughput_is_a_fifth_less_time():
    speedup = amdahl_speedup(0.4, 2.0)
    assert time_saved_fraction(speedup) == pytest.approx(0.20)
    assert speedup - 1 == pytest.approx(0.25)


@given(speedups)
def test_nothing_made_faster_gains_nothing(local):
    assert amdahl_speedup(0.0, local) == 1.0


@given(speedups)
def test_everything_made_faster_gains_all(local):
    assert amdahl_speedup(1.0, local) == pytest.approx(local)


@given(fractions)
def test_a_local_speedup_of_one_changes_nothing(fraction):
    assert amdahl_speedup(fraction, 1.0) == amdahl_speedup(fraction, 1.0 + 1e-15) == 1.0


@given(st.floats(0.0, 0.99))
def test_the_limit_is_what_large_speedups_approach(fraction):
    assert amdahl_limit(fraction) == pytest.approx(1 / (1 - fraction))
    assert amdahl_speedup(fraction, 1e12) == pytest.approx(amdahl_limit(fraction), rel=1e-6)


def test_removing_everything_has_no_limit():
    assert amdahl_limit(1.0) == math.inf


@given(fractions, speedups, speedups)
def test_more_local_speedup_is_never_slower(fraction, one, other):
    low, high = sorted((one, other))
    assert amdahl_speedup(fraction, low) <= amdahl_speedup(fraction, high) * (1 + 1e-12)


@given(fractions, fractions, st.floats(1.0, 1e6))
def test_a_larger_part_gains_more(one, other, local):
    low, high = sorted((one, other))
    assert amdahl_speedup(low, local) <= amdahl_speedup(high, local) * (1 + 1e-12)


@given(st.lists(st.tuples(fractions, speedups), min_size=1, max_size=8))
def test_arrays_equal_scalars(pairs):
    p, s = (np.array(values) for values in zip(*pairs, strict=True))
    together = amdahl_speedup(p, s)
    assert together.shape == p.shape
    assert together.tolist() == [amdahl_speedup(*pair) for pair in pairs]


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), speedups)
def test_two_parts_combined_are_amdahls_law(part, rest, local):
    time = part / local + rest
    assert (part + rest) / time == pytest.approx(amdahl_speedup(part / (part + rest), local))


def test_four_gpus_and_their_serial_fractions():
    assert parallel_efficiency(2.5, 4) == pytest.approx(0.625)
    assert parallel_efficiency(3.8, 4) == pytest.approx(0.95)
    assert serial_fraction(2.5, 4) == pytest.approx(0.20)
    assert serial_fraction(3.8, 4) == pytest.approx(0.0175, abs=5e-5)


@given(st.floats(0.0, 1.0), st.integers(2, 4096))
def test_the_serial_fraction_is_the_inverse_of_amdahls_law(serial, processors):
    measured = amdahl_speedup(1 - serial, processors)
    assert serial_fraction(measured, processors) == pytest.approx(serial, abs=1e-9)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_a_fraction_outside_of_0_to_1_is_an_error(fraction):
    with pytest.raises(UsageError, match="fraction"):
        amdahl_speedup(fraction, 2.0)


@pytest.mark.parametrize("local", [0.0, -1.0, math.nan])
def test_a_speedup_that_is_not_positive_is_an_error(local):
    with pytest.raises(UsageError, match="above 0"):
        amdahl_speedup(0.5, local)


def test_one_processor_has_no_serial_fraction():
    with pytest.raises(UsageError, match="processors"):
        serial_fraction(1.0, 1)


@given(st.floats(0.0, 1.0))
def test_one_processor_does_what_one_processor_does(serial):
    assert gustafson_speedup(serial, 1) == pytest.approx(1.0)


@given(st.integers(1, 4096))
def test_gustafsons_ends_are_linear_scaling_and_none(processors):
    assert gustafson_speedup(0.0, processors) == processors
    assert gustafson_speedup(1.0, processors) == pytest.approx(1.0)


def test_gustafsons_own_example_of_1024_processors():
    # 1988, "1014x" and "983x": 1024 - 0.01 * 1023 = 1013.77, 1024 - 0.04 * 1023 = 983.08
    assert gustafson_speedup(0.01, 1024) == pytest.approx(1013.77)
    assert gustafson_speedup(0.04, 1024) == pytest.approx(983.08)


@given(st.floats(0.0, 1.0), st.integers(1, 4096))
def test_both_laws_agree_once_the_serial_share_is_of_the_same_time(serial, processors):
    # time on n: f + (1 - f); the same work on one: f + (1 - f) n. Its serial share is f / (f + (1 - f) n).
    alone = serial + (1 - serial) * processors
    assert amdahl_speedup(1 - serial / alone, processors) == pytest.approx(gustafson_speedup(serial, processors))


def test_gustafson_takes_arrays():
    n = np.array([1.0, 2.0, 8.0])
    assert gustafson_speedup(0.1, n).tolist() == [gustafson_speedup(0.1, one) for one in n.tolist()]


@pytest.mark.parametrize(("serial", "processors"), [(-0.1, 4), (1.1, 4), (0.5, 0.5), (math.nan, 4)])
def test_gustafson_refuses_what_is_no_share_or_no_processor(serial, processors):
    with pytest.raises(UsageError):
        gustafson_speedup(serial, processors)


@given(st.floats(0.0, 1.0), st.lists(st.integers(2, 1024), min_size=1, max_size=6))
def test_a_curve_that_follows_amdahls_law_gives_its_fraction_back(serial, processors):
    measured = [amdahl_speedup(1 - serial, n) for n in processors]
    fit = fit_scaling(processors, measured)
    assert fit.serial_fraction == pytest.approx(serial, abs=1e-9)
    assert fit.error == pytest.approx(0.0, abs=1e-9)
    assert fit.speedup(2048) == pytest.approx(amdahl_speedup(1 - serial, 2048), rel=1e-6)


def test_one_point_is_the_serial_fraction_of_that_point():
    # 2.5x on 4: f = (4 / 2.5 - 1) / 3 = 0.2; on 16: 1 / (0.2 + 0.8 / 16) = 4x; never above 1 / 0.2 = 5x
    fit = fit_scaling([1, 4], [1.0, 2.5])
    assert fit.serial_fraction == pytest.approx(0.2)
    assert (fit.speedup(16), fit.max_speedup) == (pytest.approx(4.0), pytest.approx(5.0))


def test_two_points_that_disagree_meet_between_them_and_say_so():
    # n = 2, S = 2: y - x = 0, 1 - x = 1/2.  n = 4, S = 2: y - x = 1/4, 1 - x = 3/4.
    # f = (0 + 3/16) / (1/4 + 9/16) = 3/13; residuals f/2 and 3f/4 - 1/4
    fit = fit_scaling([2, 4], [2.0, 2.0])
    f = 3 / 13
    assert fit.serial_fraction == pytest.approx(f)
    assert fit.error == pytest.approx(math.sqrt(((f / 2) ** 2 + (0.75 * f - 0.25) ** 2) / 2))
    assert fit.each == pytest.approx((0.0, 1 / 3))  # rising with n: an overhead that grows


def test_a_curve_above_linear_has_a_negative_fraction_and_promises_linear_at_most():
    fit = fit_scaling([2, 4], [2.2, 4.8])
    assert fit.serial_fraction < 0
    assert (fit.speedup(8), fit.max_speedup) == (8.0, math.inf)


def test_more_processors_may_be_slower():
    fit = fit_scaling([4], [0.5])  # f = (8 - 1) / 3 = 7/3
    assert fit.serial_fraction == pytest.approx(7 / 3)
    assert fit.speedup(4) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("processors", "speedups"),
    [([1], [1.0]), ([2, 4], [1.9]), ([2], [0.0]), ([0.5], [1.0]), ([math.nan], [1.0]), ([], [])],
)
def test_a_curve_that_says_nothing_is_refused(processors, speedups):
    with pytest.raises(UsageError):
        fit_scaling(processors, speedups)


def test_linear_scaling_has_no_limit():
    fit = fit_scaling([2, 4], [2.0, 4.0])
    assert (fit.serial_fraction, fit.max_speedup) == (0.0, math.inf)


@pytest.mark.parametrize("law", [amdahl_speedup, gustafson_speedup, serial_fraction])
def test_arrays_of_other_lengths_are_one_message(law):
    with pytest.raises(UsageError, match=r"^\w+: the arrays cannot be broadcast together: \w+ \(2,\), \w+ \(3,\)"):
        law([0.5, 0.25], [2.0, 3.0, 4.0])
