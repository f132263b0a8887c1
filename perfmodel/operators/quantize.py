"""Quantisation to 8 or 4 bits, with a scale for each row, each group of columns, or all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators.base import Operator, choice, dtype_of, size
from perfmodel.operators.checks import first_point

#: dtypes that rows are quantised to
QUANTISED = ("fp8", "int8", "fp4")
#: what shares a scale
SCALES = ("row", "tensor", "group:16", "group:32", "group:64", "group:128")


def scales(op: Any) -> tuple[Number, ...]:
    """Return the shape of the scales of an operator with ``rows``, ``cols`` and ``scale``."""
    shapes: dict[str, tuple[Number, ...]] = {"row": (op.rows,), "tensor": (1,)}
    return shapes.get(op.scale) or (op.rows, op.cols / _group(op.scale))


def _group(scale: str) -> int:
    """Return the columns that share a scale; 1 where it is not of groups."""
    return int(scale.partition(":")[2] or 1)


def check_group(op: Any) -> None:
    """Check that groups divide the columns, where scales are of groups."""
    if anywhere(rest := op.cols % _group(op.scale)):
        (cols,) = first_point(rest, op.cols)
        raise UsageError(
            f"scale={op.scale} does not divide cols={cols}.",
            place=op.op,
            remedy="All groups of a row have the same number of columns.",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantize(Operator):
    """q[r, c] = round(x[r, c] / scale) with scale = max |x| / largest number of ``dtype`` over what shares it.

    FLOP = 5 an element: the absolute value, the comparison for the maximum, the product with the inverse of the scale,
    the rounding and the clamp. Traffic reads x once, and writes q and the scales in fp32: 2 N + N + 4 R bytes from
    bf16 to 8 bits with a scale a row, + 4 N / g with a scale for each g columns. A scale for the whole tensor is known
    only after a first pass: x is read twice, 5 N + 4 bytes. Serving libraries run it in front of a product in
    8 or 4 bits (`Gemm` includes it for them unless ``quantized`` is set).

    Parameters
    ----------
    rows, cols : sizes of x; the rows and the columns of A of a product.
    dtype : "fp8", "int8" or "fp4".
    in_dtype : dtype of x.
    scale : what shares a scale: "row", "tensor", or "group:128", so many columns of a row (16, 32, 64, 128).
    """

    op: ClassVar[str] = "quantize"
    preferred_engine: ClassVar[str] = "vector"

    dtype: str = dtype_of("fp8", doc="dtype of the result: fp8, int8 or fp4")
    rows: Number = size(doc="rows of x")
    cols: Number = size(doc="columns of x")
    in_dtype: str = dtype_of("bf16", doc="dtype of x")
    scale: str = choice("row", SCALES, quiet=True, doc="what shares a scale: a row, a group of its columns, or all")

    def check(self) -> None:
        """Refuse dtypes of 16 bits and more, and groups that do not divide the columns."""
        if self.dtype not in QUANTISED:
            raise unknown_name("dtype to quantise to", self.dtype, QUANTISED, place="quantize: dtype")
        check_group(self)

    def flop(self) -> Number:
        """Return 5 rows cols [FLOP]."""
        return 5.0 * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], read twice for one scale of all; q [rows, cols] and the scales."""
        passes = 2.0 if self.scale == "tensor" else 1.0
        return (
            Tensor("x", (self.rows, self.cols), self.in_dtype, reads=passes, repeated=passes - 1.0),
            Tensor.output("q", (self.rows, self.cols), self.dtype),
            Tensor.output("scales", scales(self), "fp32"),
        )
