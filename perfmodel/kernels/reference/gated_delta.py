"""The gated delta rule in float64, token by token, with the sizes of what chunks or steps round."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.gated_delta import GatedDelta


def reference(op: GatedDelta, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some sequences, heads, tokens and columns, by the recurrence; columns of a state are independent.

    o[t] is the sum over s <= t of (q[t] . k[s]) u[s] times the decays after s, plus what is left of the first state.
    The error of an update u = beta (v - k S') has the size of beta v and of the rounded terms of beta k S', and of u;
    the updates after it make it smaller. The state is rounded where a query reads it.
    """
    batches, heads, tokens, columns = selection
    q, k = (exact(inputs[name][batches][:, heads // int(op.heads // op.key_heads)]) for name in ("q", "k"))
    v = exact(inputs["v"][batches][:, heads])[..., columns]
    decay, beta = (exact(inputs[name][batches][:, heads]) for name in ("decay", "beta"))
    if op.carried:
        state = exact(inputs["state"][batches][:, heads])[..., columns]
    else:
        state = v.new_zeros((*v.shape[:2], k.shape[-1], v.shape[-1]))
    count = int(tokens.max()) + 1
    chosen = set(tokens.tolist())
    read, updates, rounded, summed = {}, [], [], []
    for token in range(count):
        key, part = k[:, :, token, None, :], beta[:, :, token, None, None]
        state = state * decay[:, :, token, None, None]
        value = v[:, :, token, None, :]
        update = part * (value - key @ state)
        updates.append(update)
        rounded.append(part * (value.abs() + _root(key, state)) + update.abs())
        summed.append(part * (value.abs() + key.abs() @ state.abs()) + update.abs())
        state = state + key.mT * update
        if token in chosen:
            query = q[:, :, token, None, :]
            read[token] = (query @ state, _root(query, state), query.abs() @ state.abs())
    result, of_states, sizes = (torch.cat([read[token][i] for token in tokens.tolist()], 2) for i in range(3))
    weights = _weights(q, k[:, :, :count], decay[:, :, :count], tokens)
    of_updates = _root(weights, torch.cat(rounded, 2))
    magnitude = sizes + weights.abs() @ torch.cat(summed, 2)
    # chunks form the decay between tokens as the exponential of a difference of logarithms, in fp32 at least
    return Reference(result, result.abs() + of_states + of_updates, 4 * magnitude, int(op.seq + op.head_dim))


def _weights(q: torch.Tensor, k: torch.Tensor, decay: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return (q[t] . k[s]) times the decays after s, for the chosen tokens t and the tokens s up to each."""
    logs = decay.log().cumsum(-1)
    earlier = torch.arange(k.shape[2], device=k.device)[None, :] <= tokens[:, None]
    between = torch.where(earlier, logs[:, :, tokens, None] - logs[:, :, None, :], float("-inf")).exp()
    return (q[:, :, tokens] @ k.mT) * between


def _root(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the root sum square of the terms of a product, detached: a root at zero has no gradient."""
    return torch.sqrt(left.detach().square() @ right.detach().square())
