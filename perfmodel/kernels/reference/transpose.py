"""y[batch, cols, rows] = x[batch, rows, cols]."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.transpose import Transpose


def reference(op: Transpose, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some matrices, columns and rows: copies, without any rounding."""
    batches, columns, rows = selection
    value = exact(inputs["x"][batches][:, rows][:, :, columns]).mT
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
