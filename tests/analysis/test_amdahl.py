"""Amdahl's law: limiting cases with their algebra, worked figures, and scalar equals array."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.analysis.amdahl import (
    amdahl_limit,
    amdahl_speedup,
    combined_time_s,
    parallel_efficiency,
    roi_per_day,
    serial_fraction,
    time_saved_fraction,
)
from perfmodel.errors import UsageError

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
    assert amdahl_speedup(fraction, 1.0) == pytest.approx(1.0)


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
    time = combined_time_s([part, rest], [local, 1.0])
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
