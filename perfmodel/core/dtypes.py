"""Data types: their names, their size in memory, and the spellings that other tools use."""

from __future__ import annotations

from types import MappingProxyType

from perfmodel.errors import unknown_name

#: bytes of an element, without scales. tf32 is stored as fp32: only the tensor engine rounds it. int32 and int64 are
#: indices.
DTYPE_BYTES = MappingProxyType(
    {
        "fp64": 8.0,
        "tf32": 4.0,
        "fp32": 4.0,
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8": 1.0,
        "int8": 1.0,
        "fp4": 0.5,
        "int4": 0.5,
        "int64": 8.0,
        "int32": 4.0,
    }
)

_ALIASES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}


def canonical_dtype(name: object, *, place: str = "") -> str:
    """Return perfmodel's name of a dtype: of a name, or of what NumPy and torch have for it.

    Raises
    ------
    UsageError
        When the name is unknown.

    >>> canonical_dtype("torch.bfloat16")
    'bf16'
    """
    if type(name) is str and name in DTYPE_BYTES:
        return name
    text = name.__name__ if isinstance(name, type) and name.__module__ != "builtins" else str(name)  # numpy.float16
    short = text.strip().lower().removeprefix("torch.")
    short = _ALIASES.get(short, short)
    if short not in DTYPE_BYTES:
        raise unknown_name("dtype", str(name), DTYPE_BYTES, place=place)
    return short


def dtype_bytes(name: str) -> float:
    """Return the size of an element of a canonical dtype in memory [B]."""
    return DTYPE_BYTES[name]
