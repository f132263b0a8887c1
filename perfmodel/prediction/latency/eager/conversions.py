"""Quantisation and its inverse as PyTorch's operators run them, one after another."""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import product_of
from perfmodel.operators.dequantize import Dequantize
from perfmodel.operators.quantize import Quantize, scales
from perfmodel.prediction.latency.eager.passes import Pass, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import CONVERT_CYCLES

#: bytes of the numbers in between (fp32)
WIDE_BYTES = 4.0

CONVERT = Constant(
    "convert", "", CONVERT_CYCLES, 0.05, 5.0, 0.2, "SM cycles of an element that is widened, or becomes 8 bits"
)
SHARED = Constant("shared", "", 75.0, 5.0, 1000.0, 0.2, "SM cycles of one maximum over what shares a scale")


def _quantize(op: Quantize, narrow: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the magnitudes, their maxima, the scales (2 small kernels), fp32, the quotient, and the conversion."""
    numel, size = 1.0 * op.rows * op.cols, dtype_bytes(op.in_dtype)
    widened = [Pass(1.0, numel * (size + WIDE_BYTES), cycles=c["convert"] * numel)] if size < WIDE_BYTES else []
    return [
        Pass(1.0, 2.0 * numel * size),
        Pass(3.0, numel * size, cycles=c["shared"] * product_of(scales(op))),
        *widened,
        Pass(1.0, 2.0 * numel * WIDE_BYTES),
        Pass(1.0, numel * (WIDE_BYTES + narrow), cycles=c["convert"] * numel),
    ]


def _dequantize(op: Dequantize, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the conversion to fp32, the product with the scales, and the conversion to a narrower result."""
    numel, narrow = 1.0 * op.rows * op.cols, dtype_bytes(op.in_dtype)
    wide = max(WIDE_BYTES, size)
    rounded = [Pass(1.0, numel * (wide + size))] if size < wide else []
    return [
        Pass(1.0, numel * (narrow + wide), cycles=c["convert"] * numel),
        Pass(1.0, 2.0 * numel * wide),
        *rounded,
    ]


def _applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether PyTorch has the dtype of 8 bits."""
    return is_eager(op, machine, library) and "fp8" in (op.dtype, op.in_dtype)


FAMILY = eager_family(
    "eager_conversion", (CONVERT, SHARED), {"quantize": _quantize, "dequantize": _dequantize}, _applies
)
