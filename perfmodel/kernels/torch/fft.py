"""Fourier transforms: torch.fft."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.fft import transformed
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.fft import Fft


def _supports(op: Fft, device: Device) -> str:
    if op.dtype not in ("fp32", "fp64"):
        return f"torch.fft has no transforms in {op.dtype} of every size"
    if op.axes > 2:
        return "the kernel transforms one axis or two"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Fft, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: transformed(op, x)


KERNELS = (Kernel("torch.fft", "fft", "torch", _library, _supports),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        batch=64 n=4096
        batch=16 n=256 others=256 kind=real
        batch=16 n=256 others=256 kind=inverse_real
    """,
    cuda_more="""
        batch=4096 n=4096
        batch=256 n=512 others=512 kind=real
    """,
)
