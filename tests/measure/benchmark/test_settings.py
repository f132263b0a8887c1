"""Settings of a benchmark: limits that fit each other, and what a device can do."""

from __future__ import annotations

import math

import pytest

from perfmodel.errors import UsageError
from perfmodel.measure.benchmark.settings import BenchSettings, stopping_rule
from perfmodel.measure.timing.stopping_rule import StandardErrorRule


@pytest.mark.parametrize("limit", [0, -1, math.inf, math.nan])
def test_a_time_limit_that_is_none_is_refused(limit):
    with pytest.raises(UsageError, match="not positive"):
        stopping_rule(limit)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1.0, 2.0), "--time-limit"),
        ((1.0, -1.0), "--min-time"),
        ((1.0, None, 0.0), "--error"),
        ((1.0, None, 1.5), "1%"),
    ],
)
def test_other_limits_that_do_not_fit_are_refused(given, words):
    with pytest.raises(UsageError) as refused:
        stopping_rule(*given)
    assert words in str(refused.value)


def test_defaults_of_the_rule_follow_the_limit():
    assert stopping_rule(5.0).min_time_s == 0.1
    assert stopping_rule(0.5).min_time_s == pytest.approx(0.05)
    assert stopping_rule(5.0, 1.0, 0.002) == StandardErrorRule(0.002, time_limit_s=5.0, min_time_s=1.0)


@pytest.mark.parametrize("wrong", [{"timing": "events"}, {"seed": -1}, {"sustain_s": -1.0}, {"sustain_s": math.inf}])
def test_settings_refuse_what_is_not_known(wrong):
    with pytest.raises(UsageError):
        BenchSettings(**wrong)


def test_graphs_need_a_device_that_has_them(scripted):
    with pytest.raises(UsageError, match="--timing auto"):
        BenchSettings(timing="graph").check_for(scripted())
    BenchSettings(timing="graph").check_for(scripted(has_graphs=True))
    BenchSettings(timing="auto").check_for(scripted())


def test_the_dispatch_of_a_cpu_cannot_be_left_out(scripted):
    device = scripted()
    for timing in ("event", "do_bench"):
        device.kind = "cpu"
        with pytest.raises(UsageError, match="always includes its dispatch"):
            BenchSettings(timing=timing).check_for(device)
        device.kind = "cuda"
        BenchSettings(timing=timing).check_for(device)


def test_views_of_time_have_hyphens_or_underscores() -> None:
    assert BenchSettings(timing="do-bench").timing == BenchSettings(timing="do_bench").timing == "do_bench"


def test_the_shortest_time_is_a_tenth_of_a_short_limit_without_residue():
    assert stopping_rule(0.1).min_time_s == 0.01
    assert stopping_rule(60.0).min_time_s == 0.1
