"""y = (x - mean) / sqrt(var + eps) * gamma + beta over a group of channels of an image, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.group_norm import GroupNorm

#: torch's default
EPS = 1e-5


def reference(op: GroupNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some images, channels and pixels; the statistics are those of whole groups."""
    images, channels, pixels = selection
    groups = exact(inputs["x"][images]).reshape(images.numel(), int(op.groups), -1)
    variance, mean = torch.var_mean(groups, dim=-1, correction=0, keepdim=True)
    normal = ((groups - mean) / torch.sqrt(variance + EPS)).reshape(images.numel(), int(op.c), int(op.hw))
    gamma, beta = (exact(inputs[name][channels])[:, None] for name in ("gamma", "beta"))
    scaled = normal[:, channels][..., pixels] * gamma
    rounded = 2 * scaled.abs() + gamma.abs() + beta.abs()
    return Reference(scaled + beta, rounded, rounded, int(op.c / op.groups * op.hw))
