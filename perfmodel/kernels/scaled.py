"""Operands of products with scales: their numbers times the scales, in any dtype."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.operators.gemm import Gemm
from perfmodel.operators.scales import sides_of


def widened(
    op: Gemm,
    inputs: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A [batch, m, k] and B [batch, k, n] of a product with their scales applied, or some rows and columns."""
    sides, a, b = sides_of(op.scale), inputs["a"], inputs["b"]
    a = (a if rows is None else a[:, rows]).to(dtype)
    b = (b if columns is None else b[:, :, columns]).to(dtype)
    if "a_scale" in inputs:
        scale = inputs["a_scale"] if rows is None else inputs["a_scale"][:, rows]
        a = a * scale.to(dtype).repeat_interleave(sides[-1], dim=2)[..., : int(op.k)]
    return a, scaled_weights(b, inputs.get("b_scale"), op.scale, columns)


def scaled_weights(
    b: torch.Tensor, scales: torch.Tensor | None, form: str, columns: torch.Tensor | None = None
) -> torch.Tensor:
    """Return weights [batch, k, n] times their scales, which stand as [batch, (blocks of) n, groups of k].

    Parameters
    ----------
    b : the numbers, in the dtype of the result; with ``columns`` only those columns.
    scales : of all columns, or None for weights without scales.
    form : "none", "column", "group:128", "block:128x128".
    columns : which columns of the whole ``b`` has.
    """
    if scales is None:
        return b
    sides, scale = sides_of(form), scales.to(b.dtype)
    places = torch.arange(b.shape[-1], device=b.device) if columns is None else columns
    if form == "column":
        return b * scale[:, None, places]
    scale = scale[:, places // (sides[0] if len(sides) == 2 else 1)]
    return b * scale.repeat_interleave(sides[-1], dim=2)[..., : b.shape[1]].mT
