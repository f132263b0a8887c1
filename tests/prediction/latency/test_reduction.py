"""Reductions: worked examples, limits, and agreement with a profile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.hardware_catalog import hardware, load_all
from perfmodel.operators.reduction import Reduction
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.reduction import FAMILY, block_s, shares

#: 100 SMs at 1 GHz, 1 TB/s, L2 of 10 MB
ROUND = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
VALUES = {"eta": 0.8, "launch": 2e-6, "feed": 0.5, "fill": 0.8, "trip": 5e-7, "host": 30e-6, "hidden": 10e-6}
COLD, WARM = Conditions(), Conditions(cache="warm")
EVENT = Conditions(timing="event", cache="warm")
TORCH = Conditions(library="torch")
DEFAULT: Values = {constant.name: constant.default for constant in FAMILY.all_constants}
sizes = st.tuples(st.integers(1, 10**6), st.integers(1, 10**6))


def test_many_rows_stream_by_hand() -> None:
    # 1e5 rows of 1000: 400 MB in, 0.4 MB out, at 0.8 TB/s
    got = FAMILY.formula(Reduction(rows=10**5, cols=1000), ROUND, VALUES, COLD)
    assert got.adds["hbm"] == pytest.approx(500.5e-6)
    assert got.adds["wave quantisation"] == 0.0
    assert got.time_s == pytest.approx(502.5e-6)


def test_few_values_leave_sms_idle_by_hand() -> None:
    # 3.2 kB at 0.8 TB/s is 4 ns, but a block of 8192 values draws 30 B a clock at 1 GHz: 32,768 B take 1.092 us
    assert block_s(4.0, ROUND) == pytest.approx(1.0923e-6, rel=1e-4)
    got = FAMILY.formula(Reduction(rows=1, cols=799), ROUND, VALUES, COLD)
    assert got.adds["hbm"] == pytest.approx(4e-9)
    assert got.adds["wave quantisation"] == pytest.approx(1.0883e-6, rel=1e-4)


def test_blocks_share_a_long_row() -> None:
    # 1 row and its sum: 40 blocks of 8192 could draw more than all of 0.8 TB/s; 20 draw 0.6 TB/s
    assert FAMILY.formula(Reduction(rows=1, cols=327679), ROUND, VALUES, COLD).adds["wave quantisation"] == 0.0
    half = FAMILY.formula(Reduction(rows=1, cols=163839), ROUND, VALUES, COLD)
    assert half.adds["wave quantisation"] == pytest.approx(half.adds["hbm"] / 3)


def test_more_sms_on_the_same_memory_reduce_as_fast() -> None:
    few, many = (
        FAMILY.formula(Reduction(rows=4, cols=1000), replace(ROUND, sm_count=count), VALUES, COLD).time_s
        for count in (100.0, 200.0)
    )
    assert few == many


@pytest.mark.parametrize("conditions", [COLD, WARM, EVENT])
@pytest.mark.parametrize("rows", [1, 11, 1000])
def test_more_columns_never_take_less_time(conditions: Conditions, rows: int) -> None:
    cols = np.unique(np.concatenate([np.arange(1, 1000), np.geomspace(1000, 1e7, 1000).round(), [131071, 131072]]))
    assert np.all(
        np.diff(FAMILY.timed_terms(Reduction(rows=rows, cols=cols), ROUND, DEFAULT, conditions).time_s) >= -1e-15
    )


@pytest.mark.parametrize("conditions", [COLD, WARM, EVENT])
@pytest.mark.parametrize("cols", [1, 100, 10**4, 10**6])
def test_more_rows_never_take_less_time(conditions: Conditions, cols: int) -> None:
    rows = np.unique(np.geomspace(1, 1e7, 300).round())
    assert np.all(
        np.diff(FAMILY.timed_terms(Reduction(rows=rows, cols=cols), ROUND, DEFAULT, conditions).time_s) >= -1e-15
    )


@given(st.lists(sizes, min_size=1, max_size=6), st.sampled_from([COLD, WARM, EVENT]))
def test_scalar_equals_array(shapes: list[tuple[int, int]], conditions: Conditions) -> None:
    rows, cols = np.array(shapes).T
    together = FAMILY.timed_terms(Reduction(rows=rows, cols=cols), ROUND, VALUES, conditions)
    for index, (one, width) in enumerate(shapes):
        alone = FAMILY.timed_terms(Reduction(rows=one, cols=width), ROUND, VALUES, conditions)
        assert np.asarray(together.time_s)[index] == pytest.approx(alone.time_s, rel=1e-13)


@given(sizes, st.sampled_from([COLD, WARM, EVENT]))
def test_every_term_is_a_time_on_every_machine(shape: tuple[int, int], conditions: Conditions) -> None:
    for spec in load_all():
        if spec.kind == "gpu":
            op = Reduction(rows=shape[0], cols=shape[1])
            got = FAMILY.timed_terms(op, Machine.of(spec, resolve_peak(op, spec)), DEFAULT, conditions)
            assert all(np.isfinite(value) and value >= 0 for value in got.adds.values())


def test_a_profile_agrees() -> None:
    # aten::mean over the last axis of fp32 [16, 559, 1024] in TraceLens' H100 trace (@ 171dd74721ca): 15.1 us
    spec = hardware("h100-sxm5-80gb")
    op = Reduction(rows=16 * 559, cols=1024)
    got = FAMILY.formula(op, Machine.of(spec, resolve_peak(op, spec)), DEFAULT, COLD)
    assert got.time_s == pytest.approx(15.1e-6, rel=0.1)


def test_a_warp_has_a_row_until_its_lanes_would_take_256_values() -> None:
    # 256 rows of 4096: 16 blocks of 16 warps, 128 values a lane, 4 at a time; of 8192: a block of 512 threads each
    assert tuple(map(float, shares(256.0, 4096.0, 4.0, ROUND))) == (16.0, 512.0, 128.0)
    assert tuple(map(float, shares(256.0, 8192.0, 4.0, ROUND))) == (256.0, 512.0, 16.0)
    # one row of 2^20: 512 threads would take 2048 values each; 100 SMs of 4 blocks each share it, so that the least
    # number of values, 16 of a thread, makes 128 blocks
    assert tuple(map(float, shares(1.0, 2.0**20, 4.0, ROUND))) == (128.0, 512.0, 16.0)


def test_few_rows_of_torch_take_their_steps_by_hand() -> None:
    # 32 steps and 2 to join them, 0.5 us each; 16 blocks draw 4.2 MB at 16 x 30 B a clock in 8.7 us; the stream alone
    # takes 5.24 us: ||17, 5.24||_1.25
    got = FAMILY.formula(Reduction(rows=256, cols=4096), ROUND, VALUES, TORCH)
    assert got.time_s - 2e-6 == pytest.approx((17.0**1.25 + 5.244**1.25) ** 0.8 * 1e-6, rel=1e-3)
    # an own H100 record (torch 2.11): 16.9 us, and 6.7 us for twice the columns
    assert got.time_s > 1.5 * FAMILY.formula(Reduction(rows=256, cols=8192), ROUND, VALUES, TORCH).time_s


@given(sizes)
def test_every_row_has_a_block_and_every_thread_a_value(shape: tuple[int, int]) -> None:
    values, blocks = (shares(float(shape[0]), float(shape[1]), 8.0, ROUND)[index] for index in (2, 0))
    assert values >= 1.0
    assert blocks >= 1.0
