"""How large the rounding errors of gradients may be, where their sizes alone do not say it.

A gradient may cancel: that of softmax is y (dy - sum y dy), so that an element near zero still has the error of the
terms that it is the difference of. Each function follows the roundings through the formulas of the backward pass, to
first order. It returns for each gradient the size R of what is rounded to the operator's dtype, so that its error is a
few u R, and the size S of what is only added up in float32; see `perfmodel.kernels.check` for the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from perfmodel.kernels.gradients import OUTPUT_GRADIENT
from perfmodel.kernels.reference.attention import hidden
from perfmodel.kernels.reference.rope import width


@dataclass(frozen=True)
class Scale:
    """The sizes that the errors of one gradient are proportional to.

    Attributes
    ----------
    rounded : root sum square of the terms that are rounded to the operator's dtype.
    summed : sqrt(number of terms) times the sum of the magnitudes of the terms that are added.
    """

    rounded: torch.Tensor
    summed: torch.Tensor


#: (operator, its inputs and dy in float64) -> the sizes of each gradient
Scales = Callable[[Any, Mapping[str, torch.Tensor]], tuple[Scale, ...]]


def _softmax(op: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[Scale, ...]:
    """Dx = y (dy - D) with D = sum y dy: y, the two products, D and the result are rounded."""
    y, dy = torch.softmax(inputs["x"], -1), inputs[OUTPUT_GRADIENT]
    products = y * dy
    total = products.sum(-1, keepdim=True)
    of_total = products.square().sum(-1, keepdim=True).sqrt()
    rounded = y * (2 * (dy - total).abs() + dy.abs() + total.abs() + of_total)
    length = math.sqrt(float(op.cols))
    return (Scale(rounded, length * y * products.abs().sum(-1, keepdim=True) + y * dy.abs()),)


def _rope(op: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[Scale, ...]:
    """The gradient is a rotation by the negative angle: two products and their sum are rounded."""
    dy, half = inputs[OUTPUT_GRADIENT], width(op) // 2
    angles = inputs["cos_sin"][inputs["positions"]][:, None, :]
    cos, sin = angles[..., :half], angles[..., half:]
    first, second = dy.reshape(dy.shape[0], -1, 2, half).unbind(2)
    products = [
        torch.stack(pair, 2).reshape(dy.shape).abs()
        for pair in ((first * cos, second * cos), (second * sin, -first * sin))
    ]
    size = products[0] + products[1]
    return (Scale(2 * size, size),)


def _attention(op: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[Scale, ...]:
    """DV = P^T dO, dS = P (dP - D), dQ = dS K and dK = dS^T Q, with dP = dO V^T and D the sum of P dP over the keys.

    Scores, P, O, dP, dS and the results may be rounded. A rounding of a score s changes its weight by |s| relative
    roundings. The error of D is common to a row of dS, so that its part of dQ is that of the mean key and not a root
    sum square. Keys that several heads share get gradients that are rounded for each head before they are added.
    """
    group, scale = int(op.heads // op.kv_heads), 1 / math.sqrt(op.head_dim)
    q, do = inputs["q"], inputs[OUTPUT_GRADIENT]
    k, v = (inputs[name].repeat_interleave(group, 1) for name in ("k", "v"))
    scores = q @ k.mT * scale
    mask = hidden(op, torch.arange(int(op.seq_q), device=q.device))
    p = torch.softmax(scores if mask is None else scores.masked_fill(mask, -math.inf), -1)
    dp, out = do @ v.mT, p @ v
    difference = dp - (p * dp).sum(-1, keepdim=True)
    sizes = op.head_dim, op.value_columns, op.keys(), op.seq_q
    width, columns, keys, queries = (math.sqrt(float(size)) for size in sizes)
    # of what is rounded to the dtype
    of_p = p * (2 + 2 * scores.abs())
    of_d = ((of_p * dp).square().sum(-1, keepdim=True) + (do * out).square().sum(-1, keepdim=True)).sqrt()
    of_ds = (of_p + p) * difference.abs() + p * dp.abs()
    rounded = (
        scale * (_root(of_ds, k) + of_d * (p @ k).abs()),
        scale * _root((of_ds + p * of_d).mT, q),
        _root(of_p.mT, do),
    )
    # of what is added in float32
    of_p = p * (width * scale * (q.abs() @ k.abs().mT) + keys)
    of_d = columns * (do * out).abs().sum(-1, keepdim=True) + (of_p * dp).abs().sum(-1, keepdim=True)
    of_ds = of_p * difference.abs() + p * (columns * (do.abs() @ v.abs().mT) + of_d)
    ds = (p * difference).abs()
    summed = (
        scale * (_root(of_ds, k) + keys * (ds @ k.abs())),
        scale * (_root(of_ds.mT, q) + queries * (ds.mT @ q.abs())),
        _root(of_p.mT, do) + queries * (p.mT @ do.abs()),
    )
    ds = p * difference
    gradients = (scale * (ds @ k), scale * (ds.mT @ q), p.mT @ do)
    dq, *shared = (Scale(r + 2 * g.abs(), s) for r, s, g in zip(rounded, summed, gradients, strict=True))
    return (dq, *(_over_heads(one, group) for one in shared))


def _root(errors: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the root sum square of the terms of a product whose left side has errors that are independent."""
    return torch.sqrt(errors.square() @ values.square())


def _over_heads(scale: Scale, group: int) -> Scale:
    """Return the scale of a sum over the heads that share a key; their errors are independent."""
    batch, heads, *rest = scale.rounded.shape
    rounded, summed = (x.reshape(batch, heads // group, group, *rest) for x in (scale.rounded, scale.summed))
    return Scale(rounded.square().sum(2).sqrt() * (1 if group == 1 else 2), summed.sum(2))


#: the operators whose gradients cancel
SCALES: Mapping[str, Scales] = MappingProxyType({"softmax": _softmax, "rope": _rope, "attention": _attention})
