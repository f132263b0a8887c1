"""Quantisation to fp8: the largest magnitude of a row, a group or the tensor, division, conversion."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.quantize import LARGEST, groups
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.operators.quantize import Quantize


def _supports(op: Quantize, device: Device) -> str:
    if op.dtype != "fp8":
        return f"torch has no tensors in {op.dtype} that can be checked"
    return unsupported_dtype(device.kind, op.in_dtype)


def _primitives(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    grouped = x.reshape(shape)
    scale = grouped.abs().amax(-1, keepdim=True).float() / LARGEST
    return (grouped.float() / scale).reshape(x.shape).to(torch.float8_e4m3fn)


def _library(op: Quantize, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, shape = inputs["x"], groups(op)
    return lambda: _primitives(x, shape)


def _workspace_bytes(op: Quantize) -> float:
    return 8.0 * float(op.rows * op.cols)


def _compiled(op: Quantize, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, shape, function = inputs["x"], groups(op), compiled(_primitives)
    return lambda: function(x, shape)


KERNELS = (
    Kernel(
        "torch.quantize",
        "quantize",
        "torch",
        _library,
        _supports,
        workspace_bytes=_workspace_bytes,
    ),
    compiled_kernel("quantize", _compiled, _supports, workspace_bytes=_workspace_bytes),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=2048 cols=2048
        rows=2048 cols=2048 scale=group:128
        rows=2048 cols=2048 scale=tensor
    """,
    cuda_more="""
        rows=16384 cols=4096 scale=group:128
        rows=16384 cols=4096
        rows=16384 cols=4096 scale=tensor
    """,
)
