"""Reduction of each row to one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduction(Operator):
    """y[rows] = sum (or max, min, ...) over the ``cols`` of x[rows, cols].

    FLOP = rows (cols - 1): one operation combines two elements. Traffic reads x once and writes y once. Backward
    copies the gradient of a row to all of its columns: it reads dy and writes dx, without FLOP.

    Parameters
    ----------
    rows : independent rows; elements of the result.
    cols : elements that are reduced to one.
    backward : the gradient of a sum.
    """

    op: ClassVar[str] = "reduction"

    rows: Number = size(doc="elements of the result")
    cols: Number = size(doc="elements that are reduced to one")
    backward: bool = flag(False, quiet=True, doc="the gradient of a sum")

    def flop(self) -> Number:
        """Return rows (cols - 1), backward 0 [FLOP]."""
        return (0.0 if self.backward else 1.0) * self.rows * (self.cols - 1)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols] and y [rows]; backward dy and dx."""
        if self.backward:
            return (
                Tensor.input("dy", (self.rows,), self.dtype),
                Tensor.output("dx", (self.rows, self.cols), self.dtype),
            )
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.output("y", (self.rows,), self.dtype),
        )
