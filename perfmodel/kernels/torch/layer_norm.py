"""Layer normalisation: F.layer_norm, a composition of simple operations, and the compiled composition."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.layer_norm import EPS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.kernels.torch._passes import column, rowwise
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.layer_norm import LayerNorm


def _library(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta, shape = inputs["x"], inputs["gamma"], inputs["beta"], [int(op.cols)]
    return lambda: F.layer_norm(x, shape, gamma, beta, EPS)


def _primitives(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Mean, difference, variance, reciprocal root, scale and shift, each a separate pass over memory."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPS) * gamma + beta


def _naive(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta = inputs["x"], inputs["gamma"], inputs["beta"]
    return lambda: _primitives(x, gamma, beta)


def _compiled(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta, function = inputs["x"], inputs["gamma"], inputs["beta"], compiled(_primitives)
    return lambda: function(x, gamma, beta)


def _composition(op: LayerNorm) -> tuple[Operator, ...]:
    """Two means; difference, square, two scales and shift of all elements; two operations on a column."""
    broadcast = ("sub", "mul", "mul", "add")
    return (*rowwise(op, reductions=2, kinds=("square",), broadcast=broadcast), *column(op, "add", "rsqrt"))


def _workspace_bytes(op: LayerNorm) -> float:
    return 3.0 * tensor_bytes(op, "y")


_FORWARD = (
    Kernel("F.layer_norm", "layer_norm", "torch", _library, supports_dtype),
    Kernel(
        "naive",
        "layer_norm",
        "torch",
        _naive,
        supports_dtype,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
    ),
    compiled_kernel("layer_norm", _compiled, supports_dtype, workspace_bytes=_workspace_bytes),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0]))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="""
        rows=256 cols=1024
        rows=8192 cols=4096
    """,
    cpu_full="""
        rows=64..16384 cols=1024
        rows=8192 cols=4096
        rows=2048 cols=1024 dtype=bf16
        rows=2048 cols=1024 dtype=fp64
        rows=2048 cols=1024 backward=true
    """,
    cuda_quick="""
        rows=4096 cols=4096 dtype=bf16
        rows=65536 cols=4096 dtype=bf16
    """,
    cuda_targets="rows=32768 cols=8192 dtype=bf16",
    cuda_sweep="rows=256..16384 cols=1024/4096/8192 dtype=bf16",
    cuda_more="""
        rows=4096 cols=4096 dtype=fp32
        rows=16384 cols=4096 dtype=bf16 backward=true
    """,
)
