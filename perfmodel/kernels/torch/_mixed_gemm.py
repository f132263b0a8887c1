"""Products of two dtypes, or with scales: torch's private calls, and widening B before an ordinary product.

The private calls are taken by name where torch has them. B of 4 bits is packed before the timing, and again only when
its numbers change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import COMPUTED, TORCH_DTYPES
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.scaled import widened
from perfmodel.kernels.torch._passes import streamed
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.scales import sides_of

#: groups and multiples of columns that torch's product with 4 bits has on a CPU (aten/native/LinearAlgebra.cpp)
_GROUPS, _COLUMNS = (32, 64, 128, 256), 16
#: rows, and the multiple of k and n, that torch._int_mm needs on a GPU (aten/native/cuda/Blas.cpp)
_INT_ROWS, _INT_MULTIPLE = 17, 8


def _function(name: str) -> Callable[..., Any] | None:
    return getattr(torch, name, None)


def _missing(op: Gemm, *names: str) -> str:
    """Return why a private call cannot run: torch lacks it, or it computes a single plain product."""
    if missing := [name for name in names if _function(name) is None]:
        return f"this torch has no {', '.join(missing)}"
    if op.batch != 1 or op.bias or op.activation != "none":
        return f"torch.{names[0]} computes a single product without bias and activation"
    return ""


def _supports_int(op: Gemm, device: Device) -> str:
    if device.kind == "cuda" and (op.m < _INT_ROWS or op.k % _INT_MULTIPLE or op.n % _INT_MULTIPLE):
        return f"torch._int_mm needs {_INT_ROWS} rows and multiples of {_INT_MULTIPLE}, not m={op.m} n={op.n} k={op.k}"
    return _missing(op, "_int_mm")


def _supports_int8_weights(op: Gemm, device: Device) -> str:
    if device.kind != "cpu":
        return "torch._weight_int8pack_mm runs on a CPU"
    return _missing(op, "_weight_int8pack_mm") or _other_scale(op, op.scale == "column")


def _supports_int4_weights(op: Gemm, device: Device) -> str:
    if device.kind != "cpu":
        return "torch._weight_int4pack_mm_for_cpu runs on a CPU"
    group = sides_of(op.scale)
    fits = len(group) == 1 and group[0] in _GROUPS and op.n % _COLUMNS == 0
    names = ("_weight_int4pack_mm_for_cpu", "_convert_weight_to_int4pack_for_cpu")
    return _missing(op, *names) or _other_scale(op, fits)


def _other_scale(op: Gemm, fits: bool) -> str:
    return "" if fits else f"torch's kernel has other scales or columns than scale={op.scale} n={op.n}"


def _supports_widening(op: Gemm, device: Device) -> str:
    for name, dtype in (("dtype", op.dtype), ("weight_dtype", op.weight_dtype), ("out_dtype", op.out_dtype)):
        if dtype not in TORCH_DTYPES:
            return f"torch has no tensors in {dtype} ({name})"
    return "" if op.bias == 0 and op.activation == "none" else "it has no bias and no activation"


def _integers(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch._int_mm, then the scale of each column; weights are stored by columns, as for `_bandwidth.special_product`.

    wgmma reads 8-bit factors only along k.
    """
    a, b, scale, out = inputs["a"][0], inputs["b"][0].mT.contiguous().mT, inputs["b_scale"], TORCH_DTYPES[op.out_dtype]
    multiply = _function("_int_mm")
    assert multiply is not None
    return lambda: (multiply(a, b) * scale).to(out)[None]


def _integer_parts(op: Gemm) -> tuple[Operator, ...]:
    """The product in 32-bit integers, its columns' scales, and the conversion of the result."""
    numel = op.m * op.n
    return (
        Gemm(m=op.m, n=op.n, k=op.k, dtype="int8", weight_dtype="int8", out_dtype="fp32"),
        *streamed(numel, "fp32", "mul", strided=True),
        Elementwise(numel=numel, kind="cast", dtype="fp32", out_dtype=op.out_dtype),
    )


