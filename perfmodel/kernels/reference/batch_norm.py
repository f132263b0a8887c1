"""y = (x - mean) / sqrt(var + eps) over images and pixels of a channel, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.batch_norm import BatchNorm

#: torch's default
EPS = 1e-5
#: what earlier batches are taken to have had, in evaluation
MEAN, VARIANCE = 0.25, 2.0


def reference(op: BatchNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some images, channels and pixels; the statistics are those of whole channels."""
    images, channels, pixels = selection
    x = exact(inputs["x"][:, channels])
    if op.training:
        variance, mean = torch.var_mean(x, dim=(0, 2), correction=0, keepdim=True)
    else:
        mean, variance = (torch.full((), value, dtype=x.dtype, device=x.device) for value in (MEAN, VARIANCE))
    value = ((x - mean) / torch.sqrt(variance + EPS))[images][..., pixels]
    rounded = 2 * value.abs() + 1
    return Reference(value, rounded, rounded, int(op.n * op.hw))
