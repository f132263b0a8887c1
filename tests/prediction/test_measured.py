"""Verdicts on measured times: against bound, expectation and interval, with causes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.report import report
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.columns import PREDICTION_COLUMNS, achieved
from perfmodel.prediction.measured import AS_EXPECTED, FAST, SLOW, TOO_FAST, judge_measured, measured_time
from perfmodel.prediction.predict import predict
from perfmodel.prediction.summary import summarize
from perfmodel.render.table import render

A100 = hardware("a100-sxm4-80gb")
GEMM = Gemm(m=4096, n=4096, k=4096, dtype="fp16")
FLOP = 2 * 4096**3
BYTES = 3 * 4096**2 * 2


@pytest.mark.parametrize(
    ("text", "time_s"),
    [("14.5ms", 14.5e-3), ("38TFLOP/s", FLOP / 38e12), ("1.2TB/s", BYTES / 1.2e12), ("300 us", 300e-6)],
)
def test_a_time_or_a_rate_is_a_time(text, time_s):
    assert measured_time(text, GEMM) == pytest.approx(time_s)


def test_a_rate_of_a_link_is_the_one_over_the_link():
    # 8 GPUs send 2 x 7/8 of 1 GB each in a ring: at a bus bandwidth of 250 GB/s that takes 7 ms
    assert measured_time("250GB/s", AllReduce(bytes=1e9, num_gpus=8)) == pytest.approx(7e-3)
    assert measured_time("25GB/s", Memcpy(bytes=1e9)) == pytest.approx(40e-3)
    assert measured_time("1TB/s", Memcpy(bytes=1e9, direction="d2d")) == pytest.approx(2e-3)  # read and written


def test_a_copy_has_no_ranks_and_a_pageable_one_is_not_told_so():
    ops = (*(Memcpy(bytes=10**9, pinned=pinned) for pinned in (True, False)), AllReduce(bytes=10**9, num_gpus=8))
    causes = [" ".join(judge_measured(op, A100, 1.0).causes) for op in ops]
    assert [["pageable" in text, "ranks" in text, "fewer lanes" in text] for text in causes] == [
        [True, False, True],
        [False, False, True],
        [False, True, False],
    ]


def test_rates_of_a_link_are_shares_of_its_peak():
    judged = judge_measured(AllReduce(bytes=1e9, num_gpus=8), A100, 7e-3)
    table = "\n".join(render(report(judged), width=200).splitlines()[:3])
    assert "250 GB/s" in table  # achieved: 1.75 GB in 7 ms
    assert "300 GB/s" in table  # attainable: NVLink in one direction
    p = predict(AllReduce(bytes=1e9, num_gpus=8), hardware("h100-sxm5-80gb"))
    assert p.link_bytes == pytest.approx(1e9 * 9 / 8)  # the switch adds
    assert p.link_bytes / p.bound_time_s == pytest.approx(450e9)
    assert predict(GEMM, A100).link_bytes == 0


def _rate(row):
    (column,) = (one for one in PREDICTION_COLUMNS if one.title == "rate, % of peak")
    return column.show_row(row)


def test_the_rate_of_a_collective_is_its_bus_bandwidth_at_every_size():
    """2 S (n - 1) / n bytes over the time, whether the launch or a link that adds bounds it."""
    sizes = 2.0 ** np.arange(10, 31)
    p = predict(AllReduce(bytes=sizes, num_gpus=8), hardware("h100-sxm5-80gb"))
    rows = p.rows()
    assert {row["limiter"] for row in rows} == {"launch", "link"}
    for size, row in zip(sizes, rows, strict=True):
        assert row["bus_bytes"] == pytest.approx(1.75 * size)
        share = row["link_bytes"] / 450e9 / row["predicted_time_s"]
        percent = f"{100 * share:.0f}" if share >= 0.01 else "<1"
        assert _rate(row) == f"{format_si(1.75 * size / row['predicted_time_s'], 'B/s', 3)} {percent}"


def test_the_share_of_a_link_is_that_of_the_bus_bandwidth_that_fills_it():
    """Where the switch adds, S (n + 1) / n bytes cross a link: 450 GB/s of them are a bus bandwidth of 700."""
    p = predict(AllReduce(bytes=2**30, num_gpus=8), hardware("h100-sxm5-80gb"))
    assert p.bus_bytes / p.bound_time_s == pytest.approx(700e9)
    assert p.predicted_utilization == pytest.approx(p.bus_bytes / p.predicted_time_s / 700e9)
    assert "Rates are bus bandwidths (nccl-tests); full links and networks give 700 GB/s: all_reduce." in summarize([p])
    ring = predict(AllReduce(bytes=2**30, num_gpus=8), A100)
    assert not any("bus bandwidth" in line for line in summarize([ring]))
    assert predict(GEMM, A100).bus_bytes == 0


def test_a_measured_bus_bandwidth_is_the_achieved_rate():
    op, machine = AllReduce(bytes=2**30, num_gpus=8), hardware("h100-sxm5-80gb")
    (row,) = judge_measured(op, machine, measured_time("447GB/s", op)).rows()
    assert achieved(row) == "447 GB/s"


@pytest.mark.parametrize(
    ("text", "op", "message"),
    [
        ("5", GEMM, "no unit"),
        ("0ms", GEMM, "not above 0"),
        ("fast", GEMM, "neither a time nor a rate"),
        ("1TFLOP/s", Memcpy(bytes=10**6), "no FLOP to count"),
    ],
)
def test_anything_else_is_one_message(text, op, message):
    with pytest.raises(UsageError, match=message):
        measured_time(text, op)


def test_a_sweep_has_no_single_time():
    with pytest.raises(UsageError, match="one size"):
        judge_measured(Gemm(m=np.array([1, 2]), n=8, k=8, dtype="fp16"), A100, 1e-3)


@given(st.floats(1e-6, 1.0))
def test_verdicts_follow_bound_and_interval(time_s):
    judged = judge_measured(GEMM, A100, time_s)
    p = judged.prediction
    expected = (
        TOO_FAST
        if time_s < p.bound_time_s
        else FAST
        if time_s < p.predicted_time_low_s
        else AS_EXPECTED
        if time_s <= p.predicted_time_high_s
        else SLOW
    )
    assert judged.verdict == expected
    assert judged.efficiency == pytest.approx(p.bound_time_s / time_s)
    assert bool(judged.causes) is (expected != AS_EXPECTED)


def test_ratios_far_from_one_have_digits_and_no_exponent():
    fast = judge_measured(GEMM, A100, 1e-6).sentence  # bound 440.5 us, expected 550 us
    assert "0.00182 times the expected" in fast
    assert "the bound is 441 times as long" in fast
    slow = judge_measured(GEMM, A100, 1.0).sentence
    assert "e+" not in slow
    assert "0.00 " not in slow
    little = judge_measured(GEMM, A100, float(predict(GEMM, A100).bound_time_s) / 1.012).sentence
    assert "the bound is 1.2 % longer" in little


def test_less_work_explains_what_is_faster_than_the_bound():
    # A multiply-add that is counted as 1 FLOP makes a rate look lower, and a time is no rate at all.
    causes = " ".join(judge_measured(GEMM, A100, 300e-6).causes)
    assert "less work than 137.4 GFLOP and 100.7 MB" in causes
    assert "multiply-add" not in causes
    masked = Attention(heads=32, seq_q=2048, head_dim=64, dtype="fp16", causal=True)
    assert "what the mask hides" in " ".join(judge_measured(masked, A100, 1e-6).causes)


def test_a_product_as_slow_as_the_vector_units_did_not_use_the_tensor_cores():
    # 137 GFLOP at 78 TFLOP/s of the vector units
    assert "tensor cores are not used" in judge_measured(GEMM, A100, FLOP / 60e12).causes[0]
    assert "tensor cores" not in " ".join(judge_measured(GEMM, A100, FLOP / 150e12).causes)


def test_odd_sizes_and_cached_data_are_causes():
    odd = Gemm(m=3137, n=3137, k=4096, dtype="bf16")
    slow_s = 2.5 * float(predict(odd, A100).predicted_time_s)
    assert any("pad n 3137 to 3144" in cause for cause in judge_measured(odd, A100, slow_s).causes)
    fp32 = Gemm(m=8192, n=8192, k=8192, dtype="fp32")
    tf32_s = float(predict(Gemm(m=8192, n=8192, k=8192, dtype="tf32"), A100).predicted_time_s)
    assert "TF32" in judge_measured(fp32, A100, tf32_s).causes[0]


def test_the_row_is_that_of_analyze_with_what_was_measured():
    row = report(judge_measured(GEMM, A100, 1e-3)).rows[0]
    assert row["achieved_flop_per_s"] == pytest.approx(FLOP / 1e-3)
    assert row["achieved_bytes_per_s"] == pytest.approx(BYTES / 1e-3)
    assert row["faster_than_bound"] is False
    assert {"predicted_time_s", "bound_time_s", "measured_time_s", "efficiency", "verdict"} <= set(row)
    assert row["verdict"] == SLOW


def test_an_operator_that_nobody_ran_is_not_to_be_tuned():
    for op in (GEMM, Gemm(m=64, n=64, k=64, dtype="fp16"), Elementwise(numel=10**8), Memcpy(bytes=10**9)):
        advice = str(predict(op, A100).advice)
        assert not any(word in advice for word in ("check", "tuning", "tensor cores", "pin "))
        assert "bound" in advice
    assert "pinned host memory" in str(predict(Memcpy(bytes=10**9, pinned=False), A100).advice)


@given(st.integers(1, 8192), st.sampled_from(["fp16", "fp32"]))
def test_expected_rates_are_work_over_time_and_below_the_peak(size, dtype):
    p = predict(Gemm(m=size, n=512, k=512, dtype=dtype), A100)
    assert p.predicted_flop_per_s == pytest.approx(p.flop / p.predicted_time_s)
    assert p.predicted_bytes_per_s == pytest.approx((p.bytes_read + p.bytes_written) / p.predicted_time_s)
    assert 0 < p.predicted_utilization <= 1 + 1e-9


def test_rates_of_a_sweep_equal_those_of_its_points():
    sizes = np.array([64, 512, 4096])
    swept = predict(Gemm(m=sizes, n=512, k=512, dtype="fp16"), A100)
    single = [predict(Gemm(m=int(m), n=512, k=512, dtype="fp16"), A100).predicted_utilization for m in sizes]
    assert np.allclose(swept.predicted_utilization, single)


@given(st.sampled_from([10**4, 10**6, 10**7, 10**8]), st.sampled_from(["cold", "warm", "rotating"]))
def test_the_share_of_a_peak_is_that_of_the_rate_beside_it(numel, cache):
    """Whatever the caches hold: a rate above the peak, which only a cache can have, has no share of it."""
    p = predict(Elementwise(numel=numel, dtype="bf16"), A100, cache=cache)
    share = p.predicted_bytes_per_s / A100.main_memory.bandwidth_bytes_per_s
    assert np.isnan(p.predicted_utilization) if share > 1 else p.predicted_utilization == pytest.approx(share)


def test_calls_of_equal_time_have_equal_shares():
    """Nothing rotates in a norm: of weights that take turns as of a cold call, 1.98 of 3.35 TB/s are 59 %."""
    cold, rotating = (predict(LayerNorm(rows=4096, cols=4096, dtype="fp16"), hardware("h100"), cache=c)
                      for c in ("cold", "rotating"))  # fmt: skip
    assert rotating.predicted_time_s == cold.predicted_time_s
    assert rotating.predicted_utilization == cold.predicted_utilization


def test_shares_of_a_warm_sweep_equal_those_of_its_points():
    sizes = np.array([10**4, 10**6, 10**7, 10**8])
    swept = predict(Elementwise(numel=sizes, dtype="bf16"), A100, cache="warm").predicted_utilization
    single = [predict(Elementwise(numel=int(n), dtype="bf16"), A100, cache="warm").predicted_utilization for n in sizes]
    assert np.allclose(swept, single, equal_nan=True)
    assert np.isnan(swept).any()
    assert not np.isnan(swept).all()


@given(st.sampled_from([16, 64, 128, 512]), st.sampled_from([64, 512, 4096]), st.sampled_from(["fp32", "bf16"]))
def test_the_percentage_is_of_the_peak_that_the_unit_of_the_rate_names(m, k, dtype):
    """Small products are bound by their launch, and compute more than they move, or the other way round."""
    p = predict(Gemm(m=m, n=64, k=k, dtype=dtype), A100)
    (column,) = (one for one in PREDICTION_COLUMNS if one.title == "rate, % of peak")
    _, unit, *percent = column.show_row(p.rows()[0]).split()
    peak = p.peak.flop_per_s if unit.endswith("FLOP/s") else A100.main_memory.bandwidth_bytes_per_s
    shown = p.predicted_flop_per_s if unit.endswith("FLOP/s") else p.predicted_bytes_per_s
    assert percent == [f"{100 * shown / peak:.0f}" if shown >= 0.01 * peak else "<1"]


def test_a_rate_above_that_of_memory_has_no_share_of_its_peak():
    """50 MB of weights, which the L2 of an RTX 5090 keeps, come at 2.4 TB/s of 1.79."""
    op = Gemm(m=16, n=6144, k=4096, dtype="bf16")
    cells = {}
    for cache in ("cold", "warm"):
        (row,) = predict(op, hardware("rtx-5090"), library="torch", cache=cache).rows()
        (column,) = (one for one in PREDICTION_COLUMNS if one.title == "rate, % of peak")
        cells[cache] = column.show_row(row)
    assert cells["cold"].split() == ["1.35", "TB/s", "75"]
    assert cells["warm"].split()[1:] == ["TB/s"]
