"""How far parts of a profile are from their limits, on a machine with round numbers."""

from __future__ import annotations

import dataclasses
import math

import pytest

from perfmodel.core.hardware import Peak
from perfmodel.diagnosis.limits import CALL_IN_A_RUN, limit, profile_limits
from perfmodel.diagnosis.whose_kernels import library_of
from perfmodel.operators.batch_norm import BatchNorm
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.gather import Gather
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import Profile, ProfileEntry


def test_the_bound_of_an_operator_counts_all_calls(simple_gpu):
    # 3 x 4 B x 10^8 = 1.2 GB at 1 TB/s: 1.2 ms a call, 2.4 ms for two of 4 ms
    entry = ProfileEntry("add", 4e-3, 2, "kernel", op=Elementwise(numel=10**8, kind="add"))
    found = limit(entry, simple_gpu)
    assert (found.limiter, found.basis) == ("hbm", "model")
    assert found.attainable_time_s == pytest.approx(2.4e-3)
    assert found.efficiency == pytest.approx(0.6)
    assert found.max_local_speedup == pytest.approx(1 / 0.6)


def test_an_operator_that_a_call_computes_twice_has_twice_the_bound(simple_gpu):
    # as above, 1.2 ms each; a convolution's backward pass is two convolutions
    op = Elementwise(numel=10**8, kind="add", count=2)
    once, twice = (limit(ProfileEntry("add", 6e-3, calls, "kernel", op=op), simple_gpu) for calls in (1, 2))
    assert once.attainable_time_s == pytest.approx(2.4e-3)
    assert twice.floor_time_s == pytest.approx(2 * once.floor_time_s)
    assert twice.predicted_time_s == pytest.approx(2 * once.predicted_time_s)


@pytest.mark.parametrize(
    ("call", "library"),
    [
        ("aten::addmm", "torch"),
        ("aten::native_batch_norm", "torch"),
        ("aten::cudnn_batch_norm", "cudnn"),
        ("aten::cudnn_batch_norm_backward", "cudnn"),
        ("aten::miopen_batch_norm", "miopen"),
        ("aten::_scaled_dot_product_flash_attention", "torch/fa2"),
        ("flash_attn::_flash_attn_forward", "fa2"),
        ("", ""),
    ],
)
def test_the_call_says_whose_kernels_ran(simple_gpu, call, library):
    entry = ProfileEntry("call", 4e-3, 1, "kernel", op=BatchNorm(n=8, c=64, hw=3136), launched_by=call)
    assert library_of(entry) == library
    ours = predict(entry.op, simple_gpu, library=library)
    assert limit(entry, simple_gpu).predicted_time_s == pytest.approx(ours.predicted_time_s)


def test_an_interval_begins_at_warm_caches_and_without_the_gap_behind_a_kernel(simple_gpu):
    small, large = (Elementwise(numel=numel, kind="add", num_inputs=1, dtype="fp32") for numel in (10**6, 10**9))
    for op, caches in ((small, True), (large, False)):  # L2 of 10 MB holds 8 MB, and nothing of 8 GB
        found = limit(ProfileEntry("add", 1.0, 1, "kernel", op=op, launched_by="aten::add"), simple_gpu)
        cold, warm = (predict(op, simple_gpu, library="torch", cache=cache) for cache in ("cold", "warm"))
        assert found.predicted_time_s == pytest.approx(cold.predicted_time_s)
        # half of the launch floor of 1 us
        low_s = min(cold.predicted_time_low_s, warm.predicted_time_low_s) - 0.5e-6
        # and is wider by what a kernel in a run differs from one alone, but for what is below the bound
        ends = (low_s, cold.predicted_time_high_s)
        wide = [math.hypot(math.log(end / cold.predicted_time_s), 1.2816 * CALL_IN_A_RUN) for end in ends]
        floor_s = min(low_s, found.floor_time_s)
        assert found.predicted_low_s == pytest.approx(
            max(cold.predicted_time_s * math.exp(-wide[0]), floor_s), rel=1e-4
        )
        assert found.predicted_high_s == pytest.approx(cold.predicted_time_s * math.exp(wide[1]), rel=1e-4)
        assert (warm.predicted_time_low_s < 0.9 * cold.predicted_time_low_s) is caches


def test_kernels_tell_an_older_release():
    op = Embedding(tokens=4096, vocab=50000, dim=1024, unique=1, dtype="bf16")
    entry = ProfileEntry("look-up", 50e-6, 1, "kernel", op=op, launched_by="aten::index_select")
    assert library_of(dataclasses.replace(entry, kernels=("void at::native::vectorized_gather_kernel<16>",))) == "torch"
    older = dataclasses.replace(entry, kernels=("void at::native::indexSelectLargeIndex<c10::BFloat16, long>",))
    assert library_of(older) == "torch-2.6"


