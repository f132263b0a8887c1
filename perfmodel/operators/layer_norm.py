"""Layer normalisation over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNorm(Operator):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta over the ``cols`` of each row.

    FLOP = 4 per element: subtract, multiply by the reciprocal deviation, scale, shift. By convention the statistics do
    not count. Compulsory traffic reads x, gamma and beta once and writes y once.

    Parameters
    ----------
    rows : independent rows.
    cols : elements of a row.
    """

    op: ClassVar[str] = "layer_norm"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")

    def flop(self) -> Number:
        """Return 4 rows cols [FLOP]."""
        return 4.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], gamma [cols], beta [cols] and y [rows, cols]."""
        return (
            Tensor.input("x", (self.rows, self.cols), self.dtype),
            Tensor.input("gamma", (self.cols,), self.dtype),
            Tensor.input("beta", (self.cols,), self.dtype),
            Tensor.output("y", (self.rows, self.cols), self.dtype),
        )
