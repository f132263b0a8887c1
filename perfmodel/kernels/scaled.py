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
    if "b_scale" not in inputs:
        return a, b
    scale = inputs["b_scale"].to(dtype)
    places = torch.arange(int(op.n), device=b.device) if columns is None else columns
    if op.scale == "column":
        return a, b * scale[:, None, places]
    scale = scale[:, places // (sides[0] if len(sides) == 2 else 1)]
    return a, b * scale.repeat_interleave(sides[-1], dim=2)[..., : int(op.k)].mT
