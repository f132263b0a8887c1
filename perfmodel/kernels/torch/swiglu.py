"""SwiGLU: two calls of torch, which has no single one, and the compiled pair."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.swiglu import Swiglu


def _primitives(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def _library(op: Swiglu, inputs: Mapping[str, torch.Tensor]) -> Call:
    gate, up = inputs["gate"], inputs["up"]
    return lambda: F.silu(gate).mul_(up)


def _composition(op: Swiglu) -> tuple[Operator, ...]:
    return op.composition_in("torch")


def _compiled(op: Swiglu, inputs: Mapping[str, torch.Tensor]) -> Call:
    function = compiled(_primitives)
    gate, up = inputs["gate"], inputs["up"]
    return lambda: function(gate, up)


_FORWARD = (
    Kernel("torch.swiglu", "swiglu", "torch", _library, supports_dtype, composition=_composition),
    compiled_kernel("swiglu", _compiled, supports_dtype),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=64..4096 cols=2048
        rows=2048 cols=2048 dtype=bf16
        rows=1024 cols=2048 backward=true
    """,
    cuda_sweep="rows=256..16384 cols=4096/11008 dtype=bf16",
    cuda_more="""
        rows=8192 cols=11008 dtype=bf16
        rows=8192 cols=11008 dtype=bf16 backward=true
    """,
)
