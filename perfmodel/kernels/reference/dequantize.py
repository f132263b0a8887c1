"""x = q scale in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.kernels.reference.quantize import groups
from perfmodel.operators.dequantize import Dequantize


def reference(op: Dequantize, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns."""
    rows, columns = selection
    q, scales = exact(inputs["q"].to(torch.float32)), exact(inputs["scales"])
    grouped = q.reshape(groups(op))
    value = (grouped * scales.reshape(*grouped.shape[:-1], 1)).reshape(q.shape)[rows][:, columns]
    return Reference(value, value.abs(), value.abs(), 1)
