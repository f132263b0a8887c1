"""Kernels run in inference mode; what they differentiate or step is made in it too, and checked in it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.inputs import copied_inputs, make_inputs  # noqa: E402
from perfmodel.kernels.precision import rounding  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402

OPERATORS = [
    pm.Optimizer(parameters=4096, num_tensors=3),
    pm.Optimizer(parameters=4096, num_tensors=3, algorithm="foreach"),
    pm.Attention(batch=2, heads=4, seq_q=32, head_dim=16, causal=True, dtype="bf16", backward=True),
    pm.Softmax(rows=64, cols=64, dtype="bf16", backward=True),
    pm.Elementwise(numel=1000, kind="gelu", dtype="fp64", backward=True),
    pm.Pool2d(n=2, c=3, h=8, w=8, k=2, kind="mean", dtype="fp64", backward=True),
    # a CPU computes it in float32, which rounds less
    pm.Conv2d(n=2, c=8, h=8, w=8, k=8, r=3, s=3, padding=1, dtype="tf32", backward=True),
]


@pytest.mark.parametrize("made_inside", [True, False], ids=["made inside", "made before"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.op}-{op.dtype}")
def test_kernels_are_right_wherever_their_inputs_are_made(op: Any, made_inside: bool) -> None:
    kernel = next(k for k in registry.find_kernels(op.op) if k.backend == "torch" and k.computes(op))
    before = None if made_inside else make_inputs(op, "cpu", seed=1)
    with rounding(op.dtype):
        inputs = before or make_inputs(op, "cpu", seed=1)
        for tensors in (inputs, copied_inputs(inputs)):
            verdict = verify(op, kernel.prepare(op, tensors), tensors, seed=1, in_place=kernel.in_place)
            assert verdict.correct, verdict


def test_a_users_inference_tensors_are_differentiated_as_they_are_now() -> None:
    op = pm.Softmax(rows=16, cols=16, backward=True)
    kernel = next(k for k in registry.find_kernels(op.op) if k.backend == "torch" and k.computes(op))
    with rounding(op.dtype):
        inputs = {name: x.clone() for name, x in make_inputs(op, "cpu", seed=1).items()}
        assert all(x.is_inference() for x in inputs.values())
        verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=1)
    assert verdict.correct, verdict
