"""A name of a library means the same in a measurement table and where a prediction asks for it."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import UsageError
from perfmodel.operators.attention import Attention
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.swiglu import Swiglu
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.implementations import check_library
from perfmodel.prediction.summary import unmeasured_library

DECODE = Attention(batch=8, heads=32, kv_heads=8, seq_q=1, seq_kv=4096, head_dim=128, dtype="bf16")
PRODUCT = Gemm(m=4096, n=64, k=64, dtype="fp8")


@pytest.mark.parametrize(
    "implementation",
    [
        "trtllm-1.3.0rc10/torch_flow",
        "vllm-0.24.0/CutlassFP8ScaledMMLinearKernel",
        "vllm-0.24.0/TritonFp8BlockScaledMMKernel",
        "sglang_custom_allreduce-0.5.10",
        "torch-2.1-cudnn",
        "torch==2.4",
        "torch-torch.sdpa.efficient",
        "torch-compiled",
        "vidur-vllm-2024",
        "nccl",
        "",
    ],
)
def test_what_a_table_says_of_a_row_is_what_a_prediction_is_asked_for(implementation):
    none = np.array([])
    row = MeasuredCalls("h100", PRODUCT, none, Timing.KERNEL, CacheState.COLD, implementation, none, "", none)
    assert Conditions.parse(library=implementation) == row.conditions


@pytest.mark.parametrize("name", ["torch@2.4", "torch 2.4", "torch=2.4", "torch>=2.4", "torch-v2.4", "torch, vllm"])
def test_a_release_that_would_not_be_found_is_refused_and_the_right_spelling_named(name):
    with pytest.raises(UsageError, match=r"--library: .* Write torch-2\.4 or torch==2\.4\."):
        check_library(name, "--library")


def test_a_release_may_be_written_as_package_managers_do():
    op = pm.Embedding(tokens=4096, vocab=8192, dim=256)
    pinned, older, newest = (pm.predict(op, "h200", library=name) for name in ("torch==2.4", "torch-2.4", "torch"))
    assert pinned.predicted_time_s == older.predicted_time_s > newest.predicted_time_s


@pytest.mark.parametrize("name", ["vllm-flashinfer", "sglang-triton", "cudnn-oss", "torch-nightly"])
def test_what_nobody_measured_is_not_taken_for_the_library_before_its_hyphen(name):
    named, plain = (pm.predict(DECODE, pm.hardware("h100"), library=one) for one in (name, name.partition("-")[0]))
    assert unmeasured_library([named], {"h100-sxm5-80gb": pm.hardware("h100")})
    assert (
        named.predicted_time_high_s / named.predicted_time_low_s
        > plain.predicted_time_high_s / plain.predicted_time_low_s
    )


@pytest.mark.parametrize(
    ("op", "machine", "table", "library"),
    [
        (DECODE, "b200", "trtllm-1.3.0rc10/torch_flow", "trtllm-1.3.0rc10"),
        (DECODE, "h100", "trtllm-1.3.0rc10/torch_flow", "trtllm"),
        (DECODE, "h100", "sglang-0.5.10/flash_attention", "sglang"),
        (PRODUCT, "h100", "vllm-0.24.0/CutlassFP8ScaledMMLinearKernel", "vllm"),
        (PRODUCT, "h100", "vllm/CutlassFP8ScaledMMLinearKernel", "vllm"),
        (PRODUCT, "h100", "torch/fa2", "torch"),
        (Swiglu(rows=4096, cols=4096, dtype="bf16"), "h100", "torch/fa2", "torch"),
    ],
)
def test_a_kernel_that_no_family_tells_apart_has_the_constants_of_its_library(op, machine, table, library):
    named, plain = (pm.predict(op, pm.hardware(machine), library=name) for name in (table, library))
    assert (named.predicted_time_s, named.calibration) == (plain.predicted_time_s, plain.calibration)
    assert named.predicted_time_high_s == plain.predicted_time_high_s


def test_a_kernel_that_attention_knows_stays_itself_and_one_that_it_does_not_is_said():
    chip = pm.hardware("h100")
    fa2, efficient, mistaken = (
        pm.predict(DECODE, chip, library=name) for name in ("torch/fa2", "torch/efficient", "torch/fa22")
    )
    assert fa2.predicted_time_s != efficient.predicted_time_s
    (warning,) = unmeasured_library([mistaken], {chip.name: chip})
    assert "'fa22'" in warning
    assert "fa2" in warning.replace("fa22", "")


def test_kernels_that_run_one_after_another_warn_of_those_whose_library_nobody_measured() -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    for op, library, families in (
        (pm.CrossEntropy(rows=4096, vocab=32000, dtype="bf16"), "nonsense", ["softmax"]),
        # vLLM's products have rows on an H100, softmax has those of PyTorch alone
        (pm.Attention(heads=32, seq_q=512, head_dim=128, algorithm="unfused", dtype="bf16"), "vllm", ["softmax"]),
        (pm.Muon(rows=4096, cols=4096), "nonsense", ["elementwise", "gemm_bf16"]),
    ):
        warnings = unmeasured_library([pm.predict(op, machine, library=library)], {machine.name: machine})
        assert sorted(text.split(" has rows")[0] for text in warnings) == [
            f"no table of {name} for {machine.name}" for name in families
        ]
