"""Stopping rule, statistics, and what lies inside the timed interval."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.measure.stopping import StandardErrorRule, relative_standard_error
from perfmodel.measure.timer import WARM_UP_CALLS, Timing, best_median_s, time_call, time_queue

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


def test_rule_converges_only_after_the_fewest_samples():
    rule = StandardErrorRule(min_samples=10)
    assert rule.reason([1.0] * 9, 0) == ""
    assert rule.reason([1.0] * 10, 0) == "converged"


def test_rule_names_the_limit_that_it_met():
    noisy = [1.0, 2.0] * 10
    assert StandardErrorRule().reason(noisy, 1.0) == ""
    assert StandardErrorRule(time_limit_s=1.0).reason(noisy, 1.0) == "time limit"
    assert StandardErrorRule(max_samples=20).reason(noisy, 0) == "sample limit"
    assert StandardErrorRule(time_limit_s=1.0).reason([], 2.0) == "", "never without a sample"


def test_rule_waits_until_one_percent():
    # alternating 0.9 and 1.1: s is about 0.1, so 1 % needs about (0.1 / 0.01)^2 = 100 samples
    rule, samples = StandardErrorRule(), []
    while not rule.reason(samples, 0):
        samples.append(0.9 if len(samples) % 2 else 1.1)
    assert 95 <= len(samples) <= 110


def test_statistics_by_hand():
    timing = Timing(tuple(float(n) for n in range(1, 22)), "converged")
    found = timing.statistics()
    # 1..21: quantile q at 1 + 20 q; variance of 1..n with n - 1 is n (n + 1) / 12
    assert found["median"] == found["mean"] == 11
    assert (found["min"], found["max"], found["samples"]) == (1, 21, 21)
    assert (found["p05"], found["p95"]) == (pytest.approx(2), pytest.approx(20))
    assert found["stdev"] == pytest.approx(math.sqrt(21 * 22 / 12))


@given(SAMPLES)
def test_statistics_are_ordered(samples):
    s = Timing(tuple(samples), "x").statistics()
    assert s["min"] <= s["p05"] <= s["median"] <= s["p95"] <= s["max"]
    assert s["median"] == pytest.approx(float(np.median(samples)))
    assert s["stdev"] >= 0


def test_flush_lies_outside_the_interval_and_comes_before_each_sample(scripted):
    device = scripted()
    rule = StandardErrorRule(0.0, 2, 2)
    time_call(lambda: device.log.append("call"), device, rule, cache="flushed")
    warm_up, sample = ["call"] * WARM_UP_CALLS, ["flush", "hold", "start", "call", "stop"]
    assert device.log == [*warm_up, "synchronize", *sample, *sample]


def test_warm_samples_are_not_flushed(scripted):
    device = scripted()
    time_call(lambda: None, device, StandardErrorRule(), cache="warm")
    assert "flush" not in device.log


def test_samples_are_those_of_the_device_and_their_median_is_robust(scripted):
    device = scripted([1e-3] * 9 + [1.0])
    timing = time_call(lambda: None, device, StandardErrorRule(max_samples=30))
    assert timing.stop_reason == "sample limit"
    assert timing.median_s == 1e-3
    assert timing.statistics()["max"] == 1.0


def test_time_limit_is_on_the_clock_that_includes_the_flushes(scripted):
    ticks = iter(range(100))
    timing = time_call(
        lambda: None, scripted([1.0, 2.0]), StandardErrorRule(time_limit_s=3), clock=lambda: float(next(ticks))
    )
    assert timing.stop_reason == "time limit"
    assert len(timing.samples_s) == 3


def test_output_is_freed_after_the_clock_has_stopped(scripted):
    device = scripted()

    class Output:
        def __del__(self) -> None:
            device.log.append("freed")

    time_call(Output, device, StandardErrorRule(0.0, 1, 1))
    assert device.log[-3:] == ["start", "stop", "freed"]


def test_garbage_collector_rests_while_sampling_and_is_restored(scripted):
    seen = []
    time_call(lambda: seen.append(gc.isenabled()), scripted(), StandardErrorRule(0.0, 2, 2))
    assert seen[WARM_UP_CALLS:] == [False, False]
    assert gc.isenabled()


def test_queue_is_one_interval_shared_by_its_calls(scripted):
    device = scripted([2e-3])
    assert time_queue(lambda: device.log.append("call"), device, 100) == pytest.approx(2e-5)
    assert device.log.count("start") == device.log.count("stop") == 1
    assert device.log.count("call") == 101, "one call warms up"


def test_best_median_is_the_smallest():
    assert best_median_s([Timing((3.0,), ""), Timing((1.0, 2.0, 9.0), ""), Timing((4.0,), "")]) == 2.0
