"""Layer normalisation in Triton, in one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.layer_norm import EPS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.triton._base import unavailable
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.rms_norm import RmsNorm

DTYPES = ("fp32", "bf16", "fp16")
#: columns of the widest row that one block can keep in registers: 32 in each of 1024 threads
WIDEST = 32768


def supports(op: LayerNorm | RmsNorm, device: Device) -> str:
    """Return why the kernel cannot normalise these rows on a device, or an empty string."""
    if op.cols > WIDEST:
        return f"a row of {op.cols} elements does not fit the registers of one block; at most {WIDEST} do"
    return unavailable(device, DTYPES, op.dtype)


def _prepare(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    from perfmodel.kernels.triton._layer_norm import normalised

    x, gamma, beta = inputs["x"], inputs["gamma"], inputs["beta"]

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        normalised(x, gamma, beta, EPS, y)
        return y

    return call


KERNELS = (Kernel("triton.layer_norm", "layer_norm", "triton", _prepare, supports),)
