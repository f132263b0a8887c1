"""When samples are enough: error, noise that has stabilised, limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.measure.timing.statistics import relative_standard_error
from perfmodel.measure.timing.stopping_rule import StandardErrorRule, noise_estimates, noise_has_stabilised

SAMPLES = st.lists(st.floats(1e-9, 10), min_size=1, max_size=50)


def test_relative_standard_error_by_hand():
    # mean 2, deviations -1 0 1: s = 1, and 1 / (sqrt(3) 2)
    assert relative_standard_error([1, 2, 3]) == pytest.approx(1 / (2 * math.sqrt(3)))
    assert relative_standard_error([1.0]) == math.inf
    assert relative_standard_error([]) == math.inf
    assert relative_standard_error([5, 5, 5]) == 0


@given(SAMPLES, st.floats(1e-3, 1e3))
def test_relative_standard_error_does_not_depend_on_the_unit(samples, factor):
    scaled = [factor * sample for sample in samples]
    assert relative_standard_error(scaled) == pytest.approx(relative_standard_error(samples), rel=1e-6, abs=1e-9)


def test_rule_converges_only_after_the_fewest_samples_and_the_shortest_time():
    rule = StandardErrorRule(min_samples=10, min_time_s=0.5)
    assert rule.reason([1.0] * 9, 1.0) == ""
    assert rule.reason([1.0] * 10, 0.4) == ""
    assert rule.reason([1.0] * 10, 0.5) == "converged"


def test_rule_names_the_limit_that_it_met():
    noisy = [1.0, 2.0] * 10
    assert StandardErrorRule().reason(noisy, 1.0) == ""
    assert StandardErrorRule(time_limit_s=1.0).reason(noisy, 1.0) == "time limit"
    assert StandardErrorRule(time_limit_s=1.0, min_time_s=9.0).reason(noisy, 1.0) == "time limit"
    assert StandardErrorRule(max_samples=20).reason(noisy, 0) == "sample limit"
    assert StandardErrorRule(time_limit_s=1.0).reason([], 2.0) == "", "never without a sample"


def test_rule_waits_until_one_percent():
    # alternating 0.95 and 1.05: s is about 0.05, so 1 % needs about (0.05 / 0.01)^2 = 25 samples
    rule, samples = StandardErrorRule(), []
    while not rule.reason(samples, 0):
        samples.append(0.95 if len(samples) % 2 else 1.05)
    assert 24 <= len(samples) <= 28


@given(SAMPLES.filter(lambda samples: len(samples) > 1))
def test_noise_estimates_are_those_of_each_beginning(samples):
    found = noise_estimates(samples)
    for n in range(2, len(samples) + 1):
        part = np.asarray(samples[:n])
        assert found[n - 2] == pytest.approx(part.std(ddof=1) / part.mean(), rel=1e-5, abs=1e-6)


def test_steady_noise_stops_where_one_percent_is_far_away():
    # 1 and 3 in turn: s / mean = 0.5 at once and ever after; 1 % would need 2,500 samples
    steady = [1.0, 3.0] * 400
    assert noise_has_stabilised(steady)
    assert StandardErrorRule().reason(steady, 0) == "noise has stabilised"
    assert not noise_has_stabilised(steady[:50]), "too few estimates to tell"


def test_growing_noise_is_not_stable():
    growing = [1.0 + (index / 200) * (-1) ** index for index in range(160)]
    assert not noise_has_stabilised(growing)
    assert StandardErrorRule().reason(growing, 0) == ""


def test_no_noise_is_not_called_stable():
    assert not noise_has_stabilised([1.0] * 200)


def test_many_samples_are_judged_now_and_then():
    rule = StandardErrorRule()
    assert rule.reason([1.0] * 65, 0) == ""
    assert rule.reason([1.0] * 80, 0) == "converged"
