"""Matrix transposition in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Transpose(Operator):
    """y[cols, rows] = x[rows, cols] in memory, for each matrix of a batch.

    No FLOP. Traffic reads x once and writes y once.

    Parameters
    ----------
    rows, cols : sizes of the matrix.
    batch : number of matrices.
    """

    op: ClassVar[str] = "transpose"

    rows: Number = size(doc="rows of x")
    cols: Number = size(doc="columns of x")
    batch: Number = size(1, doc="number of matrices")

    def flop(self) -> Number:
        """Return 0: data is moved, not computed."""
        return 0.0 * self.batch * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [batch, rows, cols] and y [batch, cols, rows]."""
        return (
            Tensor.input("x", (self.batch, self.rows, self.cols), self.dtype),
            Tensor.output("y", (self.batch, self.cols, self.rows), self.dtype),
        )
