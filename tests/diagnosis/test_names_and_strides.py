"""Limiters by names and by Nsight Compute, tensors that are read once or transposed, and waits before graphs."""

from __future__ import annotations

import json

import pytest

from perfmodel.core.vocabulary import Limiter
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.limits import limit
from perfmodel.formats import read_profile
from perfmodel.formats.torch_trace.call import parse_call
from perfmodel.formats.torch_trace.operators.aten import operator_of
from perfmodel.hardware_catalog import hardware
from perfmodel.investment.plan import plan_toml, read_plan
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.transpose import Transpose
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import Profile, ProfileEntry

H100 = hardware("h100-sxm5-80gb")
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    ("name", "limiter"),
    [
        ("void fbgemm_gpu::permute_2D_sparse_data_kernel", "hbm"),
        ("void fbgemm_gpu::jagged_dense_kernel", "unknown"),
        ("ampere_fp16_s16816gemm_fp16_128x128", "compute"),
        ("void gemv2T_kernel_val<int>", "hbm"),
        ("void vllm::paged_attention_v2_kernel<uint16_t>", "hbm"),
        ("BatchDecodeWithPagedKVCacheKernel", "hbm"),
        ("void flash::flash_fwd_kernel<Traits>", "compute"),
    ],
)
def test_names_that_say_something_and_names_that_do_not(name, limiter):
    assert limit(ProfileEntry(name, 1.0, 1, "kernel"), H100).limiter == limiter


@pytest.mark.parametrize(
    ("metrics", "limiter"),
    [
        ({SM: 20.0, MEMORY: 85.0, DRAM: 84.0}, Limiter.HBM),
        ({SM: 20.0, MEMORY: 85.0, DRAM: 30.0}, Limiter.L2),
        ({SM: 90.0, MEMORY: 40.0}, Limiter.COMPUTE),
        ({SM: 30.0, DRAM: 60.0}, Limiter.HBM),
    ],
)
def test_the_speed_of_light_decides_against_names(metrics, limiter):
    for name in ("some_gemm", "vectorized_elementwise"):
        found = limit(ProfileEntry(name, 1.0, 1, "kernel", metrics=metrics), H100)
        assert (found.limiter, found.basis) == (limiter, "counters")
        counted = limit(ProfileEntry(name, 1.0, 1, "kernel", metrics=metrics, flop=1e9, bytes=1e6), H100)
        assert counted.limiter == limiter
        assert counted.attainable_time_s is not None


def test_a_product_of_a_tensor_with_itself_reads_it_once():
    two, one = (Elementwise(numel=2**26, kind="mul", num_inputs=n, dtype="bf16") for n in (2, 1))
    bounds = [float(predict(op, H100).bound_time_s) for op in (two, one)]
    assert bounds[0] == pytest.approx(1.5 * bounds[1])
    squared = limit(ProfileEntry("mul", 1.1 * bounds[1], 1, "kernel", two), H100)
    assert squared.attainable_time_s == pytest.approx(bounds[1])
    assert not squared.flag
    product = limit(ProfileEntry("mul", 1.1 * bounds[0], 1, "kernel", two), H100)
    assert product.attainable_time_s == pytest.approx(bounds[0])


def _copy(dims, source, target):
    texts = ([dims, dims], [target, source], ["c10::BFloat16"] * 2, ["", ""])
    return operator_of(parse_call("aten::copy_", [json.dumps(text).encode() for text in texts]))[0]


def test_a_copy_into_another_innermost_axis_is_a_transpose():
    moved = _copy([64, 512, 256], [512 * 256, 1, 512], [512 * 256, 256, 1])
    assert isinstance(moved, Transpose)
    assert sorted((moved.rows, moved.cols)) == [256, 512]
    assert moved.batch == 64
    # heads and tokens change places, and rows of 64 stay whole
    kept = _copy([8, 16, 512, 64], [512 * 1024, 64, 1024, 1], [512 * 1024, 512 * 64, 64, 1])
    assert isinstance(kept, Elementwise)
    # rows of 2 stay within cache lines
    assert isinstance(_copy([512, 2], [1, 512], [2, 1]), Elementwise)
    assert moved.work().bytes == 2 * 2 * 64 * 512 * 256


def test_waits_in_the_step_come_before_the_graph_that_they_break(data_dir):
    diagnosis = diagnose(read_profile(data_dir / "traces" / "tracelens_h100_bert-small.json.gz"), H100)
    (graph,) = [item for item in diagnosis.advice if item.kind == "cuda-graph"]
    assert "first move the waits out of what is captured" in graph.text
    assert "aten::item" in graph.text


def test_a_plan_removes_waits_before_it_captures_a_graph(traced, tmp_path):
    api, gpu, now = [], [], 0.0
    for _ in range(20):
        api += [(now, now + 2, "cudaLaunchKernel", "launch"), (now + 3, now + 40, "cudaStreamSynchronize", "sync")]
        gpu.append((now + 5, now + 35, "k", "kernel", len(api) - 2))
        api.append((now + 60, now + 62, "cudaLaunchKernel", "launch"))
        gpu.append((now + 65, now + 70, "k", "kernel", len(api) - 1))
        api.append((now + 100, now + 102, "cudaLaunchKernel", "launch"))
        gpu.append((now + 105, now + 110, "k", "kernel", len(api) - 1))
        now += 150
    line = traced((0, now), gpu=gpu, api=api)
    diagnosis = diagnose(Profile((ProfileEntry("k", 40e-6 * 20, 60, "kernel"),), timeline=line))
    kinds = [item.kind for item in diagnosis.advice]
    assert kinds.index("batch-syncs") < kinds.index("cuda-graph")
    graph = diagnosis.advice[kinds.index("cuda-graph")]
    assert graph.candidate.after == (diagnosis.advice[kinds.index("batch-syncs")].candidate.name,)
    plan = tmp_path / "plan.toml"
    plan.write_text(plan_toml(diagnosis.advice), encoding="utf-8")
    read = {candidate.kind: candidate for candidate in read_plan(plan).candidates}
    assert read["cuda-graph"].after == graph.candidate.after
