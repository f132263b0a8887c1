"""Products of two dtypes and mixtures of experts on this machine's CPU, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfmodel.kernels.device import open_device
from perfmodel.kernels.inputs import make_inputs
from perfmodel.kernels.precision import rounding
from perfmodel.kernels.registry import find_kernels
from perfmodel.kernels.scaled import widened
from perfmodel.kernels.verify import verify
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.moe import Moe

CPU = open_device("cpu")
SIZES: dict[str, Any] = {"m": 5, "n": 64, "k": 256}
MIXED = [
    (Gemm(**SIZES, dtype="int4_wo"), {"torch._weight_int4pack_mm", "widened"}),
    (Gemm(**SIZES, dtype="bf16", weight_dtype="int4", scale="group:32"), {"torch._weight_int4pack_mm", "widened"}),
    (Gemm(**SIZES, dtype="int8_wo"), {"torch._weight_int8pack_mm", "widened"}),
    (Gemm(**SIZES, dtype="bf16", weight_dtype="int8", scale="column"), {"torch._weight_int8pack_mm", "widened"}),
    (Gemm(**SIZES, dtype="sq"), {"torch._int_mm", "widened"}),
    (Gemm(m=5, n=200, k=200, dtype="fp8_block"), {"widened"}),
    (Gemm(**SIZES, dtype="fp32", weight_dtype="int8", scale="group:64", batch=2), {"widened"}),
]  # fmt: skip


def _runnable(op: Operator) -> dict[str, Any]:
    return {k.name: k for k in find_kernels(op.op) if k.applies(op) and not k.supports(op, CPU)}


@pytest.mark.parametrize(("op", "names"), MIXED, ids=lambda value: getattr(value, "number_format", ""))
def test_kernels_of_two_dtypes_are_right(op: Gemm, names: set[str]) -> None:
    found = _runnable(op)
    assert set(found) == names
    for kernel in found.values():
        inputs = make_inputs(op, "cpu", seed=0)
        with rounding(op.dtype):
            verdict = verify(op, kernel.prepare(op, inputs), inputs)
        assert verdict.correct, (kernel, verdict)


def test_what_torch_has_no_kernel_for_says_so() -> None:
    op = Gemm(**SIZES, dtype="int8")
    assert _runnable(op) == {}
    reasons = [kernel.supports(op, CPU) for kernel in find_kernels("gemm") if kernel.applies(op)]
    assert all(reasons)


def test_scales_are_those_of_their_group_and_block() -> None:
    op = Gemm(m=2, n=4, k=4, dtype="fp8", weight_dtype="fp8", scale="block:2x2")
    inputs = {
        "a": torch.ones(1, 2, 4), "b": torch.ones(1, 4, 4),
        "a_scale": torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), "b_scale": torch.tensor([[[10.0, 20.0], [30.0, 40.0]]]),
    }  # fmt: skip
    a, b = widened(op, inputs, torch.float64)
    assert a[0].tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]
    # b_scale[n / 2][k / 2], and B is [k, n]
    assert b[0].tolist() == [[10, 10, 30, 30]] * 2 + [[20, 20, 40, 40]] * 2


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("changed", [{}, {"router": False, "routing": "balanced"}, {"gated": False}, {"tokens": 1}])
def test_mixtures_of_experts_are_right(dtype: str, changed: dict[str, Any]) -> None:
    op = Moe(**{"tokens": 24, "hidden": 64, "inter": 32, "experts": 8, "top_k": 2, "dtype": dtype, **changed})
    found = _runnable(op)
    assert set(found) == {"experts one by one", "torch._grouped_mm", "dense"}
    for kernel in found.values():
        inputs = make_inputs(op, "cpu", seed=0)
        with rounding(op.dtype):
            verdict = verify(op, kernel.prepare(op, inputs), inputs)
        assert verdict.correct, (kernel, verdict)


def test_a_wrong_expert_is_found() -> None:
    op = Moe(tokens=24, hidden=64, inter=32, experts=8, top_k=2)
    inputs = make_inputs(op, "cpu", seed=0)
    kernel = find_kernels("moe")[0]

    def wrong() -> torch.Tensor:
        mixed = {**inputs, "w_up": inputs["w_up"].roll(1, dims=0)}
        return kernel.prepare(op, mixed)()

    with rounding(op.dtype):
        assert not verify(op, wrong, inputs).correct
