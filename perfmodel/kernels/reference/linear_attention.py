"""o[t] = q[t] S times all decays + sum over s <= t of (q[t] . k[s]) v[s] times the decays after s, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.linear_attention import LinearAttention


def reference(op: LinearAttention, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some sequences, heads, tokens and columns, by the sum over all pairs instead of a state."""
    batches, heads, tokens, columns = selection
    q, k = (exact(inputs[name][batches][:, heads // int(op.heads // op.key_heads)]) for name in ("q", "k"))
    v = exact(inputs["v"][batches][:, heads])
    logs = exact(inputs["decay"][batches][:, heads]).log().cumsum(-1)
    earlier = torch.arange(k.shape[2], device=k.device)[None, :] <= tokens[:, None]
    between = torch.where(earlier, logs[:, :, tokens, None] - logs[:, :, None, :], float("-inf")).exp()
    scores, values = (q[:, :, tokens] @ k.mT) * between, v[..., columns]
    value = scores @ values
    partial = torch.sqrt(scores.square() @ values.square())
    magnitude = ((q[:, :, tokens].abs() @ k.abs().mT) * between) @ values.abs()
    if op.carried:
        query = q[:, :, tokens] * logs[:, :, tokens, None].exp()
        state = exact(inputs["state"][batches][:, heads])[..., columns]
        value = value + query @ state
        partial = torch.sqrt(partial.square() + query.square() @ state.square())
        magnitude = magnitude + query.abs() @ state.abs()
    # chunks form the decay between tokens as the exponential of a difference of logarithms
    return Reference(value, 4 * (value.abs() + partial), 4 * magnitude, int(op.seq + op.head_dim))
