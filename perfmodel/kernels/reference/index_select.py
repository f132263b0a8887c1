"""y[i, :] = table[index[i], :]."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.index_select import IndexSelect


def reference(op: IndexSelect, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns: copies, without any rounding."""
    rows, columns = selection
    value = exact(inputs["table"][inputs["index"][rows]][:, columns])
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
