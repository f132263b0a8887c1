"""Rotary position embedding of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Rope(Operator):
    """q and k of each token, rotated in pairs by an angle of the position (Su et al. 2021, arXiv 2104.09864).

    FLOP = 3 an element: 4 products and 2 sums for each pair. Traffic reads and writes q and k, and reads cos and sin of
    each token once and its 64-bit position.

    Parameters
    ----------
    tokens : tokens.
    dim : elements of q and k of one token together, (heads + kv_heads) head_dim.
    head_dim : elements of a head, all of which are rotated.
    """

    op: ClassVar[str] = "rope"

    tokens: Number = size(doc="tokens")
    dim: Number = size(doc="elements of q and k of a token together, (heads + kv_heads) head_dim")
    head_dim: Number = size(128, doc="elements of a head")

    def flop(self) -> Number:
        """Return 3 tokens dim [FLOP]."""
        return 3.0 * self.tokens * self.dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return q and k [tokens, dim], cos and sin [tokens, head_dim], positions [tokens] and the rotated q and k."""
        return (
            Tensor.input("qk", (self.tokens, self.dim), self.dtype),
            Tensor.input("cos_sin", (self.tokens, self.head_dim), self.dtype),
            Tensor.input("positions", (self.tokens,), "int64"),
            Tensor.output("rotated", (self.tokens, self.dim), self.dtype),
        )
