"""O = softmax(Q C^T / sqrt(latent + rope_dim)) C[:, :latent] in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference import attention
from perfmodel.kernels.reference.base import Reference, Selection
from perfmodel.operators.attention import Attention
from perfmodel.operators.mla import Mla


def as_attention(op: Mla, inputs: Mapping[str, torch.Tensor]) -> tuple[Attention, dict[str, torch.Tensor]]:
    """Return the attention that it is, and its inputs: the cache [batch, 1, seq_kv, columns] as keys and as values."""
    keys = inputs["cache"].unsqueeze(1)
    return op.attention(), {"q": inputs["q"], "k": keys, "v": keys[..., : int(op.latent)]}


def reference(op: Mla, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the output for some batches, heads, queries and columns, as of attention with one key head."""
    return attention.reference(*as_attention(op, inputs), selection)
