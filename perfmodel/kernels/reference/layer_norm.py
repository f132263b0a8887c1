"""y = (x - mean) / sqrt(var + eps) * gamma + beta in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.layer_norm import LayerNorm

#: torch's default
EPS = 1e-5


def reference(op: LayerNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the normalised values in some rows and columns; the statistics are those of whole rows."""
    rows, columns = selection
    x = exact(inputs["x"][rows])
    gamma, beta = exact(inputs["gamma"][columns]), exact(inputs["beta"][columns])
    mean = x.mean(-1, keepdim=True)
    deviation = torch.sqrt((x - mean).square().mean(-1, keepdim=True) + EPS)
    scaled = (x[:, columns] - mean) / deviation * gamma
    # Rounding the mean and rounding the deviation each change every element by about that rounding.
    rounded = scaled.abs() + beta.abs() + (mean.abs() / deviation + x[:, columns].abs() / deviation) * gamma.abs()
    return Reference(scaled + beta, rounded, rounded, int(op.cols))
