"""Look-up of bags of rows, each of which is added up: the embedding of a recommendation model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.lookup import distinct, distribution, sector_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingBag(Operator):
    """y[b, :] = sum over i < pooling of table[index[b, i], :] for ``bags`` bags, with indices of 64 bits.

    FLOP = bags (pooling - 1) dim. Compulsory traffic reads the indices, reads each used row once in whole sectors
    (`perfmodel.operators.lookup`), and writes y: 8 T + u ceil(D s / 32) 32 + B D s bytes for B bags, T = B pooling
    indices, rows of D elements and u different ones. Backward fills the gradient of the table with zeros, and adds each
    row of dy to the rows of its bag: V D s + 8 T + B D s + 2 u ceil(D s / 32) 32 bytes and T D FLOP; sorting the
    indices first, as PyTorch does, does not count.

    Parameters
    ----------
    bags : rows of the result.
    pooling : rows that are added up for each.
    vocab : rows of the table.
    dim : columns of the table.
    distribution : how the indices are spread: "even", "zipf" or "same".
    backward : the gradient of the table.
    """

    op: ClassVar[str] = "embedding_bag"

    bags: Number = size(doc="rows of the result")
    pooling: Number = size(doc="rows that are added up for each")
    vocab: Number = size(doc="rows of the table")
    dim: Number = size(doc="columns of the table")
    distribution: str = distribution()
    backward: bool = flag(False, quiet=True, doc="the gradient of the table")

    @property
    def tokens(self) -> Number:
        """Number of rows that are looked up."""
        return 1.0 * self.bags * self.pooling

    @property
    def unique(self) -> Number:
        """Number of different rows among those looked up."""
        return distinct(self.tokens, self.vocab, self.distribution)

    def flop(self) -> Number:
        """Return bags (pooling - 1) dim, backward bags pooling dim [FLOP]."""
        return self.bags * (self.pooling - (0.0 if self.backward else 1.0)) * self.dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return index [bags, pooling], the sectors of the rows used, y [bags, dim]; backward dy and dtable, too."""
        touched = (self.unique, sector_columns(self.dim, self.dtype))
        index, result = Tensor.input("index", (self.bags, self.pooling), "int64"), (self.bags, self.dim)
        if self.backward:
            return (
                index,
                Tensor.input("dy", result, self.dtype),
                Tensor.output("dtable", (self.vocab, self.dim), self.dtype),
                Tensor.intermediate("sums", touched, self.dtype),
            )
        return (index, Tensor.input("rows", touched, self.dtype), Tensor.output("y", result, self.dtype))

    def index_limit(self, name: str) -> Number:
        """Return the rows of the table."""
        return self.vocab

    def buffers(self) -> tuple[Tensor, ...]:
        """Return index [bags, pooling], the table [vocab, dim] and y [bags, dim]."""
        if self.backward:
            return self.tensors()
        index, _, y = self.tensors()
        return (index, Tensor.input("table", (self.vocab, self.dim), self.dtype), y)
