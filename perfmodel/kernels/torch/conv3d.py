"""Convolution of films and volumes: F.conv3d."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.conv3d import convolved
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.conv3d import Conv3d


def _library(op: Conv3d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, weight = inputs["x"], inputs["weight"]
    return lambda: convolved(op, x, weight)


_FORWARD = Kernel("F.conv3d", "conv3d", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD, Conv3d.composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=1 c=32 d=8 h=28 w=28 k=32 t=3 r=3 s=3 padding_d=1 padding_h=1 padding_w=1
        n=1 c=32 d=4 h=14 w=14 k=32 t=3 r=3 s=3 padding_d=1 padding_h=1 padding_w=1 backward=true
    """,
    cuda_more="""
        n=4 c=128 d=16 h=56 w=56 k=128 t=3 r=3 s=3 padding_d=1 padding_h=1 padding_w=1 dtype=bf16
        n=4 c=64 d=16 h=56 w=56 k=128 t=3 r=3 s=3 stride_h=2 stride_w=2 padding_d=1 padding_h=1 padding_w=1 dtype=fp32
        n=4 c=128 d=16 h=56 w=56 k=128 t=3 r=3 s=3 padding_d=1 padding_h=1 padding_w=1 dtype=bf16 backward=true
    """,
)
