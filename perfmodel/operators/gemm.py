"""General matrix multiplication: C = activation(A B + bias)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, product_of
from perfmodel.operators.base import Operator, choice, dtype_of, flag, scale_of, size
from perfmodel.operators.elementwise import ACTIVATIONS, KINDS
from perfmodel.operators.scales import check_divides, expand_format, format_name, scale_tensors


@dataclass(frozen=True, kw_only=True, eq=False)
class Gemm(Operator):
    """``batch`` products C[m, n] = activation(A[m, k] B[k, n] + bias[n]).

    FLOP = batch (2 m n k + m n [bias] + f m n [activation]); a fused multiply-add is 2 FLOP. Traffic reads A, B,
    their scales and the bias once and writes C once. Tests compare it with ``torch.utils.flop_counter``, which does not
    count bias and activation. Weights narrower than A are widened in registers, so that the product runs on the engine
    of A's dtype: ``dtype="fp16", weight_dtype="int4", scale="group:128"`` is W4A16. ``dtype`` may name such a format
    (`perfmodel.operators.scales.FORMATS`): int4_wo, int8_wo, sq, fp8_block, mxfp8, nvfp4, mxfp4.

    Parameters
    ----------
    m, n, k : sizes of the product.
    batch : number of independent products, each with its own A and B.
    weight_dtype : dtype of B; by default ``dtype``.
    scale : how B is scaled, and A where it has 8 or 4 bits: none, column, group:G or block:RxC (`scale_tensors`).
    out_dtype : dtype of C and the bias; by default ``dtype``, or bf16 for 8- and 4-bit inputs.
    bias : adds a bias of length n, as a linear layer does, so that B lies [n, k]; without one it may lie either way.
    activation : "none" or an elementwise kind with one input, fused into the epilogue.
    quantized : A comes in 8 or 4 bits already. Otherwise a serving library (`QUANTISING`) quantises it first, which its
        measured time has in it; others compute the product alone, as torch._scaled_mm and cuBLASLt do. FLOP, traffic
        and bound are those of the product in either case (`Quantize` is the other part).
    """

    #: libraries, by the start of their name, whose layers take A in 16 bits and quantise it in the same call
    QUANTISING: ClassVar[tuple[str, ...]] = ("sglang", "trtllm", "vllm")

    op: ClassVar[str] = "gemm"
    preferred_engine: ClassVar[str] = "tensor"

    m: Number = size(doc="rows of A and C")
    n: Number = size(doc="columns of B and C")
    k: Number = size(doc="columns of A, rows of B")
    batch: Number = size(1, doc="independent products")
    weight_dtype: str = dtype_of(doc="dtype of B; default: dtype")
    scale: str = scale_of(doc="scales of quantised operands: none, column, group:128, block:128x128")
    out_dtype: str = dtype_of(doc="dtype of C; default: dtype, or bf16 for 8- and 4-bit inputs")
    bias: bool = flag(False, doc="add a bias of length n, as a linear layer does, whose weights lie [n, k]")
    activation: str = choice("none", ("none", *ACTIVATIONS), doc="fused into the epilogue")
    quantized: bool = flag(False, doc="A comes in 8 or 4 bits already, so that no serving library quantises it first")

    def __post_init__(self) -> None:
        expand_format(self)
        super().__post_init__()

    def check(self) -> None:
        """Derive the other dtypes: products of 8 and 4 bits are written with 16 bits. Check the groups of the scale."""
        narrow = dtype_bytes(self.dtype) < 2
        self.derive(out_dtype="bf16" if narrow else self.dtype, weight_dtype=self.dtype, scale="none")
        check_divides(self.op, self.scale, k=self.k)

    @property
    def kernel_dtype(self) -> str:
        """The dtype of the weights, on which the kernel depends more than on that of the activations."""
        return self.weight_dtype

    @property
    def number_format(self) -> str:
        """The dtype, or both dtypes and the scale where the operands differ or have scales: "fp16 int4 group:128"."""
        return format_name(self.dtype, self.weight_dtype, self.scale)

    def is_quantised_by(self, library: str) -> bool:
        """Return whether a library's call quantises A before it multiplies."""
        return not self.quantized and library.startswith(self.QUANTISING)

    def flop(self) -> Number:
        """Return batch (2 m n k + m n [bias] + f m n [activation]) [FLOP]."""
        outputs = product_of((self.batch, self.m, self.n))
        per_output = self.bias + (KINDS[self.activation].flop if self.activation != "none" else 0)
        products = 2.0 * self.k * outputs
        return products + per_output * outputs if per_output else products

    def tensors(self) -> tuple[Tensor, ...]:
        """Return A [batch, m, k], B [batch, k, n], their scales, the bias [n] and C [batch, m, n]."""
        inputs = [
            Tensor.input("a", (self.batch, self.m, self.k), self.dtype),
            Tensor.input("b", (self.batch, self.k, self.n), self.weight_dtype),
        ]
        if self.scale != "none":
            inputs += scale_tensors(self.dtype, self.weight_dtype, self.scale, self.m, self.n, self.k, self.batch)
        if self.bias:
            inputs.append(Tensor.input("bias", (self.n,), self.out_dtype))
        return (*inputs, Tensor.output("c", (self.batch, self.m, self.n), self.out_dtype))
