"""Pooling: F.max_pool2d, with indices as in training, and F.avg_pool2d."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.pool2d import pooled
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.pool2d import Pool2d


def _supports(op: Pool2d, device: Device) -> str:
    if op.kind == "mean" and op.ceil_mode:
        return "a mean over windows that leave the image counts other elements in torch"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Pool2d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: pooled(op, x)


_FORWARD = Kernel("F.pool2d", "pool2d", "torch", _library, _supports)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=8 c=64 h=112 w=112 k=3 stride=2 padding=1
        n=8 c=64 h=112 w=112 k=2 kind=mean
        n=8 c=64 h=56 w=56 k=3 stride=2 padding=1 backward=true
        n=8 c=64 h=56 w=56 k=2 kind=mean backward=true
    """,
    cuda_more="""
        n=256 c=64 h=112 w=112 k=3 stride=2 padding=1 dtype=bf16
        n=256 c=64 h=112 w=112 k=2 kind=mean dtype=bf16
        n=256 c=64 h=112 w=112 k=3 stride=2 padding=1 dtype=bf16 backward=true
    """,
)
