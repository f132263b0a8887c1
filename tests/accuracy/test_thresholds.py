"""The thresholds of fit and calibration, from both sides or by their arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.accuracy import libraries
from perfmodel.accuracy.calibration import calibrate_family, usable
from perfmodel.accuracy.fit import Group, fit
from perfmodel.accuracy.libraries import intervals
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.own_rows import calibrate_calls
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import families
from perfmodel.prediction.latency.constants import Constants, constants
from perfmodel.prediction.latency.family import Constant, Family
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, Terms
from perfmodel.prediction.predict import floor_time, predict

MACHINE = Machine(100, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 0.0, np.inf)


def family(spread):
    """A time that is one constant, so that every row tells as much about it: d ln t / d ln c = 1."""
    constant = Constant("c", "s", 1e-3, 1e-6, 1.0, spread, "the time")
    return Family("one", (constant,), lambda op, machine, c, conditions: Terms({HBM: c["c"]}), (HBM,), dispatched=False)


def rows(count, time_s=1e-3):
    sizes = np.arange(1.0, count + 1)
    return Group(Elementwise(numel=sizes), MACHINE, Conditions(), np.full(count, time_s))


def calls(times, flags=None):
    times = np.asarray(times, dtype=float)
    return MeasuredCalls(
        "simple", Elementwise(numel=np.arange(1.0, times.size + 1) * 1e6), times, Timing.KERNEL, CacheState.COLD,
        "torch-2.1", np.array(flags or [""] * times.size), "t.csv", np.arange(2, times.size + 2),
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_the_certainty_of_a_constant_is_that_of_its_rows_and_its_prior(count):
    # n rows of 3 % against a prior of 3 %: posterior / prior = 1 / sqrt(1 + n)
    found = fit(family(0.03), [rows(count)])
    assert found.certainty["c"] == pytest.approx(1 / math.sqrt(1 + count), rel=1e-4)


def test_more_than_400_rows_add_no_weight():
    few, many = (fit(family(0.03), [rows(count)]).certainty["c"] for count in (400, 4000))
    assert few == pytest.approx(1 / math.sqrt(401), rel=1e-4)
    assert many == pytest.approx(few, rel=1e-9)


def test_a_constant_is_identified_below_seven_tenths_of_its_prior():
    # one row: 1 / sqrt(2) = 0.707; a prior of 3.2 % against the 3 % of the row: 1 / sqrt(1 + 1.138) = 0.684
    assert fit(family(0.030), [rows(1)]).unidentified == ("c",)
    assert fit(family(0.032), [rows(1)]).unidentified == ()


@pytest.mark.parametrize(("moved", "identified"), [(0.47, False), (0.51, True)])
def test_a_constant_that_moved_half_its_spread_is_the_rows_own(moved, identified):
    """The minimum of 2 (sqrt(1 + r^2 / s^2) - 1) + x^2 / spread^2 with s = 1.4826 r: x in spreads, by bisection."""
    spread = 0.0294

    def shift(off):
        """Return the move of the constant, in spreads, for one row that is off by ``off``."""
        low, high = 0.0, off
        for _ in range(200):
            x = (low + high) / 2
            scale = max(0.03, 1.4826 * (off - x))
            pull = (off - x) / scale**2 / math.sqrt(1 + ((off - x) / scale) ** 2)
            low, high = (x, high) if pull > x / spread**2 else (low, x)
        return x / spread

    offs = np.linspace(0.001, 0.2, 2000)
    off = float(next(o for o in offs if shift(o) >= moved))
    found = fit(family(spread), [rows(1, 1e-3 * math.exp(off))])
    assert found.certainty["c"] > 0.7  # one row of 3 % against a prior of 2.94 % says little by itself
    assert (found.unidentified == ()) is identified


@pytest.mark.parametrize(("count", "own"), [(19, False), (20, True)])
def test_an_interval_needs_twenty_rows_of_its_regime(count, own):
    stated = intervals(np.full(count, -0.1), np.full(count, 2), dict.fromkeys(REGIMES, (0.3, 3.0)))
    assert (stated["large"] != (0.3, 3.0)) is own


@pytest.mark.parametrize(("count", "families"), [(9, 0), (10, 1)])
def test_a_calibration_needs_ten_rows_of_a_family(simple_gpu, count, families):
    op = Elementwise(numel=np.arange(1.0, count + 1) * 1e6)
    times = predict(op, simple_gpu).predicted_time_s
    result = calibrate_calls([calls(times)], simple_gpu, "test", "2026-01-01")
    assert len(result.families) == families
    assert result.unused == ({} if families else {"of elementwise: fewer than 10 rows": 9})
    assert result.hardware.latency.keys() == {calibration.family.name for calibration in result.families}


@pytest.mark.parametrize(("faster", "kept"), [(1.09, True), (1.11, False)])
def test_a_clock_can_boost_by_a_tenth_and_no_more(simple_gpu, faster, kept):
    call = calls([1.0, 1.0])
    floor = np.broadcast_to(floor_time(call.op, simple_gpu, "cold"), 2)
    mask, reasons = usable(calls(floor / faster), simple_gpu)
    assert mask.tolist() == [kept] * 2
    assert reasons == ({} if kept else {"faster than the bound": 2})


def test_a_fit_takes_1500_rows_and_is_checked_on_four_parts(monkeypatch):
    fits = []

    def counted(*arguments, **options):
        fits.append(arguments)
        return fit(*arguments, **options)

    monkeypatch.setattr(libraries, "fit", counted)
    start = Constants({"c": 1e-3}, dict.fromkeys(REGIMES, (0.5, 2.0)), "", "")
    result = calibrate_family(family(0.3), [rows(4000)], start, "test", "2026-01-01")
    assert result.rows == pytest.approx(1500, rel=0.02)
    assert len(fits) == 1 + 4
    # each fit of the cross-validation leaves out about a quarter of the shapes, and every row is left out once
    assert [sum(map(len, groups)) for _, groups, *_ in fits[1:]] == pytest.approx([1125] * 4, rel=0.1)
    assert result.log_ratio.size == result.rows


def test_ten_rows_narrow_what_the_machine_differs_by(simple_gpu) -> None:
    """V k v / (k v + n V) is left of the variance V of what was not seen; other regimes keep theirs.

    Ten rows without a residual make the scale k of the spread over shapes 5 / (5 + 10).
    """
    op = Elementwise(numel=np.arange(1.0, 11.0) * 1e8)
    before = constants(families.family("elementwise"), simple_gpu, "torch", op.dtype)
    made_up = replace(calls(predict(op, simple_gpu).predicted_time_s), op=op)
    result = calibrate_calls([made_up], simple_gpu, "test", "2026-01-01")
    (made,) = result.families
    shape = before.variances["shape"][2] / 3
    unseen = sum(values[2] for source, values in before.variances.items() if source != "shape")
    end = math.exp(1.2816 * math.sqrt(shape + unseen * shape / (shape + 10 * unseen)))
    assert made.table.intervals["large"] == pytest.approx((1 / end, end))
    assert made.table.intervals["large"][1] < before.intervals["large"][1]
    assert made.table.intervals["launch"] == before.intervals["launch"]
    after = predict(Elementwise(numel=3e8), result.hardware, library="torch-2.1")
    assert after.calibration == "calibrated"
    assert after.rows()[0]["not_seen"] == []


@pytest.mark.parametrize(("scatter", "wider"), [(0.01, False), (3.0, True)])
def test_rows_of_the_users_own_host_leave_what_hosts_differ_by_out(scatter, wider) -> None:
    """Their residuals set the spread, which is wider than usual where they scatter more."""
    machine = hardware("l40s")
    sizes = 2.0 ** np.arange(12, 28)
    noise = np.exp(scatter * np.random.default_rng(1).standard_normal(sizes.size))
    op = AllReduce(bytes=sizes, num_gpus=8, dtype="fp16")
    rows = replace(calls((30e-6 + 1.75 * sizes / 12e9) * noise), op=op, hardware=machine.name)
    made = calibrate_calls([rows], machine, "test", "2026-01-01").hardware
    before, after = (predict(AllReduce(bytes=2**26, num_gpus=8), each) for each in (machine, made))
    assert "host" in before.rows()[0]["not_seen"]
    assert "host" not in after.rows()[0]["not_seen"]
    widths = [float(np.log(p.predicted_time_high_s / p.predicted_time_low_s)) for p in (before, after)]
    shape = 2.0 * 1.2816 * math.sqrt(before.uncertainty.variances("large")["shape"])
    assert (widths[1] > shape) is wider
    assert wider or widths[1] < 0.4 * widths[0]
