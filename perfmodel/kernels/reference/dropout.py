"""y = x / (1 - p) in float64, where p is so small that nothing is dropped."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.dropout import Dropout

#: so small that nothing is dropped and the scale nearly 1: the same kernel, with a result that can be checked
DROPPED = 2.0**-40


def reference(op: Dropout, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some elements."""
    (elements,) = selection
    value = exact(inputs["x"][elements]) / (1.0 - DROPPED)
    return Reference(value, value.abs(), value.abs(), 1)
