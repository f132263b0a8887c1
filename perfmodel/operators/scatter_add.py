"""Adding rows to the rows of a table that their indices name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.checks import first_point
from perfmodel.operators.lookup import distinct, distribution, most_repeated, sector_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class ScatterAdd(Operator):
    """y[index[i], :] += x[i, :] for ``rows`` rows of ``cols`` elements, with an index of 64 bits a row.

    FLOP = rows cols, one sum an element. Traffic reads x and the indices, and reads and writes whole sectors of each
    different row of y: n b + 2 d ceil(b / 32) 32 + 8 n bytes. Sums into one element follow one another: the most
    frequent row takes at least its multiplicity in clocks of the L2 slice that holds it. Backward is `IndexSelect`.

    Parameters
    ----------
    rows, cols : rows that are added, and elements of a row.
    table : rows of y.
    unique : different rows among the indices; by default what ``distribution`` gives.
    distribution : how the indices are spread: "even", "zipf" or "same".
    by_element : the kernel looks up an index for each element (``torch.scatter_add``) and not for each row
        (``torch.index_add``); the indices are those of the rows, so that no byte is counted twice.
    backward : the gradient of x, which selects rows of dy.
    """

    op: ClassVar[str] = "scatter_add"

    rows: Number = size(doc="rows that are added")
    cols: Number = size(1, doc="elements of a row")
    table: Number = size(doc="rows of the result")
    unique: Number = size(None, doc="different rows among the indices; default by distribution")
    distribution: str = distribution()
    by_element: bool = flag(False, quiet=True, doc="as torch.scatter_add: each element has its index, that of its row")
    backward: bool = flag(False, quiet=True, doc="the gradient: selects rows")

    def check(self) -> None:
        """Derive the number of different rows, which is at most rows and at most table."""
        self.derive(unique=distinct(self.rows, self.table, self.distribution))
        most = np.minimum(self.rows, self.table)
        if anywhere(wrong := self.unique > most):
            unique, limit = first_point(wrong, self.unique, most)
            message = f"unique={unique} is more than min(rows, table) = {limit}."
            raise UsageError(message, place=self.op, remedy="Leave it out.")

    @property
    def multiplicity(self) -> Number:
        """Return how many rows are added to the most frequent one."""
        return most_repeated(self.rows, self.table, self.distribution)

    def flop(self) -> Number:
        """Return rows cols, backward 0 [FLOP]."""
        return (0.0 if self.backward else 1.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the index [rows], x and the sectors of y that are read and written; backward dy and dx."""
        touched, added = (self.unique, sector_columns(self.cols, self.dtype)), (self.rows, self.cols)
        index = Tensor.input("index", (self.rows,), "int64")
        if self.backward:
            return (index, Tensor.input("dy", touched, self.dtype), Tensor.output("dx", added, self.dtype))
        return (index, Tensor.input("x", added, self.dtype), Tensor.intermediate("y", touched, self.dtype))

    def index_limit(self, name: str) -> Number:
        """Return the rows of the table."""
        return self.table

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the index [rows], x [rows, cols] and the table [table, cols] of sums."""
        if self.backward:
            return self.tensors()
        index, x, _ = self.tensors()
        return (index, x, Tensor.output("sums", (self.table, self.cols), self.dtype))
