"""Pooling of films: F.max_pool3d, with indices as in training, and F.avg_pool3d."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.pool3d import pooled
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.pool3d import Pool3d


def _supports(op: Pool3d, device: Device) -> str:
    if op.kind == "mean" and op.ceil_mode:
        return "a mean over windows that leave the film counts other elements in torch"
    if op.kind == "mean" and device.kind == "cpu" and op.dtype not in ("fp32", "fp64"):
        return f"torch has no mean of films in {op.dtype} on a CPU"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Pool3d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: pooled(op, x)


_FORWARD = Kernel("F.pool3d", "pool3d", "torch", _library, _supports)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=2 c=32 d=8 h=28 w=28 t=2 r=2 s=2
        n=2 c=32 d=8 h=28 w=28 t=1 r=3 s=3 stride_h=2 stride_w=2 padding_h=1 padding_w=1 backward=true
    """,
    cuda_more="""
        n=16 c=64 d=16 h=56 w=56 t=2 r=2 s=2 dtype=bf16
        n=16 c=64 d=16 h=56 w=56 t=2 r=2 s=2 dtype=bf16 backward=true
    """,
)
