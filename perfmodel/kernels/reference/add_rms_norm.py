"""y = s / sqrt(mean(s^2) + eps) * gamma with s = x + residual, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.kernels.reference.rms_norm import EPS
from perfmodel.operators.add_rms_norm import AddRmsNorm


def reference(op: AddRmsNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the normalised values in some rows and columns; kernels round the sum before they normalise it."""
    rows, columns = selection
    total = exact(inputs["x"][rows]) + exact(inputs["residual"][rows])
    root = torch.sqrt(total.square().mean(-1, keepdim=True) + EPS)
    value = total[:, columns] / root * exact(inputs["gamma"][columns])
    rounded = 4 * value.abs()
    return Reference(value, rounded, rounded, int(op.cols))
