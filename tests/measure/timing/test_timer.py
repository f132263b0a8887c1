"""What lies inside the timed interval, how many calls a sample has, and which samples count."""

from __future__ import annotations

import gc

import pytest

from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import UsageError
from perfmodel.measure.timing.sample import WARM_UP_CALLS, plan_sample
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import TimedCall, best_median_s, time_call, time_queue

TWO = StandardErrorRule(0.0, 2, 2)
#: warm-up: one call to compile, one as long as a sample
WARM_UP = ["call", "synchronize", "hold", "start", "call", "stop", "synchronize"]


class ScriptedCopies:
    """Calls that note which copy of the inputs they read."""

    def __init__(self, log, beyond=3):
        self.log = log
        self.beyond = beyond

    def calls(self, count):
        return [lambda index=index: self.log.append(f"copy {index}") for index in range(count)]

    def beyond_cache(self):
        return self.calls(self.beyond)


def test_flush_lies_outside_the_interval_and_comes_before_each_sample(scripted):
    device = scripted()
    time_call(lambda: device.log.append("call"), device, TWO, cache=CacheState.COLD)
    sample = ["flush", "hold", "start", "call", "stop"]
    assert device.log == [*WARM_UP, *sample, *sample]


def test_warm_samples_are_not_flushed(scripted):
    device = scripted()
    time_call(lambda: None, device, StandardErrorRule(), cache=CacheState.WARM)
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
    time_call(lambda: seen.append(gc.isenabled()), scripted(), TWO)
    assert seen[WARM_UP_CALLS:] == [False, False]
    assert gc.isenabled()


def test_warm_up_goes_on_until_the_clocks_are_up(scripted):
    device, seconds = scripted(), iter(range(7, 100))
    device.warm_up_s = 4.0
    calls = []
    time_call(lambda: calls.append(1), device, TWO, clock=lambda: float(next(seconds)))
    # the first call, one at second 7, then as long as the clock says less than 4 s more: 8, 9, 10; and the two samples
    assert len(calls) == 1 + 1 + 3 + 2


def test_short_calls_share_a_sample_so_that_the_resolution_is_one_percent(scripted):
    # 0.5 us of 10 us is 5 %; five calls make 50 us, of which it is 1 %
    device = scripted([10e-6, 50e-6], tick_s=0.5e-6)
    calls = []
    timing = time_call(lambda: calls.append(1), device, StandardErrorRule(0.0, 1, 1), cache=CacheState.WARM)
    assert timing.calls_per_sample == 5
    assert timing.samples_s == (pytest.approx(10e-6),), "a sample is the mean of its calls"
    assert len(calls) == WARM_UP_CALLS + 5


def test_long_calls_are_a_sample_each(scripted):
    assert time_call(lambda: None, scripted([60e-6], tick_s=0.5e-6), TWO, cache=CacheState.WARM).calls_per_sample == 1


def test_each_of_several_cold_calls_has_other_inputs(scripted):
    device = scripted([20e-6], tick_s=0.5e-6)  # 50 us: three calls
    copies = ScriptedCopies(device.log)
    timing = time_call(lambda: None, device, TWO, cache=CacheState.COLD, copies=copies)
    sample = ["flush", "hold", "start", "copy 0", "copy 1", "copy 2", "stop"]
    assert device.log[-14:] == sample * 2
    assert timing.calls_per_sample == 3


def test_without_copies_a_cold_sample_is_one_call(scripted):
    assert time_call(lambda: None, scripted([20e-6], tick_s=0.5e-6), TWO, cache=CacheState.COLD).calls_per_sample == 1


def test_rotating_inputs_go_on_where_the_last_sample_was(scripted):
    device = scripted([60e-6], tick_s=0.5e-6)
    rule = StandardErrorRule(0.0, 4, 4)
    time_call(lambda: None, device, rule, cache=CacheState.ROTATING, copies=ScriptedCopies(device.log))
    sampled = [word for word in device.log[device.log.index("copy 2") + 1 :] if word.startswith("copy")]
    assert sampled == ["copy 0", "copy 1", "copy 2", "copy 0"]
    assert "flush" not in device.log


def test_auto_replays_short_calls_in_a_graph_and_times_long_ones(scripted):
    short = time_call(
        lambda: None, scripted([20e-6], tick_s=0.5e-6, has_graphs=True), TWO, cache=CacheState.WARM, timing="auto"
    )
    assert (short.timing, short.calls_per_sample) == ("graph", 5), "100 us, twice what events alone need"
    long = time_call(
        lambda: None, scripted([60e-6], tick_s=0.5e-6, has_graphs=True), TWO, cache=CacheState.WARM, timing="auto"
    )
    assert (long.timing, long.calls_per_sample) == ("kernel", 1)
    cpu = time_call(lambda: None, scripted([20e-6]), TWO, timing="auto")
    assert cpu.timing == "kernel"


def test_a_graph_of_rotating_inputs_has_whole_turns(scripted):
    device = scripted([40e-6], tick_s=0.5e-6, has_graphs=True)  # 100 us: three calls, the ring has four
    timing = time_call(
        lambda: None, device, TWO, cache=CacheState.ROTATING, timing="auto", copies=ScriptedCopies(device.log, beyond=4)
    )
    assert timing.calls_per_sample == 4


