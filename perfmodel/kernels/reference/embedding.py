"""y[tokens, dim] = table[index[tokens]]."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.embedding import Embedding


def reference(op: Embedding, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some tokens and columns: copies, without any rounding."""
    tokens, columns = selection
    value = exact(inputs["table"][inputs["index"][tokens]][:, columns])
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)
