"""The power limit: worked cases of one law, its limits, and what a process changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource, Load
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import (
    SUSTAINED_ENERGY,
    available_w,
    limited_share,
    process_energy,
    s_per_flop,
    sustained_share,
)

#: 100 TFLOP/s at 1 GHz, below the knee of 1.2 GHz; of 100 W, 10 % and 20 W more are not the engine's: 70 W are left
SLOW = Machine(100.0, 1e9, 100e12, "tensor", "bf16", 10e12, 1e12, 0.0, 100.0, process="TSMC 4N")


def test_a_device_of_a_module_has_the_limit_to_itself_in_a_benchmark_and_shares_it_in_real_work() -> None:
    half = replace(SLOW, tdp_w=0.5 * SLOW.tdp_w, alone_w=SLOW.tdp_w)
    assert s_per_flop(half, 1e-12) == s_per_flop(SLOW, 1e-12)
    alone, shared = (replace(half, alone_w=0.0), half)
    assert s_per_flop(shared, 1e-12, Load.SUSTAINED) == s_per_flop(alone, 1e-12, Load.SUSTAINED)
    assert s_per_flop(alone, 1e-12) > s_per_flop(shared, 1e-12)


@pytest.mark.parametrize("machine", [SLOW, replace(SLOW, clock_hz=2.4e9), replace(SLOW, tdp_w=50.0, alone_w=100.0)])
@pytest.mark.parametrize("joule", [0.5e-12, 1e-12, 3e-12])
def test_an_engine_that_is_always_busy_has_the_sustained_share_of_its_energy(machine: Machine, joule: float) -> None:
    share = limited_share(machine, joule)
    expected = min(1.0, limited_share(machine, SUSTAINED_ENERGY * joule, Load.SUSTAINED))
    assert sustained_share(machine, share) == pytest.approx(expected)


def test_an_engine_that_waits_keeps_the_clock_that_its_power_leaves_after_minutes_too() -> None:
    # above the knee a third of the logarithm of the energy shows in the clock: 1.3^(1/3) = 1.0914
    fast = replace(SLOW, clock_hz=2.4e9)
    assert sustained_share(fast, 0.9) == pytest.approx(0.9 / 1.0914, rel=1e-4)
    assert sustained_share(fast, 1.2) == 1.0  # power to spare
    # below it, at the lowest voltage, all of it: at 1.2 GHz, half of the clock
    assert sustained_share(fast, 0.4) == pytest.approx(0.4 / 1.3)


def test_below_the_knee_the_rate_is_power_over_energy() -> None:
    assert limited_share(SLOW, 1e-12) == pytest.approx(0.7)  # 70 W / 1 pJ = 70 TFLOP/s
    assert s_per_flop(SLOW, 1e-12) == pytest.approx(1 / 70e12)


def test_above_the_knee_voltage_falls_with_the_clock() -> None:
    # at 2.4 GHz a FLOP takes 4 pJ: x^3 = 0.7 / 4, so that x = 0.5593, 1.342 GHz, still above the knee
    fast = replace(SLOW, clock_hz=2.4e9)
    assert limited_share(fast, 1e-12) == pytest.approx((0.7 / 4) ** (1 / 3))
    # where the limit leaves less than the knee's clock, the law below the knee holds again
    assert limited_share(replace(fast, tdp_w=60.0), 1e-12) == pytest.approx(0.34)


def test_the_two_laws_meet_at_the_knee() -> None:
    fast = replace(SLOW, clock_hz=2.4e9)
    joule = 70.0 / (0.5 * 100e12)
    below, above = (limited_share(fast, joule * factor) for factor in (1 + 1e-9, 1 - 1e-9))
    assert below == pytest.approx(above, rel=1e-6) == pytest.approx(0.5)


def test_an_older_process_takes_more_energy_and_tensor_engines_less_of_that() -> None:
    old = replace(SLOW, process="TSMC 12FFN")
    assert process_energy(replace(old, engine="vector")) == 3.2
    assert process_energy(old) == pytest.approx(3.2**0.55)
    assert process_energy(replace(old, process="")) == 1.0


@given(st.floats(1.0, 2000.0), st.floats(1.0, 2000.0), st.floats(0.5e9, 3e9))
def test_more_power_is_never_slower(first: float, second: float, clock: float) -> None:
    low, high = sorted((first, second))
    of_low, of_high = (limited_share(replace(SLOW, tdp_w=w, clock_hz=clock), 1e-12) for w in (low, high))
    assert of_low <= of_high * (1 + 1e-12)


@given(st.floats(0.5, 2000.0), st.sampled_from(list(Load)))
def test_a_limit_leaves_more_than_half_of_itself_to_arithmetic(watts: float, load: Load) -> None:
    assert 0.5 * watts < available_w(replace(SLOW, tdp_w=watts), load) < watts
    assert 0.0 < sustained_share(replace(SLOW, tdp_w=watts), 0.9) <= 0.9


@pytest.mark.parametrize("op", [
    pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"),
    pm.Gemm(m=4096, n=4096, k=4096, dtype="fp32"),
    pm.Attention(heads=32, seq_q=4096, head_dim=128, dtype="fp16"),
])  # fmt: skip
@pytest.mark.parametrize("load", Load)
def test_a_module_of_half_the_watts_takes_at_most_a_little_over_twice_as_long(op: pm.Operator, load: Load) -> None:
    board = pm.hardware("t4")
    found = [pm.predict(op, replace(board, tdp_w=watts), load=load) for watts in (70.0, 40.0, 20.0, 10.0)]
    times = [float(one.predicted_time_s) for one in found]
    assert times == sorted(times)
    assert max(slower / faster for faster, slower in itertools.pairwise(times)) < 2.1
    assert all(ErrorSource.POWER in set(one.uncertainty) for one in found[1:])
    widths = [float(one.predicted_time_high_s / one.predicted_time_low_s) for one in found]
    assert widths[1] > 1.2 * widths[0]


def test_without_a_power_limit_nothing_is_limited() -> None:
    assert limited_share(replace(SLOW, tdp_w=np.inf), 1e-12) == np.inf
    assert s_per_flop(replace(SLOW, tdp_w=np.inf), 1e-12) == 0.0


def test_numbers_that_lanes_pack_take_less_energy_each_and_wider_ones_no_more() -> None:
    op = {dtype: pm.Gemm(m=4096, n=4096, k=4096, dtype=dtype) for dtype in ("int8", "fp16", "fp32", "fp64")}
    time = {dtype: float(pm.predict(one, "p4").predicted_time_s) for dtype, one in op.items()}
    assert time["int8"] < time["fp32"] / 3.0  # dp4a: four multiply-adds in place of one
    assert time["fp16"] == pytest.approx(time["fp32"], rel=0.05)  # its lanes do not pack them
    vector = [
        float(pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype=dtype, engine="vector"), "t4").predicted_time_s)
        for dtype in ("fp16", "fp32")
    ]
    assert vector[0] < 0.6 * vector[1]
