"""Scales of quantised operands: what they are called, how many there are, and the number formats that imply them."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.core.dtypes import DTYPE_BYTES, dtype_bytes
from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError

#: the largest side of a group or a block of numbers that share a scale
MOST_ELEMENTS = 65536
_GROUP = re.compile(r"group:([1-9]\d{0,4})")
_BLOCK = re.compile(r"block:([1-9]\d{0,4})x([1-9]\d{0,4})")


@dataclass(frozen=True)
class NumberFormat:
    """What a framework's name of a number format says of a product: both dtypes, and the scales.

    Attributes
    ----------
    dtype, weight_dtype, scale : of `Gemm` and `Moe`.
    quantized : whether A comes quantised, so that no kernel of the call does it.
    """

    dtype: str
    weight_dtype: str
    scale: str
    quantized: bool = False


#: the names that TensorRT-LLM, SGLang and vLLM have for pairs of dtypes (the columns of aiconfigurator's tables)
FORMATS = {
    "int4_wo": NumberFormat("fp16", "int4", "group:128"),
    "w4a16": NumberFormat("bf16", "int4", "group:128"),
    "int8_wo": NumberFormat("fp16", "int8", "column"),
    "w8a16": NumberFormat("bf16", "int8", "column"),
    # SmoothQuant: the layer norm before the product writes A in 8 bits (Xiao et al. 2022, arXiv 2211.10438).
    "sq": NumberFormat("int8", "int8", "column", quantized=True),
    "fp8_block": NumberFormat("fp8", "fp8", "block:128x128"),
    # NVIDIA's format has an fp8 scale for 16 numbers, the OCP's microscaling format an 8-bit exponent for 32
    # (OCP Microscaling Formats specification 1.0, section 5).
    "mxfp8": NumberFormat("fp8", "fp8", "group:32"),
    "nvfp4": NumberFormat("fp4", "fp4", "group:16"),
    "mxfp4": NumberFormat("fp4", "fp4", "group:32"),
    "w4a16_mxfp4": NumberFormat("bf16", "fp4", "group:32"),
    "w4a8_mxfp4_mxfp8": NumberFormat("fp8", "fp4", "group:32"),
}
#: formats of the weights alone
_WEIGHTS = ("nvfp4", "mxfp4")
#: dtypes whose groups have scales of 8 bits
MICROSCALED = ("fp4", "fp8")


def expand_format(op: Any) -> None:
    """Replace the name of a format in ``dtype`` or ``weight_dtype`` of an operator by what it stands for.

    What was given beside the name stays: ``dtype="int4_wo", scale="group:64"`` has groups of 64.
    """
    if str(op.dtype) in DTYPE_BYTES and (not op.weight_dtype or str(op.weight_dtype) in DTYPE_BYTES):
        return
    for field, names in (("dtype", tuple(FORMATS)), ("weight_dtype", _WEIGHTS)):
        name = str(getattr(op, field)).strip().lower()
        if name not in names:
            continue
        found = FORMATS[name]
        values: dict[str, Any] = {"weight_dtype": found.weight_dtype, "scale": found.scale}
        missing = {key: value for key, value in values.items() if key == field or not getattr(op, key)}
        if field == "dtype":
            missing["dtype"] = found.dtype
            if found.quantized and hasattr(op, "quantized"):
                missing["quantized"] = True
        for key, value in missing.items():
            object.__setattr__(op, key, value)


def format_name(dtype: str, weight_dtype: str, scale: str) -> str:
    """Return the dtype of a plain product, else both dtypes and the scale.

    >>> format_name("fp16", "fp16", "none"), format_name("fp16", "int4", "group:128")
    ('fp16', 'fp16 int4 group:128')
    """
    return dtype if weight_dtype == dtype and scale == "none" else f"{dtype} {weight_dtype} {scale}"


def check_scale(op: str, name: str, value: Any) -> str:
    """Return a scale's name as it is written: none, column, group:G or block:RxC.

    Raises
    ------
    UsageError
        When it is none of these.
    """
    text = str(value).strip().lower()
    sides = sides_of(text)
    if text not in ("none", "column") and (not sides or max(sides) > MOST_ELEMENTS):
        raise UsageError(
            f"{name}={str(value)[:40]!r} is no kind of scale.",
            place=op,
            remedy="Write none, column, group:128 (numbers along k that share a scale) or block:128x128 (n x k).",
        )
    return text


#: the most numbers along k that share a scale which instructions for scaled operands take
_MICROSCALE = 32


def is_microscaled(dtype: str, weight_dtype: str, scale: str) -> bool:
    """Return whether both operands have 8 or 4 bits and a scale for every 32 numbers or fewer, as mxfp8 has.

    >>> is_microscaled("fp8", "fp8", "group:32"), is_microscaled("fp8", "fp8", "block:128x128")
    (True, False)
    """
    sides = sides_of(scale)
    return may_be_microscaled(dtype, weight_dtype) and len(sides) == 1 and sides[0] <= _MICROSCALE


def may_be_microscaled(dtype: str, weight_dtype: str) -> bool:
    """Return whether instructions for scaled operands take both: those without scales get scales of one."""
    return dtype in MICROSCALED and weight_dtype in MICROSCALED


@functools.cache
def sides_of(scale: str) -> tuple[int, ...]:
    """Return the numbers that share a scale: along k for a group, along n and k for a block."""
    match = _GROUP.fullmatch(scale) or _BLOCK.fullmatch(scale)
    return tuple(map(int, match.groups())) if match else ()


def check_divides(op: str, scale: str, **sizes: Number) -> None:
    """Check that whole groups fill a row of the weights; a block at the edge may be cut off.

    Raises
    ------
    UsageError
        When a group does not divide one of the sizes along k.
    """
    sides = sides_of(scale)
    for name, size in sizes.items() if len(sides) == 1 else ():
        if anywhere(size % sides[0]):
            shown = size if np.ndim(size) == 0 else np.asarray(size)[np.mod(size, sides[0]) > 0].flat[0]
            raise UsageError(
                f"{name}={shown:g} is not a multiple of the {sides[0]} numbers of scale={scale}.",
                place=op,
                remedy="A group lies within a row of the weights; choose one that divides it.",
            )


def scale_tensors(
    dtype: str, weight_dtype: str, scale: str, m: Number, n: Number, k: Number, batch: Number = 1, name: str = ""
) -> tuple[Tensor, ...]:
    """Return the scales of a product A[m, k] B[k, n], read once.

    - "column": one for each column of B, in fp32;
    - "group:G": one for G numbers along k of B, in 8 bits for fp4 and fp8 (microscaling), else in 16; activations in
      fp4 and fp8 have them too;
    - "block:RxC": one in fp32 for R x C numbers of B [n, k], and one for C numbers along k of A, unless A has 16 bits.

    Parameters
    ----------
    dtype, weight_dtype : of A and B.
    scale : kind of scale.
    m, n, k, batch : sizes of the product.
    name : what the names of the tensors start with.
    """
    sides = sides_of(scale)
    narrow = dtype_bytes(dtype) < 2
    if scale == "column":
        return (Tensor.input(f"{name}b_scale", (batch, n), "fp32"),)
    if len(sides) == 1:
        groups = k / sides[0]
        b = Tensor.input(f"{name}b_scale", (batch, n, groups), _scale_dtype(weight_dtype, sides))
        a = Tensor.input(f"{name}a_scale", (batch, m, groups), "fp8")
        return (a, b) if narrow and dtype in MICROSCALED else (b,)
    if len(sides) == 2:
        columns = np.ceil(k / sides[1])
        b = Tensor.input(f"{name}b_scale", (batch, np.ceil(n / sides[0]), columns), "fp32")
        return (Tensor.input(f"{name}a_scale", (batch, m, columns), "fp32"), b) if narrow else (b,)
    return ()


def weight_bytes(weight_dtype: str, scale: str) -> float:
    """Return the size of a weight with its share of a group's or a block's scale [B].

    >>> weight_bytes("fp4", "group:16"), weight_bytes("fp4", "group:32"), weight_bytes("int4", "group:128")
    (0.5625, 0.53125, 0.515625)
    """
    sides = sides_of(scale)
    share = 0.0
    if sides:
        share = dtype_bytes(_scale_dtype(weight_dtype, sides)) / math.prod(sides)
    return dtype_bytes(weight_dtype) + share


def _scale_dtype(weight_dtype: str, sides: tuple[int, ...]) -> str:
    """Return the dtype of the scales of groups or blocks."""
    if len(sides) == 2:
        return "fp32"
    return "fp8" if weight_dtype in MICROSCALED else "bf16"
