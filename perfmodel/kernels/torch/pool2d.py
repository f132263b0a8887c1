"""Pooling: F.max_pool2d, with indices as in training, and F.avg_pool2d."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.pool2d import Pool2d


def _supports(op: Pool2d, device: Device) -> str:
    if op.kind == "mean" and op.ceil_mode:
        return "a mean over windows that leave the image counts other elements in torch"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Pool2d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, window = inputs["x"], (int(op.k), int(op.stride), int(op.padding))
    if op.kind == "mean":
        return lambda: F.avg_pool2d(x, *window)
    if op.indices:
        return lambda: F.max_pool2d(x, *window, ceil_mode=op.ceil_mode, return_indices=True)[0]
    return lambda: F.max_pool2d(x, *window, ceil_mode=op.ceil_mode)


KERNELS = (Kernel("F.pool2d", "pool2d", "torch", _library, _supports),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=8 c=64 h=112 w=112 k=3 stride=2 padding=1
        n=8 c=64 h=112 w=112 k=2 kind=mean
    """,
    cuda_more="""
        n=256 c=64 h=112 w=112 k=3 stride=2 padding=1 dtype=bf16
        n=256 c=64 h=112 w=112 k=2 kind=mean dtype=bf16
    """,
)
