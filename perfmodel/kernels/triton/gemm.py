"""Matrix products in Triton: one block per tile, one block per multiprocessor, and the latter with descriptors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import torch

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel, Prepare
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.kernels.triton._base import (
    TMA_ALIGNMENT_BYTES,
    TMA_CAPABILITY,
    is_wide,
    product_modes,
    torch_dtype,
    unavailable,
    unsupported_dtype,
)
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.transpose import Transpose

#: products of 8-bit inputs are written with 16 or 32 bits, as by default in the operator
_INPUTS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_OUTPUTS = ("fp32", "tf32", "bf16", "fp16")
#: the largest depth of a tile; if k is a multiple of it, no tile needs a mask
_DEEPEST = 128
#: rows of the flattest tile with descriptors
_FEWEST_ROWS = 64
#: with so many rows, reading and writing B once more takes less time than tensor cores lose on rows of B: at 3 TB/s it
#: is 2.7 ps an element, and an H100 multiplied m rows at 85 TFLOP/s in place of about 350, 0.018 ps each
_ROWS_TO_TURN = 256


def _supports(op: Gemm, device: Device) -> str:
    if op.number_format != op.dtype:
        return f"the kernel computes products of one dtype without scales, not {op.number_format}"
    return unsupported_dtype(_OUTPUTS, op.out_dtype) or unavailable(device, _INPUTS, op.dtype)


def _supports_descriptors(op: Gemm, device: Device) -> str:
    if op.batch != 1:
        return "the kernel with descriptors computes a single product, not a batch"
    for name, size, dtype in (("k", op.k, op.dtype), ("n", op.n, op.dtype), ("n", op.n, op.out_dtype)):
        if size * dtype_bytes(dtype) % TMA_ALIGNMENT_BYTES:
            return f"rows of {name}={size} {dtype} elements are not a multiple of {TMA_ALIGNMENT_BYTES} bytes"
    if op.m < _FEWEST_ROWS:
        return f"tiles with descriptors have {_FEWEST_ROWS} rows, more than m={op.m}; triton.gemm has smaller ones"
    return _supports(op, device) or unavailable(device, _INPUTS, op.dtype, least=TMA_CAPABILITY)


def _turns(op: Gemm, b: torch.Tensor) -> bool:
    """Return whether B is copied to columns first: Hopper's tensor cores read 32-bit operands only along k."""
    return bool(op.dtype == "tf32" and op.m >= _ROWS_TO_TURN and b.stride(2) == 1 and b.stride(1) == b.shape[2])


def _parts(op: Gemm) -> tuple[Operator, ...]:
    """B copied to columns and the product, where they are two kernels."""
    if op.dtype != "tf32" or op.m < _ROWS_TO_TURN:
        return ()
    return (Transpose(rows=op.k, cols=op.n, dtype="fp32", count=int(op.batch)), op)


def _workspace_bytes(op: Gemm) -> float:
    return tensor_bytes(op, "b") if op.dtype == "tf32" else 0.0


def _preparing(variant: str) -> Prepare:
    """Return ``prepare`` for one of the functions of the module with the code."""

    def prepare(op: Gemm, inputs: Mapping[str, torch.Tensor], /) -> Call:
        code = importlib.import_module("perfmodel.kernels.triton._gemm")
        launch = getattr(code, variant)
        a, b, bias = inputs["a"], inputs["b"], inputs.get("bias")
        turns = _turns(op, b)
        shape, out = (int(op.batch), int(op.m), int(op.n)), torch_dtype(op.out_dtype)
        modes = product_modes(op.dtype) | {"HAS_BIAS": bias is not None, "ACTIVATION": op.activation}
        if variant != "by_descriptor":
            wide = is_wide(a[0], b[0]) or shape[1] * shape[2] >= 2**31
            modes |= {"EVEN_K": op.k % _DEEPEST == 0, "WIDE": wide}

        def call() -> torch.Tensor:
            c = torch.empty(shape, dtype=out, device=a.device)
            launch(a, code.by_columns(b) if turns else b, c, bias, **modes)
            return c

        return call

    return prepare


KERNELS = tuple(
    Kernel(name, "gemm", "triton", _preparing(variant), supports, workspace_bytes=_workspace_bytes, composition=_parts)
    for name, variant, supports in (
        ("triton.gemm", "tiled", _supports),
        ("triton.gemm.persistent", "persistent", _supports),
        ("triton.gemm.tma", "by_descriptor", _supports_descriptors),
    )
)
