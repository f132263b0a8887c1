"""The sorted keys of rows, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.sort import Sort


def reference(op: Sort, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the keys at some places of some sorted rows; nothing is rounded, so that they have to be equal."""
    rows, columns = selection
    value = exact(inputs["keys"][rows]).sort(-1).values[:, columns]
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
