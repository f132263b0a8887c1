"""GEGLU: two calls of torch, which has no single one, and the compiled pair."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.geglu import FORMS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.geglu import Geglu


def _primitives(gate: torch.Tensor, up: torch.Tensor, form: str) -> torch.Tensor:
    return F.gelu(gate, approximate=form) * up


def _library(op: Geglu, inputs: Mapping[str, torch.Tensor]) -> Call:
    gate, up, form = inputs["gate"], inputs["up"], FORMS[op.gelu]
    return lambda: F.gelu(gate, approximate=form).mul_(up)


def _composition(op: Geglu) -> tuple[Operator, ...]:
    return op.composition_in("torch")


def _compiled(op: Geglu, inputs: Mapping[str, torch.Tensor]) -> Call:
    function = compiled(_primitives)
    gate, up, form = inputs["gate"], inputs["up"], FORMS[op.gelu]
    return lambda: function(gate, up, form)


_FORWARD = (
    Kernel("torch.geglu", "geglu", "torch", _library, supports_dtype, composition=_composition),
    compiled_kernel("geglu", _compiled, supports_dtype),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=2048 cols=2048
        rows=2048 cols=2048 gelu=tanh
        rows=1024 cols=2048 backward=true
    """,
    cuda_more="""
        rows=8192 cols=11008 dtype=bf16
        rows=8192 cols=11008 gelu=tanh dtype=bf16
        rows=8192 cols=11008 dtype=bf16 backward=true
    """,
)
