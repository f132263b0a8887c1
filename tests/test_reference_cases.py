"""The worked cases that this release covers, numbered as in examples/worked_cases.md, with their algebra."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Link
from perfmodel.investment.amdahl import parallel_efficiency, roi_per_day, serial_fraction, time_saved_fraction
from perfmodel.investment.economics import Economics
from perfmodel.profile.profile import Profile, ProfileEntry


@pytest.fixture(scope="module")
def a100():
    """A100-SXM4-40GB: fp32 19.5 TFLOP/s, fp16 tensor 312 TFLOP/s dense, 1555 GB/s."""
    return pm.hardware("a100-sxm4-40gb")


@pytest.mark.parametrize(
    ("name", "fp32", "fp16"),
    [
        ("a100-sxm4-40gb", 12.54, 200.6),  # 19.5e12 / 1555e9, 312e12 / 1555e9
        ("a100-sxm4-80gb", 9.56, 153.0),  # 19.5e12 / 2039e9, 312e12 / 2039e9
    ],
)
def test_case_1_ridge_points(name, fp32, fp16):
    machine = pm.hardware(name)
    vector = pm.predict(pm.LayerNorm(rows=1, cols=1, dtype="fp32"), machine)
    tensor = pm.predict(pm.Gemm(m=1, n=1, k=1, dtype="fp16"), machine)
    assert vector.ridge_point_flop_per_byte == pytest.approx(fp32, abs=0.005)
    assert tensor.ridge_point_flop_per_byte == pytest.approx(fp16, abs=0.05)


def test_case_2_gemm(a100):
    gemm = pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16")
    p = pm.predict(gemm, a100)
    assert p.flop == 2 * 4096**3  # 137.44 GFLOP
    assert gemm.work().bytes == 3 * 4096**2 * 2  # 100.66 MB
    assert p.arithmetic_intensity_flop_per_byte == pytest.approx(4096 / 3)  # 2 s^3 / (6 s^2) = s / 3 = 1365.3
    assert p.limiter == "compute"
    assert p.bound_time_s == pytest.approx(440.5e-6, abs=0.05e-6)  # 137.44e9 / 312e12


def test_case_3_add(a100):
    add = pm.Elementwise(numel=10**6, kind="add", dtype="fp32")
    p = pm.predict(add, a100)
    assert add.work().bytes == 12e6  # 3 x 4 B an element
    assert p.arithmetic_intensity_flop_per_byte == pytest.approx(1 / 12)
    assert p.attainable_flop_per_s == pytest.approx(129.6e9, abs=0.05e9)  # 1555e9 / 12
    assert p.bound_time_s == pytest.approx(7.72e-6, abs=0.005e-6)  # 12e6 / 1555e9
    # 12 MB lie in the L2 of 40 MiB, and from there the data comes sooner than a launch takes.
    assert p.fits_in == "l2"
    assert p.resident_bound_time_s < a100.launch.overhead_s
    assert p.advice.startswith("launch-bound")


def test_case_4_layer_norm(a100):
    norm = pm.LayerNorm(rows=128, cols=4096, dtype="fp32")
    p = pm.predict(norm, a100)
    assert norm.work().bytes == 4 * (2 * 128 * 4096 + 2 * 4096)  # x, y, gamma, beta: 4.23 MB
    assert p.arithmetic_intensity_flop_per_byte == pytest.approx(0.50, abs=0.005)  # 4 x 128 x 4096 / 4.23e6
    assert p.fits_in == "l2"


@pytest.mark.parametrize(
    ("dtype", "algorithm", "traffic_bytes", "intensity", "limiter"),
    [
        # Q, K, V, O: 4 x 32 x 2048 x 64 elements; scores and probabilities, each written and read: 4 x 32 x 2048^2
        ("fp32", "unfused", 4 * (4 * 32 * 2048 * 64 + 4 * 32 * 2048**2), 15.5, "compute"),  # above 12.54
        ("fp16", "unfused", 2 * (4 * 32 * 2048 * 64 + 4 * 32 * 2048**2), 31.0, "hbm"),  # below 200.6
        ("fp16", "flash", 2 * 4 * 32 * 2048 * 64, 1024.0, "compute"),
    ],
)
def test_case_5_attention(a100, dtype, algorithm, traffic_bytes, intensity, limiter):
    attention = pm.Attention(heads=32, seq_q=2048, head_dim=64, dtype=dtype, algorithm=algorithm)
    p = pm.predict(attention, a100)
    assert p.flop == 4 * 32 * 2048**2 * 64  # 34.36 GFLOP
    assert attention.work().bytes == traffic_bytes
    assert p.arithmetic_intensity_flop_per_byte == pytest.approx(intensity, abs=0.05)
    assert p.limiter == limiter


def test_case_5_scores_in_fp32_are_537_mb():
    attention = pm.Attention(heads=32, seq_q=2048, head_dim=64, dtype="fp32", algorithm="unfused")
    (scores,) = (tensor for tensor in attention.tensors() if tensor.name == "scores")
    assert scores.size_bytes == 32 * 2048**2 * 4
    assert scores.size_bytes == pytest.approx(536.9e6, abs=0.05e6)


def test_case_6_four_candidates():
    profile = Profile(
        [ProfileEntry(name, share) for name, share in (("a", 0.5), ("b", 0.3), ("c", 0.1), ("rest", 0.1))]
    )
    candidates = [
        pm.Candidate("A", ("a",), speedup=2.0, dev_days=2),  # 1 / (0.5 + 0.5/2) = 1.333
        pm.Candidate("B", ("b",), speedup=3.0, dev_days=3),  # 1 / (0.7 + 0.3/3) = 1.250
        pm.Candidate("C", ("c",), speedup=10.0, dev_days=5),  # 1 / (0.9 + 0.1/10) = 1.099
        pm.Candidate("A+B", ("a", "b"), speedup=1.5, dev_days=1),  # 1 / (0.2 + 0.8/1.5) = 1.364
    ]
    rows = pm.rank_candidates(profile, candidates).rows
    assert [row.name for row in rows] == ["A+B", "A", "B", "C"]
    assert [row.overall_speedup for row in rows] == pytest.approx([1.364, 1.333, 1.250, 1.099], abs=5e-4)
    assert [row.roi_per_day for row in rows] == pytest.approx([0.3636, 0.1667, 0.0833, 0.0198], abs=5e-5)


@pytest.mark.parametrize(("fraction", "local", "overall"), [(0.05, 2, 1.0256), (0.02, 10, 1.0183), (0.40, 2, 1.25)])
def test_case_7_small_parts(fraction, local, overall):
    assert pm.amdahl_speedup(fraction, local) == pytest.approx(overall, abs=5e-5)


def test_case_7_a_fifth_less_time_is_a_quarter_more_throughput():
    assert time_saved_fraction(1.25) == pytest.approx(0.20)
    assert roi_per_day(1.25, 1) == pytest.approx(0.25)


def test_case_8_gpt2_step():
    profile = Profile([ProfileEntry("attention", 0.120), ProfileEntry("rest", 0.380)])
    (row,) = pm.rank_candidates(profile, [pm.Candidate("flash", ("attention",), speedup=3.0)]).rows
    assert row.fraction == pytest.approx(0.24)
    assert row.overall_speedup == pytest.approx(500 / 420)  # 120 / 3 = 40 ms remain: 420 ms, 1.190x
    assert row.time_saved_s == pytest.approx(0.080)
    assert row.max_overall_speedup == pytest.approx(500 / 380)  # 380 ms would need attention for nothing


@pytest.mark.parametrize(("measured_s", "share"), [(0.090, 0.926), (0.200, 0.417)])
def test_case_10_pcie(a100, measured_s, share):
    machine = dataclasses.replace(a100, links=(Link("pcie", 12e9),))
    found = pm.bound_time(pm.Memcpy(bytes=10**9), machine)
    assert found.limiter == "link"
    assert found.time_s == pytest.approx(83.3e-3, abs=0.05e-3)  # 1e9 / 12e9
    assert found.time_s / measured_s == pytest.approx(share, abs=5e-4)


def test_case_14_a_month_of_training():
    run = Economics(gpus=8, price_per_gpu_hour=10, hours_per_year=30 * 24)
    assert run.yearly_cost == pytest.approx(57_600)  # 8 x 720 h x 10
    assert run.yearly_saving(3) == pytest.approx(38_400)  # two thirds of it


@pytest.mark.parametrize(
    ("speedup", "efficiency", "serial"),
    [
        (2.5, 0.625, 0.20),  # (4/2.5 - 1) / 3
        (3.8, 0.95, 0.0175),  # (4/3.8 - 1) / 3
    ],
)
def test_case_15_data_parallel(speedup, efficiency, serial):
    assert parallel_efficiency(speedup, 4) == pytest.approx(efficiency)
    assert serial_fraction(speedup, 4) == pytest.approx(serial, abs=5e-5)


@pytest.mark.parametrize(("name", "mib"), [("a100-sxm4-40gb", 40), ("v100-sxm2-16gb", 6)])
def test_case_16_l2(name, mib):
    assert pm.hardware(name).level("l2").capacity_bytes == mib * 2**20
