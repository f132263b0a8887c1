"""torch's dtypes and its rounding of float32 products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import MappingProxyType

import torch

#: dtypes in memory. tf32 is float32 there: only the tensor cores round it. fp8 is e4m3, the format of products. torch
#: computes with no tensors of 4 bits: int4 is a number a byte, which kernels pack, and fp4 twice its number, a byte
TORCH_DTYPES = MappingProxyType(
    {
        "fp64": torch.float64,
        "fp32": torch.float32,
        "tf32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp8": torch.float8_e4m3fn,
        "int8": torch.int8,
        "int4": torch.int8,
        "fp4": torch.int8,
    }
)
#: the magnitudes of fp4, e2m1 (OCP Microscaling Formats specification 1.0, section 5.3.3), doubled
FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12)
#: dtypes of indices
INTEGERS = MappingProxyType({"int64": torch.int64, "int32": torch.int32})
#: the oldest compute capability with 8-bit floating-point tensor cores (CUDA C++ Programming Guide)
FP8_CAPABILITY = (8, 9)
#: the dtypes of torch's ordinary calls
COMPUTED = tuple(dtype for dtype in TORCH_DTYPES if dtype not in ("fp8", "int8", "int4", "fp4"))


def unsupported_dtype(device_kind: str, *dtypes: str) -> str:
    """Return why torch kernels cannot run with one of these dtypes on a device, or an empty string."""
    for dtype in dtypes:
        if dtype not in COMPUTED:
            return f"there is no torch kernel for {dtype}, only for {', '.join(COMPUTED)}"
        if dtype == "tf32" and device_kind == "cpu":
            return "tf32 is a mode of tensor cores; a CPU has none"
    return ""


@contextlib.contextmanager
def rounding(dtype: str) -> Iterator[None]:
    """Run without gradients, with products and convolutions of float32 in full float32, or in tf32 for ``dtype`` tf32.

    cuDNN has a switch of its own, which torch leaves on: its convolutions would round to 11 bits.
    """
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions
