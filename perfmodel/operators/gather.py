"""Gather: each element of the result from a place of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.lookup import distinct, distribution, sector_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Gather(Operator):
    """y[i] = x[index[i]] for ``numel`` single elements of a table, with an index of 64 bits each.

    No FLOP. An element at random costs the sector of 32 B that it lies in, so that 4 B elements read at an eighth of
    the bandwidth: numel (32 + s) bytes and 8 numel for the indices, as long as the table has more sectors than that.
    The sectors that are read are the different ones among ``numel`` draws, `perfmodel.operators.lookup`. Backward adds
    dy to the elements of dx, which it first fills with zeros: it reads dy and the indices, and reads and writes each
    sector; numel FLOP.

    Parameters
    ----------
    numel : elements of the result.
    table : elements of x, by default so many that no sector is read twice.
    distribution : how the indices are spread: "even", "zipf" or "same".
    backward : the gradient, as `ScatterAdd`.
    """

    op: ClassVar[str] = "gather"

    numel: Number = size(doc="elements of the result")
    table: Number | None = size(None, doc="elements of x; default: no sector is read twice")
    distribution: str = distribution()
    backward: bool = flag(False, quiet=True, doc="the gradient: sums into a table of zeros")

    @property
    def sectors(self) -> Number:
        """Number of different sectors of 32 B among the elements."""
        if self.table is None:
            return 1.0 * self.numel if self.distribution != "same" else 1.0
        return distinct(self.numel, -(-self.table // sector_columns(1, self.dtype)), self.distribution)

    def flop(self) -> Number:
        """Return 0, backward numel [FLOP]."""
        return (1.0 if self.backward else 0.0) * self.numel

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the index [numel], the sectors of x and y [numel]; backward dy, the index and the sectors of dx."""
        touched = (self.sectors, sector_columns(1, self.dtype))
        index = Tensor.input("index", (self.numel,), "int64")
        if self.backward:
            zeros = () if self.table is None else (Tensor.output("dx", (self.table,), self.dtype),)
            return (
                Tensor.input("dy", (self.numel,), self.dtype),
                index,
                *zeros,
                Tensor.intermediate("sectors", touched, self.dtype),
            )
        return (index, Tensor.input("sectors", touched, self.dtype), Tensor.output("y", (self.numel,), self.dtype))

    def index_limit(self, name: str) -> Number:
        """Return the elements of the table."""
        return self.numel if self.table is None else self.table

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the index [numel], x [table] and y [numel]."""
        if self.backward:
            return self.tensors()
        index, _, y = self.tensors()
        return (index, Tensor.input("x", (self.index_limit("index"),), self.dtype), y)
