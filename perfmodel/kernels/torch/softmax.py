"""Softmax: torch.softmax, a composition of simple operations, and the compiled composition."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._passes import rowwise
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.softmax import Softmax

#: why no kernel runs it alone
NO_LOGARITHM = "log=true is a part of cross_entropy, whose kernels run it"


def _supports(op: Softmax, device: Device) -> str:
    return NO_LOGARITHM if op.log else unsupported_dtype(device.kind, op.dtype)


def _library(op: Softmax, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: torch.softmax(x, -1)


def _primitives(x: torch.Tensor) -> torch.Tensor:
    """Maximum, difference, exponential, sum and quotient, each a separate pass over memory."""
    power = torch.exp(x - x.amax(-1, keepdim=True))
    return power / power.sum(-1, keepdim=True)


def _naive(op: Softmax, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: _primitives(x)


def _compiled(op: Softmax, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, function = inputs["x"], compiled(_primitives)
    return lambda: function(x)


def _composition(op: Softmax) -> tuple[Operator, ...]:
    """A maximum and a sum; difference, exponential and quotient of all elements."""
    return rowwise(op, reductions=2, kinds=("exp",), broadcast=("sub", "div"))


def _workspace_bytes(op: Softmax) -> float:
    return 2.0 * tensor_bytes(op, "y")


_FORWARD = (
    Kernel("torch.softmax", "softmax", "torch", _library, _supports),
    Kernel("naive", "softmax", "torch", _naive, _supports, workspace_bytes=_workspace_bytes, composition=_composition),
    compiled_kernel("softmax", _compiled, _supports, workspace_bytes=_workspace_bytes),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0]))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="rows=2048 cols=4096",
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
        rows=32768 cols=2048 dtype=bf16 backward=true
    """,
)
