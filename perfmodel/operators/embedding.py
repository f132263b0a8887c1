"""Embedding look-up: one row of a table for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor
from perfmodel.operators._base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding(Operator):
    """y[tokens, dim] = table[index[tokens]] with a table of [vocab, dim] and 64-bit indices.

    No FLOP. Compulsory traffic reads the indices, reads the rows used (at most ``tokens`` of them, and never
    more than the table has) and writes y.

    Parameters
    ----------
    tokens : rows looked up.
    vocab : rows of the table.
    dim : columns of the table.
    """

    op: ClassVar[str] = "embedding"

    tokens: Number = size(doc="rows looked up")
    vocab: Number = size(doc="rows of the table")
    dim: Number = size(doc="columns of the table")

    def flop(self) -> Number:
        """Return 0: a look-up computes nothing."""
        return 0.0 * self.tokens * self.vocab * self.dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return index [tokens], the rows used [min(tokens, vocab), dim] and y [tokens, dim]."""
        return (
            Tensor.input("index", (self.tokens,), "int64"),
            Tensor.input("rows", (np.minimum(self.tokens, self.vocab), self.dim), self.dtype),
            Tensor.output("y", (self.tokens, self.dim), self.dtype),
        )
