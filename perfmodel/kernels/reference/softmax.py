"""y = exp(x - max x) / sum exp(x - max x) over the columns, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.softmax import Softmax


def reference(op: Softmax, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the softmax in some rows and columns.

    Rounding x - max x changes the exponential by the same relative amount, so that the error of the result y is
    y |x - max x| relative roundings.
    """
    rows, columns = selection
    x = exact(inputs["x"][rows])
    shifted = x - x.amax(-1, keepdim=True)
    value = torch.softmax(x, -1)[:, columns]
    rounded = value * (2 + shifted[:, columns].abs())
    return Reference(value, rounded, rounded, int(op.cols))
