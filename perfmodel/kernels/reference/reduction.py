"""y[rows] = sum over the columns, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.reduction import Reduction


def reference(op: Reduction, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the sums of some rows."""
    (rows,) = selection
    x = exact(inputs["x"][rows])
    value = x.sum(-1)
    return Reference(value, value.abs() + x.square().sum(-1).sqrt(), x.abs().sum(-1), int(op.cols))
