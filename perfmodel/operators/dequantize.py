"""Dequantisation: numbers of 8 or 4 bits times their scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.errors import unknown_name
from perfmodel.operators.base import Operator, choice, dtype_of, size
from perfmodel.operators.quantize import QUANTISED, SCALES, check_group, scales


@dataclass(frozen=True, kw_only=True, eq=False)
class Dequantize(Operator):
    """x[r, c] = q[r, c] scale, the inverse of `Quantize`.

    FLOP = 2 an element: the conversion and the product. Traffic reads q and the scales, and writes x: N (q + s) bytes
    and 4 for each scale.

    Parameters
    ----------
    rows, cols : sizes of x.
    dtype : dtype of the result.
    in_dtype : "fp8", "int8" or "fp4".
    scale : what shares a scale, as in `Quantize`.
    """

    op: ClassVar[str] = "dequantize"

    dtype: str = dtype_of("bf16", doc="dtype of the result")
    rows: Number = size(doc="rows of x")
    cols: Number = size(doc="columns of x")
    in_dtype: str = dtype_of("fp8", doc="dtype of q: fp8, int8 or fp4")
    scale: str = choice("row", SCALES, doc="what shares a scale: a row, a group of its columns, or all")

    def check(self) -> None:
        """Refuse inputs of 16 bits and more, and groups that do not divide the columns."""
        if self.in_dtype not in QUANTISED:
            raise unknown_name("dtype to dequantise", self.in_dtype, QUANTISED, place="dequantize: in_dtype")
        check_group(self)

    def flop(self) -> Number:
        """Return 2 rows cols [FLOP]."""
        return 2.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return q [rows, cols], the scales and x [rows, cols]."""
        return (
            Tensor.input("q", (self.rows, self.cols), self.in_dtype),
            Tensor.input("scales", scales(self), "fp32"),
            Tensor.output("x", (self.rows, self.cols), self.dtype),
        )
