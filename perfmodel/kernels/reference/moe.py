"""y[t] = sum over the chosen experts e of p[t, e] (act(x[t] G_e) * (x[t] U_e)) D_e in float64, for one rank.

The router's logits are computed in float32, as every kernel does, so that all choose the same experts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.kernels.scaled import scaled_weights
from perfmodel.operators.moe import Moe


def choose(op: Moe, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of each token, and their shares, [tokens, top_k] each.

    The router takes the largest logits; without one the tokens take the experts in turn, with equal shares. Experts
    that no token takes have no weights among the inputs, so that the first ones are chosen from.
    """
    x, experts, chosen = inputs["x"], inputs["w_up"].shape[0], int(op.top_k)
    if "router" in inputs:
        logits = x.float() @ inputs["router"][:, :experts].float()
        values, places = torch.topk(logits, chosen, dim=1)
        return places, torch.softmax(values, dim=1)
    places = torch.arange(x.shape[0] * chosen, device=x.device).reshape(-1, chosen) % experts
    return places, torch.full(places.shape, 1.0 / chosen, device=x.device)


def weights_of(op: Moe, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of all experts times their scales, up and down, in some dtype."""
    up, down = (
        scaled_weights(inputs[f"w_{name}"].to(dtype), inputs.get(f"{name}_b_scale"), op.scale)
        for name in ("up", "down")
    )
    return up, down


def reference(op: Moe, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the layer for some tokens and columns."""
    tokens, columns = selection
    places, shares = choose(op, inputs)
    x = exact(inputs["x"])[tokens]
    up, down_of = weights_of(op, inputs, torch.float64)
    inter = inputs["w_down"].shape[1]
    value = x.new_zeros(tokens.numel(), columns.numel())
    squares, sums = torch.zeros_like(value), torch.zeros_like(value)
    for expert in sorted(set(places[tokens].flatten().tolist())):
        rows, slot = (places[tokens] == expert).nonzero(as_tuple=True)
        hidden = x[rows] @ up[expert]
        wide = torch.nn.functional.silu(hidden[:, :inter])
        if op.gated:
            wide = wide * hidden[:, inter:]
        share = exact(shares)[tokens][rows, slot, None]
        down = down_of[expert][:, columns]
        value[rows] += share * (wide @ down)
        # Each number of the hidden layer is rounded once or twice, and so is each expert's result.
        squares[rows] += share**2 * ((2.0 * wide).square() @ down.square()) + (share * (wide @ down)).square()
        norm = (x[rows].square() @ up[expert].square()).sqrt()
        sums[rows] += share * ((wide.abs() + norm[:, :inter]) @ down.abs())
    return Reference(value, squares.sqrt() + value.abs(), sums, int(op.hidden + op.inter_of_rank))
