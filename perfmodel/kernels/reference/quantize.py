"""q = x / scale, not rounded, with the scale from the largest magnitude; in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.quantize import Quantize

#: largest number of e4m3
LARGEST = 448.0


def groups(op: Any) -> tuple[int, ...]:
    """Return the shape in which the last axis is what shares a scale."""
    rows, cols = int(op.rows), int(op.cols)
    if op.scale == "tensor":
        return (1, rows * cols)
    if op.scale == "row":
        return (rows, cols)
    group = int(op.scale.partition(":")[2])
    return (rows, cols // group, group)


def reference(op: Quantize, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns; rounding to 8 bits is in the tolerance."""
    rows, columns = selection
    x = exact(inputs["x"])
    grouped = x.reshape(groups(op))
    scale = grouped.abs().amax(-1, keepdim=True) / LARGEST
    value = (grouped / scale).reshape(x.shape)[rows][:, columns]
    return Reference(value, value.abs(), value.abs(), 1)
