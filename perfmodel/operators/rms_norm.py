"""Root-mean-square normalisation over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class RmsNorm(Operator):
    """y = x / sqrt(mean(x^2) + eps) * gamma over the ``cols`` of each row (Zhang and Sennrich 2019).

    FLOP = 4 per element: square and add for the mean, multiply by the reciprocal root, scale. The statistics count
    here, unlike in layer_norm, so that both norms have 4 per element. Compulsory traffic reads x and gamma once and
    writes y once. Backward reads dy, x and gamma, with the root of each row, and writes dx and the gradient of gamma:
    3 N s + 2 C s + 4 R bytes. FLOP = 9 an element: xhat (1), dy gamma (1), the sum of a row (2), dx (3), the gradient
    of gamma (2).

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    backward : the gradient.
    """

    op: ClassVar[str] = "rms_norm"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 4 rows cols, backward 9 rows cols [FLOP]."""
        return (9.0 if self.backward else 4.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], gamma [cols] and y; backward dy, x, gamma, the roots, dx and dgamma."""
        if self.backward:
            return (
                Tensor.input("dy", (self.rows, self.cols), self.dtype),
                Tensor.input("x", (self.rows, self.cols), self.dtype),
                Tensor.input("gamma", (self.cols,), self.dtype),
                Tensor.input("roots", (self.rows,), "fp32"),
                Tensor.output("dx", (self.rows, self.cols), self.dtype),
                Tensor.output("dgamma", (self.cols,), self.dtype),
            )
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.input("gamma", (self.cols,), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
