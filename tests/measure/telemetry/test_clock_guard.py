"""Which samples count, by readings written by hand."""

from __future__ import annotations

import threading

import pytest

from perfmodel.measure.telemetry.clock_guard import ClockGuard
from perfmodel.measure.telemetry.nvml import NoTelemetry
from perfmodel.measure.telemetry.sampler import Sampler, summarised

FULL, LOW = {"sm_clock_hz": 1.9e9}, {"sm_clock_hz": 1.4e9}


class FakeSampler:
    """Gives the readings of a script, one a question; the last one for ever."""

    def __init__(self, *readings):
        self.readings = list(readings)
        self.number = 0

    def latest(self):
        self.number += 1
        return self.number, self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


class FrozenSampler(FakeSampler):
    """Gives one reading, which is never a new one."""

    def latest(self):
        return 1, self.readings[0]


@pytest.fixture
def pauses():
    return []


def _guard(pauses, *readings, clock=1.98e9, sampler=FakeSampler):
    return ClockGuard(sampler(*readings), clock, pauses.append)


def test_a_clock_below_three_quarters_of_its_default_does_not_count(pauses):
    # 0.75 x 1.98 GHz = 1.485 GHz
    guard = _guard(pauses, {"sm_clock_hz": 1.49e9}, {"sm_clock_hz": 1.48e9})
    assert [guard.fault(), guard.fault()] == ["", "low clock"]


def test_no_reading_and_no_default_judge_nothing(pauses):
    assert _guard(pauses, {}).fault() == ""
    assert _guard(pauses, LOW, clock=None).fault() == ""


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("hardware slowdown", False),
        ("software thermal slowdown", False),
        ("hardware thermal slowdown", False),
        ("hardware power brake slowdown", False),
        ("software power cap", True),
        ("applications clocks setting", True),
        ("sync boost", True),
        ("gpu idle", True),
    ],
)
def test_heat_and_brakes_do_not_count_but_the_power_cap_is_how_big_products_run(pauses, reason, counts):
    fault = _guard(pauses, {**FULL, "throttle_reasons": [reason]}).fault()
    assert fault == ("" if counts else reason)


def test_a_low_clock_at_the_power_cap_counts(pauses):
    assert _guard(pauses, {**LOW, "throttle_reasons": ["software power cap"]}).fault() == ""
    assert _guard(pauses, {**LOW, "throttle_reasons": ["applications clocks setting"]}).fault() == "low clock"


def test_pauses_grow_and_start_again_after_a_good_reading(pauses):
    guard = _guard(pauses, LOW, LOW, LOW, FULL, LOW)
    for _ in range(5):
        guard.fault()
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.05])


def test_it_gives_up_after_eight_bad_readings_and_recovers(pauses):
    guard = _guard(pauses, *[LOW] * 10, FULL, LOW)
    assert [guard.fault() for _ in range(8)] == ["low clock"] * 8
    assert sum(pauses) == pytest.approx(0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1 + 1 + 1)
    assert [guard.fault(), guard.fault()] == ["", ""], "the state is this machine's"
    assert guard.given_up == "low clock"
    assert (guard.fault(), guard.given_up) == ("", "")
    assert guard.fault() == "low clock"


def test_one_reading_pauses_once_and_cannot_discard_for_ever(pauses):
    guard = _guard(pauses, LOW, sampler=FrozenSampler)
    discarded = 0
    while guard.fault():
        discarded += 1
    assert discarded == 10_000
    assert len(pauses) == 1
    assert guard.given_up == "low clock"


def test_an_idle_gpu_is_not_paused_since_work_raises_its_clock(pauses):
    guard = _guard(pauses, {**LOW, "throttle_reasons": ["gpu idle"]})
    assert guard.fault() == "low clock"
    assert pauses == []


class FakeTelemetry:
    """Counts its readings, and says when there are three."""

    def __init__(self):
        self.count = 0
        self.three = threading.Event()

    def facts(self):
        return {}

    def moment(self):
        self.count += 1
        if self.count == 3:
            self.three.set()
        return {"power_w": 100.0 * self.count}


def test_a_thread_reads_while_the_block_runs():
    telemetry = FakeTelemetry()
    with Sampler(telemetry, interval_s=1e-4) as sampler:
        assert telemetry.three.wait(5)
        found = sampler.summary()["power_w"]
        number, reading = sampler.latest()
    assert found["min"] == 100.0
    assert found["max"] >= 200.0
    assert reading["power_w"] == 100.0 * number
    after = telemetry.count
    sampler.mark()
    assert sampler.summary()["power_w"]["min"] == 100.0 * (after + 1), "no reading since the mark: one is taken"


def test_no_telemetry_needs_no_thread():
    before = threading.active_count()
    with Sampler(NoTelemetry()) as sampler:
        assert threading.active_count() == before
        assert (sampler.latest(), sampler.summary()) == ((0, {}), {})


def test_summary_has_the_middle_the_ends_and_every_reason():
    readings = [{"power_w": float(p), "throttle_reasons": r} for p, r in ((1, []), (5, ["a"]), (3, ["b", "a"]))]
    assert summarised(readings) == {
        "power_w": {"median": 3.0, "min": 1.0, "max": 5.0},
        "throttle_reasons": ["a", "b"],
    }
