"""RMSNorm of a sum: the sum and F.rms_norm, and both compiled into one pass."""

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
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.add_rms_norm import AddRmsNorm
from perfmodel.operators.rms_norm import RmsNorm


def _primitives(x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return F.rms_norm(total, gamma.shape, gamma, EPS), total


def _library(op: AddRmsNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, residual, gamma = inputs["x"], inputs["residual"], inputs["gamma"]
    return lambda: _primitives(x, residual, gamma)[0]


def _composition(op: AddRmsNorm) -> tuple[Operator, ...]:
    return op.composition_in("torch")


def _workspace_bytes(op: AddRmsNorm) -> float:
    return 2.0 * tensor_bytes(op, "y")


def _compiled(op: AddRmsNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    function = compiled(_primitives)
    x, residual, gamma = inputs["x"], inputs["residual"], inputs["gamma"]
    return lambda: function(x, residual, gamma)[0]


def _gradient_passes(op: AddRmsNorm) -> tuple[Operator, ...]:
    """The gradient of the norm; that of the sum is passed on."""
    return (RmsNorm(rows=op.rows, cols=op.cols, dtype=op.dtype, backward=True),)


_FORWARD = (
    Kernel(
        "torch.add_rms_norm",
        "add_rms_norm",
        "torch",
        _library,
        supports_dtype,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
    ),
    compiled_kernel("add_rms_norm", _compiled, supports_dtype, workspace_bytes=_workspace_bytes),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _gradient_passes))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=64..4096 cols=1024
        rows=2048 cols=1024 dtype=bf16
        rows=2048 cols=1024 backward=true
    """,
    cuda_more="""
        rows=65536 cols=4096 dtype=bf16
        rows=16384 cols=4096 dtype=bf16 backward=true
    """,
)
