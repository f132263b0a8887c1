"""Dequantisation from fp8: conversion and product with the scales."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.quantize import groups
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.operators.dequantize import Dequantize


def _supports(op: Dequantize, device: Device) -> str:
    if op.in_dtype != "fp8":
        return f"torch has no tensors in {op.in_dtype} that can be checked"
    return unsupported_dtype(device.kind, op.dtype)


def _primitives(q: torch.Tensor, scales: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    work = torch.promote_types(dtype, torch.float32)
    return (q.to(work).reshape(shape) * scales.reshape(*shape[:-1], 1)).reshape(q.shape).to(dtype)


def _library(op: Dequantize, inputs: Mapping[str, torch.Tensor]) -> Call:
    q, scales, shape, dtype = inputs["q"], inputs["scales"], groups(op), TORCH_DTYPES[op.dtype]
    return lambda: _primitives(q, scales, shape, dtype)


def _workspace_bytes(op: Dequantize) -> float:
    return 8.0 * float(op.rows * op.cols)


def _compiled(op: Dequantize, inputs: Mapping[str, torch.Tensor]) -> Call:
    q, scales, shape, dtype = inputs["q"], inputs["scales"], groups(op), TORCH_DTYPES[op.dtype]
    function = compiled(_primitives)
    return lambda: function(q, scales, shape, dtype)


KERNELS = (
    Kernel(
        "torch.dequantize",
        "dequantize",
        "torch",
        _library,
        _supports,
        workspace_bytes=_workspace_bytes,
    ),
    compiled_kernel("dequantize", _compiled, _supports, workspace_bytes=_workspace_bytes),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=2048 cols=2048
        rows=2048 cols=2048 scale=group:128
    """,
    cuda_more="""
        rows=16384 cols=4096 scale=group:128
        rows=16384 cols=4096
    """,
)