def test_a_call_that_no_graph_can_hold_is_timed_by_events_unless_a_graph_is_asked_for(scripted):
    def refuse(calls, *, keep_outputs):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    device = scripted([20e-6], tick_s=0.5e-6, has_graphs=True)
    device.capture = refuse
    timing = time_call(lambda: None, device, TWO, cache=CacheState.WARM, timing="auto")
    assert timing.timing == "kernel"
    assert "operation not permitted when stream is capturing)" in timing.remark
    with pytest.raises(RuntimeError, match="not permitted"):
        time_call(lambda: None, device, TWO, timing=Timing.GRAPH)


def test_a_graph_on_a_device_without_them_is_refused(scripted):
    with pytest.raises(UsageError, match="--timing auto"):
        time_call(lambda: None, scripted(), TWO, timing=Timing.GRAPH)


def test_a_late_host_costs_the_sample_and_lengthens_the_hold(scripted):
    # one interval of warm-up, then late twice, then in time
    device = scripted(late=[False, True, True, False, False])
    timing = time_call(lambda: None, device, TWO)
    assert timing.discarded == {"host late": 2}
    assert timing.timing == "kernel"
    first = device.holds_s[1]
    assert device.holds_s[2:5] == pytest.approx([2 * first, 4 * first, 4 * first])


@pytest.mark.parametrize(("host_s", "call_s", "hold_s"), [(1e-4, 1.0, 2.5e-4), (1e-4, 10e-6, 10.5e-4), (1.0, 1.0, 0.1)])
def test_a_hold_lasts_twice_as_long_as_the_host_takes_for_a_sample_and_50_us(scripted, host_s, call_s, hold_s):
    """One call of a second; five of 10 us, so that 0.5 us are 1 % of them; never longer than 0.1 s."""
    device = scripted(tick_s=0.5e-6)
    sample = plan_sample(lambda: None, device, CacheState.WARM, Timing.KERNEL, None, call_s, host_s)
    assert sample.hold_s == pytest.approx(hold_s)


def test_a_host_that_is_always_late_belongs_to_the_call(scripted):
    timing = time_call(lambda: None, scripted(late=[True]), TWO)
    assert timing.timing == "event"
    assert timing.discarded == {"host late": 10}
    assert len(timing.samples_s) == 2
    assert "the time includes its dispatch" in timing.remark


def test_an_event_includes_the_dispatch_of_single_calls(scripted):
    device = scripted([10e-6], tick_s=0.5e-6, late=[True], has_graphs=True)
    calls = []
    timed = time_call(lambda: calls.append(1), device, TWO, timing=Timing.EVENT)
    assert (timed.timing, timed.calls_per_sample, timed.discarded, timed.remark) == ("event", 1, {}, "")
    assert len(calls) == WARM_UP_CALLS + 2
    sample = ["flush", "start", "stop"]
    assert device.log[-6:] == sample * 2, "no hold: the device waits for the host, as it does in a program"


def test_do_bench_times_single_calls_that_wait_behind_a_hold(scripted):
    device = scripted([10e-6], tick_s=0.5e-6, late=[True, False], has_graphs=True)
    timed = time_call(lambda: None, device, TWO, timing=Timing.DO_BENCH)
    assert (timed.timing, timed.calls_per_sample) == ("do_bench", 1)
    assert timed.discarded == {"host late": 1}
    assert device.log[-8:] == ["flush", "hold", "start", "stop"] * 2


def test_events_of_rotating_inputs_take_turns(scripted):
    device = scripted([10e-6])
    copies = ScriptedCopies(device.log)
    rule = StandardErrorRule(0.0, 4, 4)
    time_call(lambda: None, device, rule, cache=CacheState.ROTATING, timing=Timing.EVENT, copies=copies)
    sampled = [word for word in device.log[device.log.index("copy 2") + 1 :] if word.startswith("copy")]
    assert sampled == ["copy 0", "copy 1", "copy 2", "copy 0"]


class ScriptedGuard:
    """Finds a fault in each sample in turn, as the script says."""

    def __init__(self, faults, given_up=""):
        self.faults = iter(faults)
        self.given_up = given_up

    def fault(self):
        return next(self.faults, "")


def test_samples_of_a_throttled_device_are_counted_and_do_not_count(scripted):
    device = scripted([1.0, 9.0, 9.0, 2.0, 3.0])
    guard = ScriptedGuard(["low clock", "hardware slowdown", "", ""])
    timing = time_call(lambda: None, device, TWO, guard=guard)
    assert timing.samples_s == (2.0, 3.0)
    assert timing.discarded == {"low clock": 1, "hardware slowdown": 1}
    assert (timing.remark, timing.flag) == ("", "")


def test_a_device_that_does_not_recover_is_measured_and_flagged(scripted):
    timing = time_call(lambda: None, scripted(), TWO, guard=ScriptedGuard([], given_up="low clock"))
    assert timing.flag == "throttled"
    assert "did not recover: low clock" in timing.remark


def test_queue_is_one_interval_shared_by_its_calls(scripted):
    device = scripted([2e-3])
    assert time_queue(lambda: device.log.append("call"), device, 100) == pytest.approx(2e-5)
    assert device.log.count("start") == device.log.count("stop") == 1
    assert device.log.count("call") == 101, "one call warms up"


def test_best_median_is_the_smallest():
    assert best_median_s([TimedCall((3.0,), ""), TimedCall((1.0, 2.0, 9.0), ""), TimedCall((4.0,), "")]) == 2.0
