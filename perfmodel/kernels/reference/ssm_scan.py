"""h[t] = exp(dt A) h[t - 1] + dt x B, y = C h + D x, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.ssm_scan import SsmScan


def reference(op: SsmScan, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some sequences, tokens and channels, by the sum over earlier tokens instead of a state.

    y[t] = sum over s <= t of C[t] exp(A (T[t] - T[s])) dt[s] x[s] B[s] + D x[t], with T the sum of dt so far, and
    C[t] exp(A T[t]) h of a carried first state h; times silu(z[t]) with a gate.
    """
    batches, tokens, channels = selection
    x, dt = (exact(inputs[name][batches][..., channels]) for name in ("x", "dt"))
    b, c = exact(inputs["b"][batches]), exact(inputs["c"][batches][:, tokens])
    a, d = exact(inputs["a"][channels]), exact(inputs["d"][channels])
    so_far = dt.cumsum(1)
    value, magnitude = x[:, tokens] * d, (x[:, tokens] * d).abs()
    for state in range(a.shape[-1]):
        later = torch.arange(x.shape[1], device=x.device)[None, :] <= tokens[:, None]
        apart = so_far[:, tokens, None] - so_far[:, None]
        weight = torch.where(later[None, ..., None], apart * a[:, state], float("-inf")).exp()
        terms = weight * (dt * x * b[..., state, None])[:, None] * c[:, :, None, state, None]
        value, magnitude = value + terms.sum(2), magnitude + terms.abs().sum(2)
        if op.carried:
            first = exact(inputs["state"][batches][:, channels, state])
            term = (so_far[:, tokens] * a[:, state]).exp() * first[:, None] * c[..., state, None]
            value, magnitude = value + term, magnitude + term.abs()
    if op.gated:
        gate = torch.nn.functional.silu(exact(inputs["z"][batches][:, tokens][..., channels]))
        value, magnitude = value * gate, magnitude * gate.abs()
    rounded = value.abs() + magnitude
    return Reference(value, rounded, rounded, int(op.seq))
