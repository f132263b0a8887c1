"""How well a median is known: against theory, against arithmetic by hand, and under correlated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.comparison.noise import (
    block_length,
    centre_of_samples,
    centre_of_statistics,
    inflation,
    neighbour_correlation,
    student_quantile,
)


def autoregressive(generator, count, rho, sigma):
    """Noise of standard deviation sigma around 1 whose neighbours correlate by rho."""
    values = np.empty(count)
    last = generator.standard_normal()
    for index in range(count):
        last = rho * last + math.sqrt(1 - rho**2) * generator.standard_normal()
        values[index] = last
    return 1 + sigma * values


def test_the_bootstrap_finds_the_error_of_a_median_of_normal_noise():
    samples = 1 + 0.02 * np.random.default_rng(0).standard_normal(400)
    found = centre_of_samples(samples)
    # sqrt(pi / 2) x 0.02 / sqrt(400) = 0.00125; the bootstrap of one set of samples is within a third of it.
    assert found.error == pytest.approx(0.00125, rel=0.35)
    assert (found.samples, found.freedom, found.basis) == (400, 399.0, "samples")
    assert found.time_s == np.median(samples)


def test_correlated_neighbours_make_the_error_larger():
    generator = np.random.default_rng(1)
    white, red = (autoregressive(generator, 400, rho, 0.02) for rho in (0.0, 0.8))
    # The variance of a mean of AR(1) noise is (1 + rho) / (1 - rho) = 9 times that of white noise: an error of 3 times.
    assert 1.8 < centre_of_samples(red).error / centre_of_samples(white).error < 4.5
    assert centre_of_samples(red).freedom < 100


def test_the_order_of_samples_matters_only_where_they_drift():
    drifting = 1 + np.linspace(0, 0.05, 100) + 0.002 * np.random.default_rng(2).standard_normal(100)
    shuffled = np.random.default_rng(3).permutation(drifting)
    assert centre_of_samples(drifting).error > 2 * centre_of_samples(shuffled).error


def test_blocks_are_single_samples_for_white_noise_and_at_most_a_quarter():
    assert neighbour_correlation(np.random.default_rng(4).standard_normal(500)) == 0.0
    assert block_length(0.0, 500) == 1
    # 1.1447 (4 x 0.25 / (1 - 0.25)^2 x 1000)^(1/3) = 1.1447 x 1777.8^(1/3) = 13.87
    assert block_length(0.5, 1000) == 14
    assert block_length(0.99, 40) == 10
    assert inflation(0.0, 1, 100) == 1.005037815259212  # blocks of 1 lose 1 % of the variance to the mean of 100


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    # Tables of Student's t: e.g. Abramowitz and Stegun, table 26.10.
    [(0.025, 3, 3.182), (0.025, 5, 2.571), (0.025, 30, 2.042), (0.005, 4, 4.604), (0.0025, 10, 3.581)],
)
def test_students_quantiles_are_those_of_the_tables(tail, freedom, value):
    assert student_quantile(tail, freedom) == pytest.approx(value, rel=0.01)


@given(st.floats(3, 1e6), st.floats(3, 1e6), st.floats(0.001, 0.2))
def test_more_freedom_never_widens_an_interval(first, second, tail):
    few, many = sorted((first, second))
    assert student_quantile(tail, many) <= student_quantile(tail, few) + 1e-12


def test_an_interval_of_the_median_is_taken_as_it_is():
    # 2 x 1.95996 standard errors wide: (10.2 - 9.8) / 3.91993 / 10 = 0.010204.
    found = centre_of_statistics({"median": 10.0, "median_low": 9.8, "median_high": 10.2, "samples": 50, "stdev": 9.0})
    assert found.error == pytest.approx(0.010204, rel=1e-4)
    assert (found.basis, found.freedom) == ("interval of the median", 49.0)


def test_without_one_the_spread_of_the_middle_gives_it():
    # s = 0.1349 / 1.349 = 0.1 and 1.2533 x 0.1 / sqrt(100) / 1 = 0.012533.
    quartiles = {"median": 1.0, "p25": 0.93255, "p75": 1.06745, "samples": 100}
    assert centre_of_statistics(quartiles).error == pytest.approx(0.012533, rel=1e-3)
    assert centre_of_statistics(quartiles).basis == "quartiles"
    # s = 0.329 / 3.29 = 0.1 as well.
    quantiles = {"median": 1.0, "p05": 0.8355, "p95": 1.1645, "samples": 100}
    assert centre_of_statistics(quantiles).error == pytest.approx(0.012533, rel=1e-3)
    assert centre_of_statistics({"median": 1.0, "stdev": 0.1, "samples": 100}).error == pytest.approx(
        0.012533, rel=1e-3
    )
    assert centre_of_statistics({"mean": 1.0, "stdev": 0.1, "samples": 100}).error == pytest.approx(0.01)


def test_one_sample_says_nothing_about_its_error():
    assert centre_of_samples([3.0]).error is None
    assert centre_of_statistics({"median": 3.0, "stdev": 0.0, "samples": 1}).error is None
    assert centre_of_statistics({"median": 3.0}).error is None
    assert centre_of_statistics({"median": None, "stdev": 1.0}) is None
    assert centre_of_statistics({"median": 0.0}) is None
    # found by fuzzing: integers of JSON may have hundreds of digits
    assert centre_of_statistics({"median": 3.0, "stdev": 10**400, "samples": 9}).error is None


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=60), st.floats(1e-3, 1e3))
def test_the_error_is_relative_and_does_not_depend_on_the_unit(samples, factor):
    one, other = centre_of_samples(samples), centre_of_samples([factor * value for value in samples])
    assert other.time_s == pytest.approx(factor * one.time_s)
    assert other.error == pytest.approx(one.error, rel=1e-6, abs=1e-9)
    assert one.error >= 0
