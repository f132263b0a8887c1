"""Embedding look-up: one row of a table for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, plain
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding(Operator):
    """y[tokens, dim] = table[index[tokens]] with a table of [vocab, dim] and 64-bit indices.

    No FLOP. Compulsory traffic reads the indices, reads each used row once, and writes y.

    Parameters
    ----------
    tokens : rows that are looked up.
    vocab : rows of the table.
    dim : columns of the table.
    unique : different rows among them; by default the most possible, min(tokens, vocab). Tokens drawn uniformly at
        random are vocab (1 - (1 - 1 / vocab)^tokens) different ones on average.
    """

    op: ClassVar[str] = "embedding"

    tokens: Number = size(doc="rows that are looked up")
    vocab: Number = size(doc="rows of the table")
    dim: Number = size(doc="columns of the table")
    unique: Number = size(None, doc="different rows among them; default: min(tokens, vocab)")

    def check(self) -> None:
        """Derive the number of different rows, which is at most tokens and at most vocab."""
        most = np.minimum(self.tokens, self.vocab)
        self.derive(unique=plain(most))
        if np.any(np.greater(self.unique, most)):
            raise UsageError(
                f"unique={self.unique} is more than min(tokens, vocab) = {most}.", place=self.op, remedy="Leave it out."
            )

    def flop(self) -> Number:
        """Return 0: a look-up moves data."""
        return 0.0 * self.tokens * self.vocab * self.dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return index [tokens], the rows used [unique, dim] and y [tokens, dim]."""
        return (
            Tensor.input("index", (self.tokens,), "int64"),
            Tensor.input("rows", (self.unique, self.dim), self.dtype),
            Tensor.output("y", (self.tokens, self.dim), self.dtype),
        )
