"""Layer normalisation: F.layer_norm, and the same from primitive operations."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.layer_norm import EPS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._precision import unsupported_dtype
from perfmodel.operators.layer_norm import LayerNorm


def _supports(op: LayerNorm, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta, shape = inputs["x"], inputs["gamma"], inputs["beta"], [int(op.cols)]
    return lambda: F.layer_norm(x, shape, gamma, beta, EPS)


def _naive(op: LayerNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Mean, difference, variance, reciprocal root, scale and shift, each its own pass over memory."""
    x, gamma, beta = inputs["x"], inputs["gamma"], inputs["beta"]

    def call() -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + EPS) * gamma + beta

    return call


def _workspace_bytes(op: LayerNorm) -> float:
    return 3.0 * next(float(t.size_bytes) for t in op.tensors() if t.name == "y")


KERNELS = (
    Kernel("F.layer_norm", "layer_norm", "torch", _library, _supports),
    Kernel("naive", "layer_norm", "torch", _naive, _supports, workspace_bytes=_workspace_bytes),
)
