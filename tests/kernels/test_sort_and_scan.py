"""Sorts, selections and prefix sums of torch against float64; a wrong result is found."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

import perfmodel as pm
from perfmodel.kernels import registry
from perfmodel.kernels.check import check
from perfmodel.kernels.device import open_device
from perfmodel.kernels.inputs import make_inputs

CPU = open_device("cpu")
OPERATORS = [
    op
    for dtype in ("fp64", "fp32", "bf16")
    for op in (
        pm.Sort(rows=3, cols=100, dtype=dtype),
        pm.Topk(rows=3, cols=100, k=7, dtype=dtype),
        pm.Topk(rows=1, cols=9, k=9, dtype=dtype),
        pm.Scan(rows=3, cols=100, dtype=dtype),
    )
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.op} {op.dtype}")
def test_every_kernel_agrees_with_float64(op) -> None:
    inputs = make_inputs(op, "cpu", seed=1)
    kernels = registry.find_kernels(op.op)
    assert kernels
    for kernel in kernels:
        assert not kernel.supports(op, CPU)
        with CPU.precision(op.dtype):
            output = kernel.prepare(op, inputs)()
        verdict = check(op, inputs, output)
        assert verdict.correct, verdict
        wrong = output.clone()
        wrong[0, 0] += 1.0
        assert not check(op, inputs, wrong).correct


def test_torch_sorts_no_values_of_others() -> None:
    (kernel,) = registry.find_kernels("sort")
    assert "indices of its own" in kernel.supports(pm.Sort(cols=8, value_dtype="int64"), CPU)
    assert kernel.own_operator is not None
    assert kernel.own_operator(pm.Sort(cols=8)).value_dtype == "int64"
    assert torch.is_tensor(kernel.prepare(pm.Sort(cols=2), {"keys": torch.zeros(1, 2)})())
