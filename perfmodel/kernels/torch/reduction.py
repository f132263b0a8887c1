"""Sums of rows: torch.sum. Calibration also uses it to read memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.reduction import Reduction


def _supports(op: Reduction, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Reduction, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: torch.sum(x, -1)


KERNELS = (Kernel("torch.sum", "reduction", "torch", _library, _supports),)
