"""Rotary position embedding of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.checks import check_groups, first_point


@dataclass(frozen=True, kw_only=True, eq=False)
class Rope(Operator):
    """q and k of each token, rotated in pairs by an angle of the position (Su et al. 2021, arXiv 2104.09864).

    FLOP = 3 a rotated element: 4 products and 2 sums for each pair. Traffic reads and writes the rotated part of q and
    k, and reads cos and sin of each token once and its 64-bit position. With T tokens, H = heads + kv_heads and r =
    rotary: FLOP = 3 T H r, bytes = 2 s T H r + s T r + 8 T. The gradient is a rotation by the negative angle: the same.

    Parameters
    ----------
    tokens : tokens.
    heads, kv_heads : heads of q and of k; ``kv_heads`` defaults to ``heads``.
    head_dim : elements of a head.
    rotary : elements of a head that are rotated, by default all.
    dim : elements of q and k of one token together, (heads + kv_heads) head_dim; in place of ``heads``.
    backward : the gradient.
    """

    op: ClassVar[str] = "rope"

    tokens: Number = size(doc="tokens")
    dim: Number = size(None, doc="elements of q and k of a token, (heads + kv_heads) head_dim; or give heads")
    head_dim: Number = size(128, doc="elements of a head")
    heads: Number | None = size(None, doc="heads of q")
    kv_heads: Number | None = size(None, doc="heads of k; default as heads")
    rotary: Number | None = size(None, doc="elements of a head that are rotated; default all")
    backward: bool = flag(False, quiet=True, doc="the gradient: the same counts")

    def check(self) -> None:
        """Derive the elements of a token from its heads, or refuse sizes that contradict each other."""
        given = vars(self)["dim"] is not None
        if self.heads is None and (not given or self.kv_heads is not None):
            raise UsageError("heads is missing.", place=self.op, remedy="Give heads and kv_heads, or dim alone.")
        if self.heads is not None:
            total = (self.heads + (self.heads if self.kv_heads is None else self.kv_heads)) * self.head_dim
            self.derive(kv_heads=self.heads, dim=total)
            if anywhere(other := self.dim != total):
                dim, expected = first_point(other, self.dim, total)
                raise UsageError(
                    f"dim={dim} is not (heads + kv_heads) head_dim = {expected}.",
                    place=self.op,
                    remedy="Leave out dim.",
                )
        else:
            remedy = "dim counts the elements of whole heads of q and k; give their head_dim."
            check_groups(self.op, remedy, dim=self.dim, head_dim=self.head_dim)
        if self.rotary is not None and anywhere(above := self.rotary > self.head_dim):
            rotary, head_dim = first_point(above, self.rotary, self.head_dim)
            raise UsageError(f"rotary={rotary} is above head_dim={head_dim}.", place=self.op)
        name = "head_dim" if self.rotary is None else "rotary"
        if anywhere(rest := getattr(self, name) % 2):
            (odd,) = first_point(rest, getattr(self, name))
            raise UsageError(f"{name}={odd} is odd.", place=self.op, remedy="The elements of a head turn in pairs.")

    @property
    def rotated(self) -> Number:
        """Rotated elements of q and k of a token."""
        return self.dim if self.rotary is None else self.dim * self.rotary / self.head_dim

    def flop(self) -> Number:
        """Return 3 tokens (heads + kv_heads) rotary [FLOP]."""
        return 3.0 * self.tokens * self.rotated

    def tensors(self) -> tuple[Tensor, ...]:
        """Return q and k [tokens, rotated], cos and sin [tokens, rotary], positions [tokens], and the rotated q, k."""
        width = self.head_dim if self.rotary is None else self.rotary
        return (
            Tensor.input("qk", (self.tokens, self.rotated), self.dtype),
            Tensor.input("cos_sin", (self.tokens, width), self.dtype),
            Tensor.input("positions", (self.tokens,), "int64"),
            Tensor.output("rotated", (self.tokens, self.rotated), self.dtype),
        )

    def index_limit(self, name: str) -> Number:
        """Return the rows of the table of cos and sin."""
        return self.tokens
