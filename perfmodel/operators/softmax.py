"""Softmax over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax(Operator):
    """y = exp(x - max x) / sum exp(x - max x) over the ``cols`` of each row.

    FLOP = 5 per element: maximum, subtract, exp, add, divide. Compulsory traffic reads x once and writes y once.

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    """

    op: ClassVar[str] = "softmax"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")

    def flop(self) -> Number:
        """Return 5 rows cols [FLOP]."""
        return 5.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols] and y [rows, cols]."""
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
