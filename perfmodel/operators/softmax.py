"""Softmax over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax(Operator):
    """y = exp(x - max x) / sum exp(x - max x) over the ``cols`` of each row.

    FLOP = 5 per element: maximum, subtract, exp, add, divide. Compulsory traffic reads x once and writes y once.
    Backward, dx = y (dy - sum y dy), reads dy and y and writes dx: 4 FLOP an element (product, sum, difference,
    product). The logarithm of the softmax has the same counts; its gradient is dx = dy - exp(y) sum dy. PyTorch
    computes it in one kernel, and that of the softmax in two.

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    backward : the gradient.
    log : the logarithm, as a part of `CrossEntropy`. Counts do not depend on it; times do.
    """

    op: ClassVar[str] = "softmax"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")
    backward: bool = flag(False, quiet=True, doc="the gradient")
    log: bool = flag(False, quiet=True, doc="the logarithm of the softmax")

    def flop(self) -> Number:
        """Return 5 rows cols, backward 4 rows cols [FLOP]."""
        return (4.0 if self.backward else 5.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols] and y [rows, cols]; backward dy, y and dx."""
        if self.backward:
            return (
                Tensor.input("dy", (self.rows, self.cols), self.dtype),
                Tensor.input("y", (self.rows, self.cols), self.dtype),
                Tensor.output("dx", (self.rows, self.cols), self.dtype),
            )
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
