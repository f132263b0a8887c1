"""The largest elements of rows, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.topk import Topk


def reference(op: Topk, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some of the k largest elements of some rows, the largest first; nothing is rounded."""
    rows, columns = selection
    value = exact(inputs["x"][rows]).sort(-1, descending=True).values[:, columns]
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
