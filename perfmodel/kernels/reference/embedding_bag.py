"""y[b, :] = sum over i of table[index[b, i], :], in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.embedding_bag import EmbeddingBag


def reference(op: EmbeddingBag, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the sums of some bags and columns."""
    bags, columns = selection
    rows = exact(inputs["table"][inputs["index"][bags]][..., columns])
    value = rows.sum(1)
    return Reference(value, value.abs() + rows.square().sum(1).sqrt(), rows.abs().sum(1), int(op.pooling))
