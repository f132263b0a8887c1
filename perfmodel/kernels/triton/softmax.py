"""Softmax in Triton: one pass over memory if a row fits a block, otherwise an online pass and a second one."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch.softmax import NO_LOGARITHM
from perfmodel.kernels.triton._base import unavailable
from perfmodel.kernels.triton.layer_norm import DTYPES, WIDEST
from perfmodel.operators.softmax import Softmax


def _supports(op: Softmax, device: Device) -> str:
    return NO_LOGARITHM if op.log else unavailable(device, DTYPES, op.dtype)


def _prepare(op: Softmax, inputs: Mapping[str, torch.Tensor]) -> Call:
    from perfmodel.kernels.triton._softmax import softmax

    x = inputs["x"]

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        softmax(x, y, WIDEST)
        return y

    return call


KERNELS = (Kernel("triton.softmax", "softmax", "triton", _prepare, _supports),)
