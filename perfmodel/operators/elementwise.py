"""Elementwise operators: one output element from one element of each input."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, dtype_of, size


class Kind(NamedTuple):
    """An elementwise kind: number of inputs, FLOP per element, and whether it saves a mask of a byte per element."""

    inputs: int
    flop: int
    mask: bool = False


#: FLOP per element: each arithmetic operation, comparison or special function (exp, tanh, erf, sqrt) counts as 1, so
#: that silu = x / (1 + exp(-x)) is 4 and gelu = 0.5 x (1 + erf(x / sqrt 2)) is 5. chain4 is the chain of four
#: silu(gelu(x + y) z): 1 + 5 + 1 + 4 = 11.
KINDS = MappingProxyType(
    {
        "add": Kind(2, 1),
        "sub": Kind(2, 1),
        "mul": Kind(2, 1),
        "div": Kind(2, 1),
        "pow": Kind(2, 1),
        "maximum": Kind(2, 1),
        "minimum": Kind(2, 1),
        "silu_mul": Kind(2, 5),
        "chain4": Kind(3, 11),
        "fma": Kind(3, 2),
        "where": Kind(3, 1),
        "relu": Kind(1, 1),
        "gelu": Kind(1, 5),
        "silu": Kind(1, 4),
        "sigmoid": Kind(1, 4),
        "tanh": Kind(1, 1),
        "exp": Kind(1, 1),
        "log": Kind(1, 1),
        "sqrt": Kind(1, 1),
        "rsqrt": Kind(1, 1),
        "neg": Kind(1, 1),
        "abs": Kind(1, 1),
        "square": Kind(1, 1),
        "copy": Kind(1, 0),
        "cast": Kind(1, 0),
        "dropout": Kind(1, 2, mask=True),
    }
)
#: kinds that a matrix product can fuse into its epilogue
ACTIVATIONS = ("relu", "gelu", "silu", "sigmoid", "tanh")


@dataclass(frozen=True, kw_only=True, eq=False)
class Elementwise(Operator):
    """``numel`` elements, each computed from the same element of every input.

    FLOP = numel times the FLOP of the kind (see `KINDS`). Traffic reads each input once and writes the output once.
    Dropout also writes a mask of one byte per element, as in training.

    Parameters
    ----------
    numel : elements of the output.
    kind : the operation.
    num_inputs : tensors that are read: by default the kind's operands, 1 if the other operand is a scalar.
    out_dtype : dtype of the output, by default ``dtype``; a cast is ``kind=cast`` with an ``out_dtype``.
    """

    op: ClassVar[str] = "elementwise"

    numel: Number = size(doc="elements")
    kind: str = choice("add", tuple(KINDS), always_shown=True, doc="operation")
    num_inputs: Number = size(None, doc="tensors read; default: the operands of the kind; 1 with a scalar operand")
    out_dtype: str = dtype_of(doc="dtype of the output; default: dtype")

    def check(self) -> None:
        """Derive the number of inputs and the output dtype."""
        self.derive(num_inputs=KINDS[self.kind].inputs, out_dtype=self.dtype)

    def flop(self) -> Number:
        """Return the FLOP of the kind for every element."""
        return float(KINDS[self.kind].flop) * self.numel

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the inputs as one stack [num_inputs, numel], the output [numel], and for dropout its mask."""
        tensors = (
            Tensor.input("x", (self.num_inputs, self.numel), self.dtype),
            Tensor.output("y", (self.numel,), self.out_dtype),
        )
        return (*tensors, Tensor.output("mask", (self.numel,), "int8")) if KINDS[self.kind].mask else tensors
