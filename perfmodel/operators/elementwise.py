"""Elementwise operators: one output element from one element of each input."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from perfmodel.core.work import Number, Tensor, minimum
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size


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
        "fill": Kind(0, 0),
        "copy": Kind(1, 0),
        "cast": Kind(1, 0),
        "dropout": Kind(1, 2, mask=True),
    }
)


class Gradient(NamedTuple):
    """The backward pass of a kind: tensors read beside dy, gradients written, and FLOP per element."""

    reads: int
    writes: int
    flop: int


#: Gradients of kinds with two operands write both; with a scalar operand they write one. FLOP: gelu computes the
#: cumulative distribution (4) and the density (4) again, joins them (2) and multiplies (1); silu sigma (4), its slope
#: 1 + x (1 - sigma) (3) and two products; the others are one product for each factor. Kinds without an entry
#: (add, sub, maximum of a constant mask) pass dy on, or a comparison of it, as fma does for what it adds.
GRADIENTS = MappingProxyType(
    {
        "mul": Gradient(2, 2, 2),
        "div": Gradient(2, 2, 4),
        "pow": Gradient(2, 2, 6),
        "maximum": Gradient(2, 2, 3),
        "minimum": Gradient(2, 2, 3),
        "silu_mul": Gradient(2, 2, 12),
        "fma": Gradient(2, 2, 2),
        "where": Gradient(1, 2, 1),
        "relu": Gradient(1, 1, 1),
        "gelu": Gradient(1, 1, 11),
        "silu": Gradient(1, 1, 9),
        "sigmoid": Gradient(1, 1, 3),
        "tanh": Gradient(1, 1, 3),
        "exp": Gradient(1, 1, 1),
        "log": Gradient(1, 1, 1),
        "sqrt": Gradient(1, 1, 2),
        "rsqrt": Gradient(1, 1, 4),
        "neg": Gradient(0, 1, 1),
        "abs": Gradient(1, 1, 2),
        "square": Gradient(1, 1, 2),
        "copy": Gradient(0, 1, 0),
        "cast": Gradient(0, 1, 0),
        "dropout": Gradient(0, 1, 2),
    }
)
#: kinds that a matrix product can fuse into its epilogue
ACTIVATIONS = ("relu", "gelu", "silu", "sigmoid", "tanh")


@dataclass(frozen=True, kw_only=True, eq=False)
class Elementwise(Operator):
    """``numel`` elements, each computed from the same element of every input.

    FLOP = numel times the FLOP of the kind (see `KINDS`). Traffic reads each input once and writes the output once.
    Dropout also writes a mask of one byte per element, as in training. "fill" writes a constant, and reads nothing.
    Backward reads the gradient of the output and what `GRADIENTS` says, and writes the gradients of the inputs.

    Parameters
    ----------
    numel : elements of the output.
    kind : the operation.
    num_inputs : tensors that are read: by default the kind's operands, 1 if the other operand is a scalar.
    out_dtype : dtype of the output, by default ``dtype``; a cast is ``kind=cast`` with an ``out_dtype``.
    backward : the gradient.
    strided : an operand is a view with gaps, permuted, or broadcast along rows, as in compositions of rope, of a gated
        activation whose halves lie in one tensor, and of heads that change places with tokens. Counts do not depend on
        it; times do.
    fresh : the kernel before has just written an operand, which may lie in a cache, as in a gated activation of two
        calls. Counts do not depend on it; times do.
    """

    op: ClassVar[str] = "elementwise"

    numel: Number = size(doc="elements")
    kind: str = choice("add", tuple(KINDS), always_shown=True, doc="operation")
    num_inputs: Number = size(
        None, minimum=0, doc="tensors read; default: the operands of the kind; 1 with a scalar operand"
    )
    out_dtype: str = dtype_of(doc="dtype of the output; default: dtype")
    backward: bool = flag(False, quiet=True, doc="the gradient")
    strided: bool = flag(False, quiet=True, doc="an operand is a view with gaps, permuted, or broadcast along rows")
    fresh: bool = flag(False, quiet=True, doc="the kernel before has just written an operand")

    def check(self) -> None:
        """Derive the number of inputs and the output dtype."""
        self.derive(num_inputs=KINDS[self.kind].inputs, out_dtype=self.dtype)
        if self.backward and self.kind not in GRADIENTS:
            raise UsageError(
                f"kind={self.kind} has no gradient of its own: no kernel runs.",
                place=self.op,
                remedy=f"Kinds with a gradient: {', '.join(GRADIENTS)}.",
            )

    def flop(self) -> Number:
        """Return the FLOP of the kind, or of its gradient, for every element [FLOP]."""
        if self.backward:
            return float(GRADIENTS[self.kind].flop) * self.numel
        return float(KINDS[self.kind].flop) * self.numel

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the inputs as one stack [num_inputs, numel], the output [numel], and for dropout its mask."""
        if self.backward:
            return self._gradients()
        if not KINDS[self.kind].inputs:
            return (Tensor.output("y", (self.numel,), self.out_dtype),)
        tensors = (
            Tensor.input("x", (self.num_inputs, self.numel), self.dtype),
            Tensor.output("y", (self.numel,), self.out_dtype),
        )
        return (*tensors, Tensor.output("mask", (self.numel,), "int8")) if KINDS[self.kind].mask else tensors

    def _gradients(self) -> tuple[Tensor, ...]:
        """Return dy with the tensors that the gradient needs, and the gradients; fewer with a scalar operand."""
        rules, inputs = GRADIENTS[self.kind], 1.0 * self.num_inputs
        tensors = (
            Tensor.input("dy", (self.numel,), self.out_dtype),
            Tensor.input("x", (minimum(float(rules.reads), inputs), self.numel), self.dtype),
            Tensor.output("dx", (minimum(float(rules.writes), inputs), self.numel), self.dtype),
        )
        mask = (Tensor.input("mask", (self.numel,), "int8"),) if KINDS[self.kind].mask else ()
        return (*tensors, *mask)
