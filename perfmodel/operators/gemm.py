"""General matrix multiplication: C = activation(A B + bias)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size
from perfmodel.operators.elementwise import ACTIVATIONS, KINDS


@dataclass(frozen=True, kw_only=True, eq=False)
class Gemm(Operator):
    """``batch`` products C[m, n] = activation(A[m, k] B[k, n] + bias[n]).

    FLOP = batch (2 m n k + m n [bias] + f m n [activation]); a fused multiply-add is 2 FLOP. Traffic reads A, B
    and the bias once and writes C once. Tests compare it with ``torch.utils.flop_counter``, which does not count bias
    and activation.

    Parameters
    ----------
    m, n, k : sizes of the product.
    batch : number of independent products, each with its own A and B.
    out_dtype : dtype of C and the bias; by default ``dtype``, or bf16 for 8- and 4-bit inputs.
    bias : adds a bias of length n.
    activation : "none" or an elementwise kind with one input, fused into the epilogue.
    quantized : A comes in 8 or 4 bits already. Otherwise the library quantises it first, which its measured time has
        in it; FLOP, traffic and bound are those of the product in either case (`Quantize` is the other part).
    """

    op: ClassVar[str] = "gemm"
    preferred_engine: ClassVar[str] = "tensor"

    m: Number = size(doc="rows of A and C")
    n: Number = size(doc="columns of B and C")
    k: Number = size(doc="columns of A, rows of B")
    batch: Number = size(1, doc="independent products")
    out_dtype: str = dtype_of(doc="dtype of C; default: dtype, or bf16 for 8- and 4-bit inputs")
    bias: bool = flag(False, doc="add a bias of length n")
    activation: str = choice("none", ("none", *ACTIVATIONS), doc="fused into the epilogue")
    quantized: bool = flag(False, doc="A comes in 8 or 4 bits already, so that no kernel quantises it first")

    def check(self) -> None:
        """Derive the output dtype: products of 8 and 4 bits are written with 16 bits."""
        self.derive(out_dtype="bf16" if self.dtype in ("fp8", "int8", "fp4") else self.dtype)

    def flop(self) -> Number:
        """Return batch (2 m n k + m n [bias] + f m n [activation]) [FLOP]."""
        outputs = 1.0 * self.batch * self.m * self.n
        per_output = self.bias + (KINDS[self.activation].flop if self.activation != "none" else 0)
        products = 2.0 * self.k * outputs
        return products + per_output * outputs if per_output else products

    def tensors(self) -> tuple[Tensor, ...]:
        """Return A [batch, m, k], B [batch, k, n], the bias [n] and C [batch, m, n]."""
        inputs = [
            Tensor.input("a", (self.batch, self.m, self.k), self.dtype),
            Tensor.input("b", (self.batch, self.k, self.n), self.dtype),
        ]
        if self.bias:
            inputs.append(Tensor.input("bias", (self.n,), self.out_dtype))
        return (*inputs, Tensor.output("c", (self.batch, self.m, self.n), self.out_dtype))