@pytest.mark.parametrize(
    ("least", "spread"),
    [
        (Embedding(tokens=4096, vocab=50000, dim=1024, unique=1), Embedding(tokens=4096, vocab=50000, dim=1024)),
        (Gather(numel=4096, table=50000, distribution="same"), Gather(numel=4096, table=50000)),
    ],
)
def test_a_look_up_is_bound_by_its_fewest_rows_and_expected_to_read_many(simple_gpu, least, spread):
    found = limit(ProfileEntry("look-up", 1e-3, 1, "kernel", op=least, launched_by="aten::gather"), simple_gpu)
    assert found.attainable_time_s == pytest.approx(predict(least, simple_gpu, library="torch").bound_time_s)
    likely = predict(spread, simple_gpu, library="torch").predicted_time_s
    assert found.predicted_time_s == pytest.approx(likely)
    assert likely > predict(least, simple_gpu, library="torch").predicted_time_s


def test_a_large_product_is_compute_bound(simple_gpu):
    entry = ProfileEntry("mm", 1.0, 1, "kernel", op=Gemm(m=8192, n=8192, k=8192, dtype="fp16"))
    assert limit(entry, simple_gpu).limiter == "compute"


@pytest.mark.parametrize("op", [Memcpy(bytes=10**8, direction="d2d"), None])
def test_a_copy_within_the_device_is_limited_by_its_memory(simple_gpu, op):
    copy = ProfileEntry("Memcpy DtoD (Device -> Device)", 1e-3, 1, "memcpy", op=op)
    peers = ProfileEntry("Memcpy PtoP (Device -> Device)", 1e-3, 1, "memcpy")
    assert limit(copy, simple_gpu).limiter == "hbm"
    assert limit(peers, simple_gpu).limiter == "link"


def test_a_copy_to_the_device_is_transfer(simple_gpu):
    # 10 GB/s: 10 MB take 1 ms
    found = limit(ProfileEntry("h2d", 2e-3, 1, "memcpy", op=Memcpy(bytes=10**7, direction="h2d")), simple_gpu)
    assert (found.limiter, found.attainable_time_s) == ("link", pytest.approx(1e-3))


def test_counted_flop_run_each_at_their_own_peak(simple_gpu):
    # 10^9 fp32 at 10 TFLOP/s: 100 us; 10^10 fp16 on tensor cores at 100: 100 us; 10^8 B at 1 TB/s: 100 us
    metrics = {"flop_fp32_vector": 1e9, "flop_fp16_tensor": 1e10}
    entry = ProfileEntry("k", 1e-3, 1, "kernel", flop=1.1e10, bytes=1e8, metrics=metrics)
    found = limit(entry, simple_gpu)
    assert (found.limiter, found.basis) == ("compute", "counters")
    assert found.attainable_time_s == pytest.approx(200e-6)
    # without the split they are counted at the fastest peak: 110 us
    found = limit(ProfileEntry("k", 1e-3, 1, "kernel", flop=1.1e10, bytes=1e8), simple_gpu)
    assert found.attainable_time_s == pytest.approx(110e-6)


def test_counted_bytes_alone_are_a_bound(simple_gpu):
    # 10^8 B at 1 TB/s: 100 us, whatever the FLOP that nobody counted
    for name, time_s, limiter, basis in (
        ("k", 150e-6, "hbm", "counters"),
        ("gemm", 150e-6, "hbm", "counters"),  # the name says nothing against what was counted
        # far from the bandwidth the bytes do not tell, and the name does where it says anything
        ("gemm", 1e-3, "compute", "name"),
        ("transpose", 1e-3, "hbm", "name"),
        ("k", 1e-3, "unknown", ""),
    ):
        found = limit(ProfileEntry(name, time_s, 1, "kernel", bytes=1e8), simple_gpu)
        assert (found.limiter, found.basis) == (limiter, basis)
        assert found.attainable_time_s == found.floor_time_s == pytest.approx(100e-6)


def test_what_beats_the_cold_bound_is_held_to_the_floor_of_all_its_calls(simple_gpu):
    # 12 MB at 1 TB/s are 12 us from memory; ten calls of 11 us had a part of it in the caches
    entry = ProfileEntry("add", 110e-6, 10, "kernel", op=Elementwise(numel=10**6, kind="add"))
    found = limit(entry, simple_gpu)
    one = limit(ProfileEntry("add", 11e-6, 1, "kernel", op=entry.op), simple_gpu)
    assert found.attainable_time_s == found.floor_time_s == pytest.approx(10 * one.floor_time_s)
    assert found.floor_time_s < 110e-6