def _int8_weights(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch._weight_int8pack_mm; the scales are rounded to the dtype of A."""
    a, b, scale, out = inputs["a"][0], inputs["b"][0].mT, inputs["b_scale"][0], TORCH_DTYPES[op.out_dtype]
    multiply = _function("_weight_int8pack_mm")
    assert multiply is not None
    return lambda: multiply(a, b, scale.to(a.dtype)).to(out)[None]


def _int4_weights(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch._weight_int4pack_mm_for_cpu, with B packed two numbers a byte and zero points of 0."""
    a, b, scale, out = inputs["a"][0], inputs["b"][0].mT, inputs["b_scale"][0], TORCH_DTYPES[op.out_dtype]
    group = sides_of(op.scale)[0]
    multiply, pack = _function("_weight_int4pack_mm_for_cpu"), _function("_convert_weight_to_int4pack_for_cpu")
    assert multiply is not None
    assert pack is not None
    packed: dict[str, Any] = {"versions": None}

    def call() -> torch.Tensor:
        versions = (b._version, scale._version)
        if packed["versions"] != versions:
            scales = scale.T.to(a.dtype)
            packed["b"] = pack(b.to(torch.int32) + 8, 1)
            packed["scales"] = torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()
            packed["versions"] = versions
        product: torch.Tensor = multiply(a, packed["b"], group, packed["scales"])
        return product.to(out)[None]

    return call


def _computed_in(op: Gemm) -> str:
    """Return the dtype that an ordinary product computes in: A's, or fp32 where A's has no such product."""
    return op.dtype if op.dtype in COMPUTED else "fp32"


def _widening(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Numbers times scales, then torch.matmul."""
    dtype, out = TORCH_DTYPES[_computed_in(op)], TORCH_DTYPES[op.out_dtype]

    def call() -> torch.Tensor:
        a, b = widened(op, inputs, dtype)
        return torch.matmul(a, b).to(out)

    return call


def _widening_parts(op: Gemm) -> tuple[Operator, ...]:
    """B is widened and scaled, passes over n k numbers, and multiplied; scales of groups are repeated first."""
    dtype, numel = _computed_in(op), op.batch * op.n * op.k
    weights = op.weight_dtype if op.weight_dtype == "fp8" else "int8"
    scaled: tuple[Operator, ...] = ()
    if op.scale == "column":
        scaled = streamed(numel, dtype, "mul", strided=True)
    elif op.scale != "none":
        repeated = streamed(numel, dtype, "copy", strided=True)
        scaled = (*repeated, *streamed(numel, dtype, "mul", tensors=2, strided=True))
    return (
        Elementwise(numel=numel, kind="cast", dtype=weights, out_dtype=dtype),
        *scaled,
        Gemm(m=op.m, n=op.n, k=op.k, batch=op.batch, dtype=dtype, out_dtype=op.out_dtype),
    )


def _is_mixed(op: Gemm) -> bool:
    return op.number_format != op.dtype


def _is_integer(op: Gemm) -> bool:
    return (op.dtype, op.weight_dtype, op.scale) == ("int8", "int8", "column")


def _has_weights(dtype: str) -> Callable[[Gemm], bool]:
    return lambda op: op.weight_dtype == dtype and op.dtype in COMPUTED


MIXED_KERNELS = (
    Kernel(
        "torch._int_mm", "gemm", "torch", _integers, _supports_int, applies=_is_integer, composition=_integer_parts
    ),
    Kernel(
        "torch._weight_int8pack_mm",
        "gemm",
        "torch",
        _int8_weights,
        _supports_int8_weights,
        applies=_has_weights("int8"),
    ),
    Kernel(
        "torch._weight_int4pack_mm",
        "gemm",
        "torch",
        _int4_weights,
        _supports_int4_weights,
        applies=_has_weights("int4"),
    ),
    Kernel(
        "widened", "gemm", "torch", _widening, _supports_widening, applies=_is_mixed, composition=_widening_parts,
        workspace_bytes=lambda op: 6.0 * float(op.batch * op.n * op.k),
    ),
)  # fmt: skip
