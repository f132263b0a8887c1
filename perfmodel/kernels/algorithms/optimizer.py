"""The step of AdamW: torch's fused, foreach and loop implementations on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, beyond, normal
from perfmodel.operators.optimizer import Optimizer

#: tensors that the weights are in
TENSORS = 16


def _operator(size: float) -> Optimizer:
    return Optimizer(parameters=size, num_tensors=TENSORS)


def _inputs(op: Optimizer, device: str, seed: int) -> Inputs:
    each = int(op.parameters) // TENSORS
    return {
        "weights": [normal((each,), device, seed + place) for place in range(TENSORS)],
        "gradients": [normal((each,), device, seed + TENSORS + place) for place in range(TENSORS)],
    }


def _stepping(inputs: Inputs, algorithm: str) -> tuple[torch.optim.AdamW, list[torch.Tensor]]:
    """Return an optimizer with weights of its own, as the steps change them."""
    with torch.inference_mode(False):
        weights = [torch.nn.Parameter(weight.clone()) for weight in inputs["weights"]]
        for weight, gradient in zip(weights, inputs["gradients"], strict=True):
            weight.grad = gradient.clone()
        optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=algorithm == "fused", foreach=algorithm == "foreach")
    return optimizer, [weight.data for weight in weights]


def _prepared(algorithm: str) -> Callable[[Inputs, Optimizer], Call]:
    def prepare(inputs: Inputs, op: Optimizer) -> Call:
        optimizer, weights = _stepping(inputs, algorithm)

        def step() -> list[torch.Tensor]:
            with torch.inference_mode(False):
                optimizer.step()
            return weights

        return step

    return prepare


def _check(op: Optimizer, inputs: Inputs, output: Any, algorithm: str) -> str:
    """Check one step of fresh weights against the formula in float64; weights that were timed have moved further."""
    optimizer, weights = _stepping(inputs, algorithm)
    with torch.inference_mode(False):
        optimizer.step()
    for weight, before, gradient in zip(weights, inputs["weights"], inputs["gradients"], strict=True):
        before, gradient = before.double(), gradient.double()
        # after one step both corrected moments are the gradient and its square
        expected = before * (1 - 1e-3 * 1e-2) - 1e-3 * gradient / (gradient.abs() + 1e-8)
        if wrong := beyond(weight, expected, 1e-6):
            return wrong
    return ""


CONTEST = Contest(
    "optimizer",
    sizes=(2.0**16, 2.0**19, 2.0**22),
    operator=_operator,
    inputs=_inputs,
    kernels={name: _prepared(name) for name in ("fused", "foreach", "loop")},
    check=_check,
    more_sizes=(2.0**25,),
)
