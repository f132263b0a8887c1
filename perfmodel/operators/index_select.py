"""Selecting rows of a table by their indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.lookup import distinct, distribution, sector_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexSelect(Operator):
    """y[i, :] = x[index[i], :] for ``rows`` rows of ``cols`` elements, with an index of 64 bits a row.

    No FLOP. A row of b bytes costs whole sectors, ceil(b / 32) 32: n (ceil(b / 32) 32 + b) bytes and 8 n for the
    indices; rows that repeat are read once (`perfmodel.operators.lookup`). Backward is `ScatterAdd` into zeros.

    Parameters
    ----------
    rows, cols : rows that are selected, and elements of a row.
    table : rows of x, by default so many that none is selected twice.
    distribution : how the indices are spread: "even", "zipf" or "same".
    backward : the gradient.
    """

    op: ClassVar[str] = "index_select"

    rows: Number = size(doc="rows of the result")
    cols: Number = size(doc="elements of a row")
    table: Number | None = size(None, doc="rows of x; default: none is selected twice")
    distribution: str = distribution()
    backward: bool = flag(False, quiet=True, doc="the gradient: sums into a table of zeros")

    @property
    def unique(self) -> Number:
        """Number of different rows among those selected."""
        if self.table is None:
            return 1.0 * self.rows if self.distribution != "same" else 1.0
        return distinct(self.rows, self.table, self.distribution)

    def flop(self) -> Number:
        """Return 0, backward rows cols [FLOP]."""
        return (1.0 if self.backward else 0.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the index [rows], the sectors of the rows of x and y; backward dy, the index and dx."""
        touched = (self.unique, sector_columns(self.cols, self.dtype))
        index = Tensor.input("index", (self.rows,), "int64")
        result = (self.rows, self.cols)
        if self.backward:
            zeros = () if self.table is None else (Tensor.output("dx", (self.table, self.cols), self.dtype),)
            return (
                Tensor.input("dy", result, self.dtype),
                index,
                *zeros,
                Tensor.intermediate("sums", touched, self.dtype),
            )
        return (index, Tensor.input("table", touched, self.dtype), Tensor.output("y", result, self.dtype))

    def index_limit(self, name: str) -> Number:
        """Return the rows of the table."""
        return self.rows if self.table is None else self.table

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the index [rows], the table [table, cols] and y [rows, cols]."""
        if self.backward:
            return self.tensors()
        index, _, y = self.tensors()
        return (index, Tensor.input("table", (self.index_limit("index"), self.cols), self.dtype), y)
