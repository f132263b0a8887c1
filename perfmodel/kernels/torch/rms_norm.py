"""Root-mean-square normalisation: F.rms_norm, a composition of simple operations, and the compiled composition."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.rms_norm import EPS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.kernels.torch._passes import column, rowwise
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.rms_norm import RmsNorm


def _library(op: RmsNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, shape = inputs["x"], inputs["gamma"], [int(op.cols)]
    return lambda: F.rms_norm(x, shape, gamma, EPS)


def _primitives(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """Square, mean, reciprocal root and two scales, each a separate pass over memory."""
    mean_square = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean_square + EPS) * gamma


def _naive(op: RmsNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma = inputs["x"], inputs["gamma"]
    return lambda: _primitives(x, gamma)


def _compiled(op: RmsNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, function = inputs["x"], inputs["gamma"], compiled(_primitives)
    return lambda: function(x, gamma)


def _composition(op: RmsNorm) -> tuple[Operator, ...]:
    """One mean; square and two scales of all elements; two operations on a column."""
    return (*rowwise(op, reductions=1, kinds=("square",), broadcast=("mul", "mul")), *column(op, "add", "rsqrt"))


def _workspace_bytes(op: RmsNorm) -> float:
    return 2.0 * tensor_bytes(op, "y")


_FORWARD = (
    Kernel("F.rms_norm", "rms_norm", "torch", _library, supports_dtype, workspace_bytes=_workspace_bytes),
    Kernel(
        "naive", "rms_norm", "torch", _naive, supports_dtype, workspace_bytes=_workspace_bytes, composition=_composition
    ),
    compiled_kernel("rms_norm", _compiled, supports_dtype, workspace_bytes=_workspace_bytes),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0]))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="rows=8192 cols=1024",
    cpu_full="""
        rows=64..16384 cols=1024
        rows=2048 cols=1024 dtype=bf16
        rows=2048 cols=1024 backward=true
    """,
    cuda_quick="rows=65536 cols=4096 dtype=bf16",
    cuda_targets="rows=32768 cols=8192 dtype=bf16",
    cuda_sweep="rows=256..16384 cols=1024/4096/8192 dtype=bf16",
    cuda_more="""
        rows=4096 cols=4096 dtype=bf16
        rows=16384 cols=4096 dtype=bf16 backward=true
    """,
)
