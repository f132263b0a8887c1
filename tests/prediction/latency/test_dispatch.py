"""What a single call between two events takes depends on who calls."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import Timing
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.dispatch import COMPILED, OF_ITS_AUTHOR, PYTHON, TORCH, dispatch_of
from perfmodel.prediction.result import Prediction

SHORT = pm.Gemm(m=64, n=64, k=64, dtype="bf16")


def between_events(op: pm.Operator, machine: str, library: str, cache: str = "cold") -> Prediction:
    return pm.predict(op, machine, library=library, timing="event", cache=cache)


def of(library: str, version: str = "") -> Conditions:
    return Conditions(timing=Timing.EVENT, library=library, version=version)


def test_a_program_dispatches_faster_than_a_framework_and_this_than_python() -> None:
    program, framework, python = (
        float(between_events(SHORT, "h100", library).predicted_time_s) for library in ("cublas", "torch", "triton")
    )
    assert program < framework < python


def test_a_long_kernel_takes_what_it_takes_whoever_calls() -> None:
    op = pm.Elementwise(numel=10**9)
    kernel = pm.predict(op, "h100", library="torch").predicted_time_s
    assert between_events(op, "h100", "torch").predicted_time_s == pytest.approx(kernel, rel=0.01)


@pytest.mark.parametrize(
    ("library", "version", "found"),
    [
        ("torch", "2.1", None), ("torch", "1.13", None), ("vllm", "0.24.0", None), ("vllm_triton", "0.11", PYTHON),
        ("sglang", "", TORCH), ("torch", "2.11", TORCH), ("torch/fa2", "", TORCH), ("", "", TORCH),
        ("flashinfer", "0.2", PYTHON), ("cublaslt", "13.3", COMPILED), ("own", "", OF_ITS_AUTHOR),
    ],
)  # fmt: skip
def test_tables_tell_the_dispatch_of_their_releases_and_engines(library: str, version: str, found: object) -> None:
    assert dispatch_of(of(library, version)) == found


def test_engines_prepare_the_blocks_of_fp8_and_call_other_kernels_as_operators_of_pytorch() -> None:
    """An RMSNorm of 16 rows by SGLang takes 10 us between events on an H200 (sgl-project/sglang pull request 24710)."""
    norm = pm.predict(pm.RmsNorm(rows=16, cols=512, dtype="bf16"), "h200", library="sglang", timing="event")
    assert norm.predicted_time_low_s < 9.7e-6 < norm.predicted_time_high_s
    assert dispatch_of(of("sglang", ""), "gemm_fp8_block") is None
    product = pm.Gemm(m=16, n=512, k=7168, dtype="fp8_block")
    assert between_events(product, "h100", "vllm_deepgemm").predicted_time_s > 3.0 * norm.predicted_time_s


def test_the_dispatch_of_the_tables_is_that_of_their_release() -> None:
    v100 = "v100-pcie-32gb"  # measured with torch 2.1, where a short call takes 33 us
    op = pm.Elementwise(numel=4096)
    assert between_events(op, v100, "torch-2.1").predicted_time_s == pytest.approx(33e-6, rel=0.02)
    assert between_events(op, v100, "torch-2.11").predicted_time_s == pytest.approx(TORCH.host_s, rel=0.02)


def test_a_kernel_of_its_author_may_be_called_by_a_program_and_by_python() -> None:
    op = pm.RmsNorm(rows=64, cols=1024, dtype="bf16")
    own, program, python = (between_events(op, "h100", library) for library in ("own", "cublas", "triton"))
    assert own.predicted_time_low_s < program.predicted_time_s < own.predicted_time_high_s
    assert own.predicted_time_low_s < python.predicted_time_s
    # wider than for Python's call alone, whose kernel is as unsure
    assert own.predicted_time_high_s / own.predicted_time_low_s > 1.2 * (
        python.predicted_time_high_s / python.predicted_time_low_s
    )


@pytest.mark.parametrize(
    ("op", "machine", "library", "measured_s"),
    [
        # github.com/aidxhxr/5090-blackwell-kernels: a program between events, the same buffers
        (pm.Softmax(rows=4096, cols=128, dtype="bf16"), "rtx-5090", "own", 3.2e-6),
        (pm.RmsNorm(rows=4096, cols=1024, dtype="bf16"), "rtx-5090", "own", 7.4e-6),
        (pm.Gemm(m=16, n=4096, k=4096, dtype="fp8"), "rtx-5090", "cublaslt", 16.5e-6),
        # github.com/tungsheng/cuda-kernel-lab: torch 2.9.1, a wait after each call
        (pm.Softmax(rows=4096, cols=1024, dtype="fp16"), "h200-sxm-141gb", "torch", 15.8e-6),
        (pm.Elementwise(numel=2**24, kind="add", num_inputs=2, dtype="fp16"), "h200-sxm-141gb", "torch", 31e-6),
        (pm.Softmax(rows=4096, cols=1024, dtype="fp16"), "h200-sxm-141gb", "triton", 22.4e-6),
    ],
)
def test_published_times_between_events_lie_in_the_interval(
    op: pm.Operator, machine: str, library: str, measured_s: float
) -> None:
    found = between_events(op, machine, library, "warm" if measured_s < 30e-6 else "cold")
    assert found.predicted_time_low_s < measured_s < found.predicted_time_high_s


def test_kernels_one_after_another_are_dispatched_one_by_one_by_whoever_calls() -> None:
    op = pm.Swiglu(rows=8, cols=1024, dtype="bf16")  # PyTorch has no kernel of its own for it
    kernels = sum(part.count for part in op.composition_in("torch"))
    old, new = (between_events(op, "v100-pcie-32gb", library) for library in ("torch-2.1", "torch-2.4"))
    assert new.predicted_time_s == pytest.approx(kernels * TORCH.host_s, rel=0.02)
    assert new.predicted_time_s < 0.7 * float(old.predicted_time_s)
    assert new.predicted_time_high_s / new.predicted_time_low_s > 1.5 * (
        old.predicted_time_high_s / old.predicted_time_low_s
    )
