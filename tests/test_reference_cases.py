"""The worked cases that this release covers, numbered as in examples/worked_cases.md, with their algebra."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Link
from perfmodel.diagnosis.counters import coalescing, ideal_sectors_per_request, useful_warps
from perfmodel.investment.amdahl import parallel_efficiency, roi_per_day, serial_fraction, time_saved_fraction
from perfmodel.investment.economics import Economics
from perfmodel.prediction.launching import fused_time_s, pipelined_time_s, serialised_time_s
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.training.flops import step_flop
from perfmodel.training.memory import training_memory
from perfmodel.workloads.catalog import named_model


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


def test_case_9_a_hundred_launches() -> None:
    n, launch_s = 100, 7e-6
    for kernel_s, serialised, pipelined in ((50e-6, 5.7 / 5.007, 1.0), (3e-6, 1.0 / 0.307, 0.703 / 0.307)):
        fused = fused_time_s(n, kernel_s, launch_s)  # 7 us + n kernels
        assert serialised_time_s(n, kernel_s, launch_s) / fused == pytest.approx(serialised)
        assert pipelined_time_s(n, kernel_s, launch_s) / fused == pytest.approx(pipelined)


@pytest.mark.parametrize(("measured_s", "share"), [(0.090, 0.926), (0.200, 0.417)])
def test_case_10_pcie(a100, measured_s, share):
    machine = dataclasses.replace(a100, links=(Link("pcie", 12e9),))
    found = pm.bound_time(pm.Memcpy(bytes=10**9), machine)
    assert found.limiter == "link"
    assert found.time_s == pytest.approx(83.3e-3, abs=0.05e-3)  # 1e9 / 12e9
    assert found.time_s / measured_s == pytest.approx(share, abs=5e-4)


def test_case_11_six_accesses_become_two(a100) -> None:
    relu = pm.Elementwise(numel=8 * 64 * 56 * 56, kind="relu")
    norm = pm.BatchNorm(n=8, c=64, hw=56 * 56, training=False)
    conv = pm.Conv2d(n=8, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)
    tensor, weights = 8 * 64 * 56 * 56 * 4, 64 * 64 * 9 * 4
    together = sum(float(op.work().bytes) for op in (relu, norm, conv))
    assert together == 6 * tensor + weights
    assert pm.fuse_operators([relu, norm, conv], a100).bytes_saved == 4 * tensor
    assert 4 * tensor / together == pytest.approx(0.67, abs=0.01)
    # another number of filters breaks the assumption that all tensors have one size
    wider = conv.changed(k=256)
    moved = sum(float(op.work().bytes) for op in (relu, norm, wider))
    assert pm.fuse_operators([relu, norm, wider], a100).bytes_saved / moved == pytest.approx(4 / 9, abs=0.01)


def test_case_12_coalescing() -> None:
    assert [ideal_sectors_per_request(size) for size in (4, 2, 1)] == [4.0, 2.0, 1.0]  # 32 lanes x 4 B / 32 B
    assert coalescing(3.2, 4) == 1.0
    assert coalescing(32, 4) == 0.125


def test_case_13_useful_warps() -> None:
    many, few = useful_warps(32, 0.9), useful_warps(16, 0.3)
    assert (many, few) == (pytest.approx(3.2), pytest.approx(11.2))
    assert few / many == pytest.approx(3.5)


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


def test_case_17_collectives() -> None:
    sizes = {"bytes": 10**9, "num_gpus": 8}
    assert pm.AllReduce(**sizes).peer_bytes() == 2 * 10**9 * 7 / 8
    for kind in (pm.AllGather, pm.ReduceScatter, pm.Alltoall):
        assert kind(**sizes).peer_bytes() == 10**9 * 7 / 8


@pytest.mark.parametrize(("dtype", "master"), [("fp32", False), ("bf16", True)])
def test_case_18_training_memory(dtype, master) -> None:
    # 4 + 4 + 8 B; 2 + 2 + 4 + 4 + 4 B
    held = pm.Optimizer(parameters=7e9, dtype=dtype, master=master).work().working_set_bytes
    assert held == 16 * 7e9


@pytest.mark.parametrize(("framework", "held"), [("deepspeed", 16), ("torchtitan", 16), ("megatron", 18)])
def test_case_18_what_frameworks_hold(framework, held) -> None:
    # 2 + 2 + 12, 4 + 4 + 8, and with fp32 gradients 2 + 4 + 12 B a parameter; activations come on top
    model = named_model("llama-2-7b")
    plan = pm.TrainingPlan(batch=8, seq=2048, micro_batch=1, zero=0, framework=framework)
    parts = training_memory(model, pm.Cluster("h100", gpus=8), plan).peak.parts
    states = parts["weights"] + parts["gradients"] + parts["optimizer"]
    assert states / model.parameters == pytest.approx(held)
    assert parts["activations"] > 0


def test_case_19_a_step_counts_attention_by_its_convention() -> None:
    model, seq, tokens = named_model("llama-2-7b"), 2048, 8 * 2048
    causal, full, _ = step_flop(model, pm.TrainingPlan(batch=8, seq=seq, micro_batch=1))
    six_n = 6 * model.multiplied_parameters * tokens
    square = 12 * model.layers * model.hidden * seq * tokens
    assert full - six_n == pytest.approx(square)
    assert causal - six_n == pytest.approx(square / 2, rel=1e-3)  # pairs: S (S + 1) / 2


def test_case_19_utilisation_counts_attention() -> None:
    gpt2, seq = named_model("gpt2"), 1024

    def flop(attention: str, kinds: tuple[str, ...]) -> float:
        ops = pm.forward_pass(gpt2, 1, seq, dtype="fp16", attention=attention)
        return 3 * sum(float(op.flop()) * op.count for op in ops if op.op in kinds) / seq

    # two multiply-adds a parameter forward, four backward; the look-up of positions multiplies nothing
    positions, norms = gpt2.positions * gpt2.hidden, (2 * gpt2.layers + 1) * 2 * gpt2.hidden
    biases = gpt2.layers * (3 + 1 + 4 + 1) * gpt2.hidden
    weights = 12 * gpt2.layers * gpt2.hidden**2 + gpt2.vocab * gpt2.hidden
    products = flop("flash", ("gemm",))
    assert products == pytest.approx(6 * weights, rel=2e-3)
    assert positions + norms + biases < 0.01 * weights
    full = 12 * gpt2.layers * gpt2.hidden * seq
    # unfused attention computes the square, flash attention under the causal mask half of it
    assert flop("unfused", ("gemm",)) - products == pytest.approx(full, rel=2e-3)
    assert flop("flash", ("attention",)) == pytest.approx(full / 2, rel=2e-3)


def test_case_20_gumbel_max() -> None:
    logits = 64 * 128256 * 4
    choice = pm.choose("sampling", "a100-sxm4-40gb", rows=64, vocab=128256)
    tokens = 64 * 8
    for name, passes in (("multinomial", 7), ("gumbel", 7), ("gumbel_fused", 1)):
        assert choice[name].bytes == passes * logits + tokens
    assert choice.speedup("multinomial", "gumbel") < 1.1
    assert choice.speedup("multinomial", "gumbel_fused") > 5
    assert choice.best == "gumbel_fused"


def test_every_case_is_computed_here() -> None:
    covered = {int(name.split("_")[2]) for name in globals() if name.startswith("test_case_")}
    assert covered == set(range(1, 21))
