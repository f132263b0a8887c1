"""Quantisation and its inverse as PyTorch's operators run them, one after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import product_of
from perfmodel.operators.base import Operator
from perfmodel.operators.dequantize import Dequantize
from perfmodel.operators.quantize import Quantize, scales
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.eager.passes import TERMS, Pass, is_eager, time_of
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START
from perfmodel.prediction.latency.terms import Terms

#: bytes of the numbers in between (fp32)
WIDE_BYTES = 4.0

CONVERT = Constant("convert", "", 0.82, 0.05, 5.0, 0.2, "SM cycles of an element that is widened, or becomes 8 bits")
SHARED = Constant("shared", "", 75.0, 5.0, 1000.0, 0.2, "SM cycles of one maximum over what shares a scale")


def _quantize(op: Quantize, c: Values) -> list[Pass]:
    """Return the magnitudes, their maxima, the scales (2 small kernels), fp32, the quotient, and the conversion."""
    numel, size, narrow = 1.0 * op.rows * op.cols, dtype_bytes(op.in_dtype), dtype_bytes(op.dtype)
    widened = [Pass(1.0, numel * (size + WIDE_BYTES), cycles=c["convert"] * numel)] if size < WIDE_BYTES else []
    return [
        Pass(1.0, 2.0 * numel * size),
        Pass(3.0, numel * size, cycles=c["shared"] * product_of(scales(op))),
        *widened,
        Pass(1.0, 2.0 * numel * WIDE_BYTES),
        Pass(1.0, numel * (WIDE_BYTES + narrow), cycles=c["convert"] * numel),
    ]


def _dequantize(op: Dequantize, c: Values) -> list[Pass]:
    """Return the conversion to fp32, the product with the scales, and the conversion to a narrower result."""
    numel, size, narrow = 1.0 * op.rows * op.cols, dtype_bytes(op.dtype), dtype_bytes(op.in_dtype)
    wide = max(WIDE_BYTES, size)
    rounded = [Pass(1.0, numel * (wide + size))] if size < wide else []
    return [
        Pass(1.0, numel * (narrow + wide), cycles=c["convert"] * numel),
        Pass(1.0, 2.0 * numel * wide),
        *rounded,
    ]


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the passes of a quantisation, or of its inverse."""
    passes = _quantize(op, c) if isinstance(op, Quantize) else _dequantize(op, c)  # type: ignore[arg-type]
    return time_of(passes, op.work().working_set_bytes, machine, c, conditions)


def _applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether PyTorch has the dtype of 8 bits."""
    return is_eager(op, machine, library) and "fp8" in (op.dtype, op.in_dtype)


FAMILY = Family(
    "eager_conversion",
    (replace(ETA, default=0.88), replace(START, default=2.0e-6), FEED, FILL, CONVERT, SHARED),
    formula,
    TERMS,
    _applies,
    streams=True,
    by_dtype=False,
)
