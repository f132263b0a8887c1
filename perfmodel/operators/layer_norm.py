"""Layer normalisation over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNorm(Operator):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta over the ``cols`` of each row.

    FLOP = 4 per element: subtract, multiply by the reciprocal deviation, scale, shift. By convention the statistics do
    not count. Compulsory traffic reads x, gamma and beta once and writes y once. Backward reads dy, x and gamma, with
    mean and deviation of each row, and writes dx and the gradients of gamma and beta: 3 N s + 3 C s + 8 R bytes. FLOP =
    13 an element: xhat (2), dy gamma (1), the two sums of a row (3), dx (4), and the sums of both gradients (3).

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    backward : the gradient.
    """

    op: ClassVar[str] = "layer_norm"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 4 rows cols, backward 13 rows cols [FLOP]."""
        return (13.0 if self.backward else 4.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], gamma and beta [cols] and y; backward dy, x, gamma, the statistics and gradients."""
        if self.backward:
            return (
                Tensor.input("dy", (self.rows, self.cols), self.dtype),
                Tensor.input("x", (self.rows, self.cols), self.dtype),
                Tensor.input("gamma", (self.cols,), self.dtype),
                Tensor.input("statistics", (2, self.rows), "fp32"),
                Tensor.output("dx", (self.rows, self.cols), self.dtype),
                Tensor.output("dgamma", (self.cols,), self.dtype),
                Tensor.output("dbeta", (self.cols,), self.dtype),
            )
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.input("gamma", (self.cols,), self.dtype),
            Tensor.input("beta", (self.cols,), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
