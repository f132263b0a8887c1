"""y[i] = x[index[i]]."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.gather import Gather


def reference(op: Gather, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some elements: copies, without any rounding."""
    (elements,) = selection
    value = exact(inputs["x"][inputs["index"][elements]])
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
