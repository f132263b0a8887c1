"""sums[index[i], :] += x[i, :] into zeros, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.scatter_add import ScatterAdd


def reference(op: ScatterAdd, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns of the sums; as many terms are added as the most frequent row has."""
    rows, columns = selection
    x, index = exact(inputs["x"][:, columns]), inputs["index"]
    shape = (int(op.table), columns.numel())
    value, summed, squares = (
        torch.zeros(shape, dtype=x.dtype, device=x.device).index_add_(0, index, terms)[rows]
        for terms in (x, x.abs(), x.square())
    )
    length = int(torch.bincount(index).max())
    # sums into memory are rounded after each term
    rounded = value.abs() + length**0.5 * squares.sqrt()
    return Reference(value, rounded, summed, length)
