"""Quantisation of rows to 8 or 4 bits, each row with its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.errors import unknown_name
from perfmodel.operators.base import Operator, dtype_of, size

#: dtypes that rows are quantised to
QUANTISED = ("fp8", "int8", "fp4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantize(Operator):
    """q[r, c] = round(x[r, c] / scale[r]) with scale[r] = max |x[r, :]| / largest number of ``dtype``.

    FLOP = 3 an element: the absolute value, the comparison for the maximum, and the product with the inverse of the
    scale. Traffic reads x once, and writes q and the scales in fp32. Libraries run it in front of a product in 8 or 4
    bits (`Gemm` includes it unless ``quantized`` is set).

    Parameters
    ----------
    rows, cols : sizes of x; the rows and the columns of A of a product.
    dtype : "fp8", "int8" or "fp4".
    in_dtype : dtype of x.
    """

    op: ClassVar[str] = "quantize"
    preferred_engine: ClassVar[str] = "vector"

    dtype: str = dtype_of("fp8", doc="dtype of the result: fp8, int8 or fp4")
    rows: Number = size(doc="rows of x, each with its scale")
    cols: Number = size(doc="columns of x")
    in_dtype: str = dtype_of("bf16", doc="dtype of x")

    def check(self) -> None:
        """Refuse dtypes of 16 bits and more."""
        if self.dtype not in QUANTISED:
            raise unknown_name("dtype to quantise to", self.dtype, QUANTISED, place="quantize: dtype")

    def flop(self) -> Number:
        """Return 3 rows cols [FLOP]."""
        return 3.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], q [rows, cols] and the scales [rows]."""
        return (
            Tensor.input("x", (self.rows, self.cols), self.in_dtype),
            Tensor.output("q", (self.rows, self.cols), self.dtype),
            Tensor.output("scales", (self.rows,), "fp32"),
        )
