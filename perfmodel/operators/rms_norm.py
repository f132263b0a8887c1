"""Root-mean-square normalisation over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class RmsNorm(Operator):
    """y = x / sqrt(mean(x^2) + eps) * gamma over the ``cols`` of each row (Zhang and Sennrich 2019).

    FLOP = 4 per element: square and add for the mean, multiply by the reciprocal root, scale. The statistics count
    here, unlike in layer_norm, so that both norms have 4 per element. Compulsory traffic reads x and gamma once and
    writes y once.

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    """

    op: ClassVar[str] = "rms_norm"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")

    def flop(self) -> Number:
        """Return 4 rows cols [FLOP]."""
        return 4.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], gamma [cols] and y [rows, cols]."""
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.input("gamma", (self.cols,), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
