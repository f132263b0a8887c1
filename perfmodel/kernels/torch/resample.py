"""Interpolation and grids of samples: F.interpolate and F.grid_sample."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.resample import resampled
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.resample import Resample


def _supports(op: Resample, device: Device) -> str:
    if op.kind == "cubic" and op.axes != 2:
        return "torch has cubic interpolation of two axes"
    if op.grid and op.axes == 1:
        return "torch has no grid of samples of signals"
    if (op.axes < 3 and op.d * op.o > 1) or (op.axes < 2 and op.h * op.p > 1):
        return "torch interpolates along every axis that is longer than one"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Resample, inputs: Mapping[str, torch.Tensor]) -> Call:
    return lambda: resampled(op, inputs["x"], inputs.get("grid"))


_FORWARD = Kernel("F.interpolate", "resample", "torch", _library, _supports)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=4 c=64 h=28 w=28 p=56 q=56
        n=4 c=64 h=28 w=28 p=28 q=28 grid=true
        n=4 c=64 h=28 w=28 p=56 q=56 backward=true
    """,
    cuda_more="""
        n=16 c=256 h=56 w=56 p=112 q=112 dtype=bf16
        n=16 c=256 h=56 w=56 p=112 q=112 grid=true dtype=bf16
        n=16 c=256 h=56 w=56 p=112 q=112 dtype=bf16 backward=true
    """,
)
