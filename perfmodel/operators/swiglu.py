"""SwiGLU: the gated activation of most language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.elementwise import Elementwise


def gated(op: Operator, rows: Number, cols: Number, *, backward: bool) -> tuple[Tensor, ...]:
    """Return the tensors of a gated activation: gate, up and y; backward dy, gate and up, and their gradients."""
    shape = (rows, cols)
    if backward:
        inputs = (Tensor.input(name, shape, op.dtype) for name in ("dy", "gate", "up"))
        return (*inputs, Tensor.output("dgate", shape, op.dtype), Tensor.output("dup", shape, op.dtype))
    return (
        Tensor.input("gate", shape, op.dtype),
        Tensor.input("up", shape, op.dtype),
        Tensor.output("y", shape, op.dtype),
    )


def gated_passes(op: Operator, numel: Number, kind: str, *, backward: bool) -> tuple[Operator, ...]:
    """Return the calls of PyTorch, which has no kernel for a gated activation: the activation, then the product.

    Backward a product for each of its two gradients, then that of the activation: 9 N s bytes.
    """
    times, fresh = (2, False) if backward else (1, True)
    product = Elementwise(numel=numel, kind="mul", num_inputs=2, dtype=op.dtype, count=times, fresh=fresh)
    activation = Elementwise(numel=numel, kind=kind, dtype=op.dtype, backward=backward)
    return (product, activation) if backward else (activation, product)


@dataclass(frozen=True, kw_only=True, eq=False)
class Swiglu(Operator):
    """y = silu(gate) up, with silu(x) = x / (1 + exp(-x)) (Shazeer 2020, arXiv 2002.05202).

    FLOP = 5 an element of y: negate, exp, add, divide, product. Traffic reads gate and up and writes y: 3 N s bytes.
    Backward reads dy, gate and up and writes both gradients, 5 N s; 12 FLOP: sigma is computed again (4), gate sigma
    (1), dup = dy silu (1), dgate = dy up sigma (1 + gate (1 - sigma)) (6).

    Parameters
    ----------
    rows, cols : sizes of y; gate and up have the same.
    backward : the gradient.
    """

    op: ClassVar[str] = "swiglu"

    rows: Number = size(doc="tokens")
    cols: Number = size(doc="columns of y, of gate and of up")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 5 rows cols, backward 12 rows cols [FLOP]."""
        return (12.0 if self.backward else 5.0) * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return gate, up and y [rows, cols]; backward dy, gate, up, dgate and dup."""
        return gated(self, self.rows, self.cols, backward=self.backward)

    def composition_in(self, library: str) -> tuple[Operator, ...]:
        """Return the two calls of PyTorch; others run one kernel."""
        if library != "torch":
            return ()
        return gated_passes(self, 1.0 * self.rows * self.cols, "silu", backward=self.backward)
