"""RMSNorm of a sum: the residual connection and the norm after it in one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.rms_norm import RmsNorm


@dataclass(frozen=True, kw_only=True, eq=False)
class AddRmsNorm(Operator):
    """sum = x + residual; y = sum / sqrt(mean(sum^2) + eps) * gamma over the ``cols`` of each row.

    FLOP = 5 an element: the sum, and 4 of `RmsNorm`. Traffic reads x and the residual, writes the sum and y, and reads
    gamma: 4 N s + C s bytes; the sum and the norm as two kernels move 5 N s. Backward reads dy and the sum and writes
    the gradient of both, 3 N s, and gamma's, 2 C s; 9 FLOP as `RmsNorm`.

    Parameters
    ----------
    rows, cols : sizes of x.
    backward : the gradient.
    """

    op: ClassVar[str] = "add_rms_norm"

    rows: Number = size(doc="independent rows")
    cols: Number = size(doc="elements of a row")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 5 rows cols, backward 9 rows cols [FLOP]."""
        return (9.0 if self.backward else 5.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, residual, gamma, y and sum; backward dy, sum, gamma, dx and dgamma."""
        shape = (self.rows, self.cols)
        if self.backward:
            return (
                Tensor.input("dy", shape, self.dtype),
                Tensor.input("sum", shape, self.dtype),
                Tensor.input("gamma", (self.cols,), self.dtype),
                Tensor.output("dx", shape, self.dtype),
                Tensor.output("dgamma", (self.cols,), self.dtype),
            )
        return (
            Tensor.input("x", shape, self.dtype),
            Tensor.input("residual", shape, self.dtype),
            Tensor.input("gamma", (self.cols,), self.dtype),
            Tensor.output("y", shape, self.dtype),
            Tensor.output("sum", shape, self.dtype),
        )

    def composition_in(self, library: str) -> tuple[Operator, ...]:
        """Return the two calls of PyTorch, the sum and its norm; others run one kernel, and so does the gradient."""
        if library != "torch" or self.backward:
            return ()
        return (
            Elementwise(numel=1.0 * self.rows * self.cols, kind="add", dtype=self.dtype),
            RmsNorm(rows=self.rows, cols=self.cols, dtype=self.dtype),
        )
