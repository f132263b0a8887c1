"""Statistics of samples, and the bootstrap that draws no resamples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.measure.timing.statistics import bootstrap_medians, median_interval, summary

SAMPLES = st.lists(st.floats(1e-9, 10), min_size=1, max_size=50)


def test_statistics_by_hand():
    found = summary([float(n) for n in range(1, 22)])
    # 1..21: quantile q at 1 + 20 q; variance of 1..n with n - 1 is n (n + 1) / 12
    assert found["median"] == found["mean"] == 11
    assert (found["min"], found["max"], found["samples"]) == (1, 21, 21)
    assert [found[key] for key in ("p05", "p25", "p75", "p95")] == pytest.approx([2, 6, 16, 20])
    assert found["stdev"] == pytest.approx(math.sqrt(21 * 22 / 12))
    assert found["relative_standard_error"] == pytest.approx(math.sqrt(21 * 22 / 12) / math.sqrt(21) / 11)


@given(SAMPLES)
def test_statistics_are_ordered(samples):
    s = summary(samples)
    ordered = [s[key] for key in ("min", "p05", "p25", "median", "p75", "p95", "max")]
    assert ordered == sorted(ordered)
    assert s["min"] <= s["median_low"] <= s["median_high"] <= s["max"]
    assert s["median"] == pytest.approx(float(np.median(samples)))
    assert s["stdev"] >= 0


def test_one_sample_says_nothing_of_its_error():
    found = summary([2.0])
    assert (found["median_low"], found["median_high"], found["stdev"]) == (2.0, 2.0, 0.0)
    assert found["relative_standard_error"] is None


@given(SAMPLES, st.integers(0, 5))
def test_the_same_seed_gives_the_same_interval(samples, seed):
    assert median_interval(samples, seed) == median_interval(samples, seed)


def test_bootstrap_median_of_three_by_hand():
    # A resample of three has the median x_2 unless two or more of its draws are x_1 (or x_3):
    # P(median = x_1) = P(at least two of three draws are x_1) = 3 (1/3)^2 (2/3) + (1/3)^3 = 7/27, likewise x_3.
    medians = bootstrap_medians(np.array([1.0, 2.0, 3.0]), seed=0, resamples=100_000)
    # the standard error of a share near 0.26 from 1e5 draws is 0.0014
    assert np.mean(medians == 1.0) == pytest.approx(7 / 27, abs=0.007)
    assert np.mean(medians == 3.0) == pytest.approx(7 / 27, abs=0.007)
    assert np.mean(medians == 2.0) == pytest.approx(13 / 27, abs=0.007)


def test_bootstrap_median_of_two_by_hand():
    # the mean of two draws of {0, 1}: 0 and 1 with 1/4 each, 1/2 with 1/2
    medians = bootstrap_medians(np.array([0.0, 1.0]), seed=0, resamples=100_000)
    assert [np.mean(medians == value) for value in (0.0, 0.5, 1.0)] == pytest.approx([0.25, 0.5, 0.25], abs=0.007)


@pytest.mark.parametrize("n", [4, 11, 40])
def test_it_is_the_bootstrap_of_drawn_resamples(n):
    rng = np.random.default_rng(1)
    ordered = np.sort(rng.lognormal(0.0, 0.3, n))
    drawn = np.median(ordered[rng.integers(0, n, (40_000, n))], axis=1)
    quick = bootstrap_medians(ordered, seed=2, resamples=40_000)
    assert quick.mean() == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 200)
    assert quick.std() == pytest.approx(drawn.std(), rel=0.03)


def test_the_interval_covers_the_true_median_about_19_times_in_20():
    rng = np.random.default_rng(0)
    covered = 0
    for index in range(400):
        low, high = median_interval(rng.lognormal(0.0, 0.2, 60), seed=index)  # true median 1
        covered += low <= 1.0 <= high
    # binomial: 400 x 0.95 with a standard deviation of 4.4; the percentile interval is known to be a little narrow
    assert 365 <= covered <= 396


@pytest.mark.parametrize("rho", [0.6, 0.9])
def test_the_interval_allows_for_neighbours_that_correlate(rho):
    rng = np.random.default_rng(5)
    steps = rng.standard_normal((200, 300))
    for place in range(1, 300):
        steps[:, place] = rho * steps[:, place - 1] + math.sqrt(1 - rho**2) * steps[:, place]
    covered = 0
    for index, series in enumerate(1 + 0.02 * steps[:, 200:]):
        low, high = median_interval(series, seed=index)
        covered += low <= 1.0 <= high
    # 95 % nominal; percentiles of single samples cover 42 % at 0.9 and 77 % at 0.6
    assert covered >= 0.86 * 200
