"""Embedding look-up: one row of a table for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.checks import first_point
from perfmodel.operators.lookup import distinct


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding(Operator):
    """y[tokens, dim] = table[index[tokens]] with a table of [vocab, dim] and 64-bit indices.

    No FLOP. Compulsory traffic reads the indices, reads each used row once, and writes y: 8 T + u D s + T D s bytes for
    T tokens, rows of D elements and u different ones. Backward fills the gradient of the table with zeros, and adds
    each row of dy to its row: V D s + 8 T + T D s + 2 u D s bytes and T D FLOP; sorting the indices first, as PyTorch
    does, does not count.

    Parameters
    ----------
    tokens : rows that are looked up.
    vocab : rows of the table.
    dim : columns of the table.
    unique : different rows among them; by default as many as tokens drawn uniformly at random are on average,
        u = V (1 - (1 - 1 / V)^T), rounded. Words of a text repeat more often.
    backward : the gradient of the table.
    """

    op: ClassVar[str] = "embedding"

    tokens: Number = size(doc="rows that are looked up")
    vocab: Number = size(doc="rows of the table")
    dim: Number = size(doc="columns of the table")
    unique: Number = size(None, doc="different rows among them; default: as at random")
    backward: bool = flag(False, quiet=True, doc="the gradient of the table")

    def check(self) -> None:
        """Derive the number of different rows, which is at most tokens and at most vocab."""
        most = np.minimum(self.tokens, self.vocab)
        self.derive(unique=distinct(self.tokens, self.vocab))
        if anywhere(wrong := self.unique > most):
            unique, limit = first_point(wrong, self.unique, most)
            message = f"unique={unique} is more than min(tokens, vocab) = {limit}."
            raise UsageError(message, place=self.op, remedy="Leave it out.")

    def flop(self) -> Number:
        """Return 0: a look-up moves data; backward tokens dim [FLOP]."""
        return (1.0 if self.backward else 0.0) * self.tokens * self.dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return index [tokens], the rows used [unique, dim] and y [tokens, dim]; backward dy and the table's zeros."""
        if self.backward:
            return (
                Tensor.input("index", (self.tokens,), "int64"),
                Tensor.input("dy", (self.tokens, self.dim), self.dtype),
                Tensor.output("dtable", (self.vocab, self.dim), self.dtype),
                Tensor.intermediate("sums", (self.unique, self.dim), self.dtype),
            )
        return (
            Tensor.input("index", (self.tokens,), "int64"),
            Tensor.input("rows", (self.unique, self.dim), self.dtype),
            Tensor.output("y", (self.tokens, self.dim), self.dtype),
        )

    def index_limit(self, name: str) -> Number:
        """Return the rows of the table."""
        return self.vocab

    def buffers(self) -> tuple[Tensor, ...]:
        """Return index [tokens], the table [vocab, dim] and y [tokens, dim]."""
        if self.backward:
            return self.tensors()
        index, _, y = self.tensors()
        return (index, Tensor.input("table", (self.vocab, self.dim), self.dtype), y)