def test_a_kernel_may_be_shorter_than_the_launch_floor_of_a_replayed_graph(simple_gpu):
    # 12 kB in 1.5 us: the caches hold them, the launch floor of 1 us stays
    entry = ProfileEntry("add", 0.5e-6, 1, "kernel", op=Elementwise(numel=1000, kind="add"))
    found = limit(entry, simple_gpu)
    assert found.attainable_time_s <= 0.5e-6
    assert found.efficiency == 1.0
    assert not found.flag


def test_what_physics_does_not_allow_is_flagged_and_not_clamped(simple_gpu):
    # 1e11 FLOP at 100 TFLOP/s are 1 ms
    counted = ProfileEntry("k", 0.5e-3, 1, "kernel", flop=1e11, bytes=1e6, metrics={"flop_fp16_tensor": 1e11})
    shaped = ProfileEntry("g", 1e-6, 1, "kernel", op=Gemm(m=4096, n=4096, k=4096, dtype="fp16"))
    for entry in (counted, shaped):
        found = limit(entry, simple_gpu)
        assert found.attainable_time_s == found.floor_time_s > entry.time_s
        assert found.efficiency > 1
        assert "another FLOP count" in found.flag
        assert found.max_local_speedup == 1.0
    slower = limit(dataclasses.replace(counted, time_s=1.5e-3), simple_gpu)
    assert not slower.flag


@pytest.mark.parametrize(
    ("name", "limiter"),
    [
        ("ampere_bf16_s16816gemm_bf16_64x64", "compute"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB", "compute"),
        ("aten::addmm", "compute"),
        ("void flash::flash_fwd_kernel<Traits>", "compute"),
        ("volta_scudnn_128x64_stridedB_splitK", "compute"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int>", "hbm"),
        ("void at::native::vectorized_elementwise_kernel<4>", "hbm"),
        ("aten::mul", "hbm"),
        ("aten::add_(16x559x1024)", "hbm"),
        ("void cudnn::bn_bw_1C11_kernel_new<float>", "hbm"),
        ("void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16>>", "hbm"),
        ("fused_recurrent_gated_delta_rule_fwd_kernel", "hbm"),
        ("_selective_state_update_kernel", "hbm"),
        ("my_kernel", "unknown"),
    ],
)
def test_names_tell_where_nothing_else_does(name, limiter):
    found = limit(ProfileEntry(name, 1.0, 1, "kernel"), None)
    assert (found.limiter, found.basis) == (limiter, "name" if limiter != "unknown" else "")
    assert found.why_unknown
    assert found.max_local_speedup == math.inf


def test_regions_of_the_program_have_no_limit(simple_gpu):
    profile = Profile((ProfileEntry("forward", 1.0, 1, "host"), ProfileEntry("nccl", 1.0, 1, "communication")))
    assert [one.limiter for one in profile_limits(profile, simple_gpu)] == ["unknown", "link"]


def test_counted_tensor_flop_run_at_the_peak_of_their_type(simple_gpu):
    # 10^10 fp16 at 100 TFLOP/s take 100 us, though the machine has a faster type
    faster = dataclasses.replace(simple_gpu, peaks=(*simple_gpu.peaks, Peak("fp8", "tensor", 200e12)))
    entry = ProfileEntry("k", 1e-3, 1, "kernel", flop=1e10, bytes=1e6, metrics={"flop_fp16_tensor": 1e10})
    assert limit(entry, faster).attainable_time_s == pytest.approx(100e-6)


def test_the_memory_of_a_cpu_is_dram(simple_gpu):
    cpu = dataclasses.replace(simple_gpu, memory=(dataclasses.replace(simple_gpu.memory[0], name="dram"),))
    entries = [
        ProfileEntry("add", 4e-3, 2, "kernel", op=Elementwise(numel=10**8, kind="add")),
        ProfileEntry("k", 1e-3, 1, "kernel", flop=1.0, bytes=1e6),
        ProfileEntry("aten::mul", 1e-3, 1, "kernel"),
        ProfileEntry("[CUDA memset]", 1e-3, 1, "memset"),
    ]
    assert [limit(entry, cpu).limiter for entry in entries] == ["dram"] * 4
    assert [limit(entry, simple_gpu).limiter for entry in entries] == ["hbm"] * 4
