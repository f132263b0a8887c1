"""O = softmax(Q K^T / sqrt(head_dim)) V in float64, with the operator's masks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.attention import Attention


def hidden(op: Any, queries: torch.Tensor) -> torch.Tensor | None:
    """Return which keys are masked for each query, [queries, keys], or None without a mask.

    Query i has position seq_kv - seq_q + i in the sequence. It attends to the keys up to there, with a window w only to
    the last w of those. The keys are the last ones of the sequence: those that some query attends to.
    """
    if not op.causal:
        return None
    position = queries[:, None] + int(op.seq_kv - op.seq_q)
    key = torch.arange(int(op.seq_kv - op.keys()), int(op.seq_kv), device=queries.device)[None, :]
    later = key > position
    return later | (key <= position - int(op.window)) if op.window else later


def reference(op: Attention, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the output for some batches, heads, queries and columns.

    A rounding of the score s changes its weight p by p |s| relative roundings, so that the rounded intermediates have
    the size sqrt(sum p^2 v^2 (1 + |s|)^2).
    """
    batches, heads, queries, columns = selection
    key_heads = heads // int(op.heads // op.kv_heads)
    q = exact(inputs["q"][batches][:, heads][:, :, queries])
    k = exact(inputs["k"][batches][:, key_heads])
    v = exact(inputs["v"][batches][:, key_heads][..., columns])
    scores = q @ k.mT / math.sqrt(op.head_dim)
    mask = hidden(op, queries)
    weights = torch.softmax(scores if mask is None else scores.masked_fill(mask, -math.inf), -1)
    value = weights @ v
    spread = torch.sqrt((weights * (1 + scores.abs())).square() @ v.square())
    length = int(op.seq_kv) + int(op.head_dim)
    return Reference(value, value.abs() + spread, weights @ v.abs() + spread, length)
