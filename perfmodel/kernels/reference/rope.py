"""q and k rotated in pairs of the halves of each head, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.rope import Rope


def width(op: Any) -> int:
    """Return the rotated elements of a head."""
    return int(op.head_dim if op.rotary is None else op.rotary)


def reference(op: Rope, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some tokens and columns of all heads together."""
    tokens, columns = selection
    half = width(op) // 2
    angles = exact(inputs["cos_sin"][inputs["positions"][tokens]])
    # the place in its head of each column, that of its partner, and of its angle
    place, head = columns % (2 * half), columns // (2 * half)
    is_first = place < half
    partner = head * 2 * half + torch.where(is_first, place + half, place - half)
    qk = exact(inputs["qk"][tokens])
    along = qk[:, columns] * angles[:, place % half]
    across = qk[:, partner] * angles[:, half + place % half]
    value = along + torch.where(is_first, -across, across)
    rounded = value.abs() + along.abs() + across.abs()
    return Reference(value, rounded, rounded, 2)
