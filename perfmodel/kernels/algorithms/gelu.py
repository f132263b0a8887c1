"""GELU by the error function and by tanh, as torch has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, beyond, normal
from perfmodel.operators.elementwise import Elementwise


def _operator(size: float) -> Elementwise:
    return Elementwise(numel=size, kind="gelu")


def _inputs(op: Elementwise, device: str, seed: int) -> Inputs:
    return {"x": normal((int(op.numel),), device, seed)}


def _prepared(form: str) -> Callable[[Inputs, Elementwise], Call]:
    def prepare(inputs: Inputs, op: Elementwise) -> Call:
        x = inputs["x"]
        return lambda: functional.gelu(x, approximate=form)

    return prepare


def _check(op: Elementwise, inputs: Inputs, output: Any, algorithm: str) -> str:
    """Check each form against its own formula in float64."""
    x = inputs["x"].double()
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    factor = torch.erf(x / math.sqrt(2.0)) if algorithm == "erf" else torch.tanh(inner)
    return beyond(output, 0.5 * x * (1.0 + factor), 1e-5)


CONTEST = Contest(
    "gelu",
    sizes=(2.0**12, 2.0**16, 2.0**20),
    operator=_operator,
    inputs=_inputs,
    kernels={"erf": _prepared("none"), "tanh": _prepared("tanh")},
    check=_check,
    more_sizes=(2.0**24,),
)
