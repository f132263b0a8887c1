"""Group normalisation: F.group_norm, a composition of simple operations, and the float64 reference of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference import Reference, Selection, exact
from perfmodel.kernels.registry import Call, Kernel

EPS = 1e-5


def _supports(op: Any, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Any, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta, groups = inputs["x"], inputs["gamma"], inputs["beta"], int(op.groups)
    return lambda: F.group_norm(x, groups, gamma, beta, EPS)


def _naive(op: Any, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Mean, difference, variance, reciprocal root, scale and shift, each a separate pass over memory."""
    x, gamma, beta = inputs["x"], inputs["gamma"][:, None], inputs["beta"][:, None]
    shape = (int(op.n), int(op.groups), -1)

    def call() -> torch.Tensor:
        grouped = x.view(shape)
        centred = grouped - grouped.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + EPS)
        return scaled.view(x.shape) * gamma + beta

    return call


def _workspace_bytes(op: Any) -> float:
    return 3.0 * next(float(tensor.size_bytes) for tensor in op.tensors() if tensor.name == "y")


def reference(op: Any, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the normalised values of some images, channels and positions; the statistics are those of whole groups."""
    images, channels, positions = selection
    grouped = exact(inputs["x"][images]).view(len(images), int(op.groups), -1)
    mean = grouped.mean(-1, keepdim=True)
    deviation = torch.sqrt((grouped - mean).square().mean(-1, keepdim=True) + EPS)
    group = channels // int(op.c // op.groups)
    mean, deviation = mean[:, group], deviation[:, group]
    x = exact(inputs["x"][images][:, channels][:, :, positions])
    gamma, beta = exact(inputs["gamma"][channels])[:, None], exact(inputs["beta"][channels])[:, None]
    scaled = (x - mean) / deviation * gamma
    # Rounding the mean and rounding the deviation each change every element by about that rounding.
    rounded = scaled.abs() + beta.abs() + (mean.abs() + x.abs()) / deviation * gamma.abs()
    return Reference(scaled + beta, rounded, rounded, int(op.c // op.groups * op.spatial))


#: sizes for the presets of `perfmodel bench`, one case per line
CASES = BenchmarkCases(
    cpu_quick="n=8 c=64 spatial=1024 groups=8",
    cpu_full="n=8 c=64 spatial=256..16384 groups=8",
    cuda_quick="n=32 c=256 spatial=4096 groups=32 dtype=fp16",
    cuda_targets="n=64 c=512 spatial=4096 groups=32 dtype=fp16",
)
KERNELS = (
    Kernel("F.group_norm", "channel_norm", "torch", _library, _supports, workspace_bytes=_workspace_bytes),
    Kernel("naive", "channel_norm", "torch", _naive, _supports, workspace_bytes=_workspace_bytes),
)
