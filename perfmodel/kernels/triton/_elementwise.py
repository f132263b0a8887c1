"""Code of the elementwise kinds: one pass over memory, arithmetic in float32."""

# Triton compiles branches away, so that each side returns.
# ruff: noqa: RET505

from __future__ import annotations

import torch
import triton
import triton.language as tl

from perfmodel.kernels.triton._base import LAUNCH_OPTIONS
from perfmodel.kernels.triton._tune import config, tuned

#: the search space: 8 to 32 elements per thread, so that each has at least 16 bytes of every input in flight
CONFIGS = (
    config(4, 1, BLOCK=1024),
    config(4, 1, BLOCK=2048),
    config(8, 1, BLOCK=4096),
    config(4, 1, BLOCK=4096),
)
#: tensors with at least this many elements are tuned separately
_LARGE = 2**22


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def _value(x, y, z, KIND: tl.constexpr):
    """Return the result of the kind; missing operands are x."""
    if KIND == "add":
        return x + y
    elif KIND == "mul":
        return x * y
    elif KIND == "silu_mul":
        return _silu(x) * y
    elif KIND == "chain4":
        return _silu(_gelu(x + y) * z)
    elif KIND == "gelu":
        return _gelu(x)
    elif KIND == "silu":
        return _silu(x)
    elif KIND == "relu":
        return tl.maximum(x, 0.0)
    else:
        tl.static_assert(KIND == "copy")
        return x


@tuned(CONFIGS, ("KIND", "LARGE"), {"BLOCK": 256})
@triton.jit
def _fused(
    x_ptr, y_ptr, z_ptr, out_ptr, numel,
    KIND: tl.constexpr, INPUTS: tl.constexpr, LARGE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    if WIDE:
        start = start.to(tl.int64)
    at = start * BLOCK + tl.arange(0, BLOCK)
    inside = at < numel
    x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + at, mask=inside).to(tl.float32) if INPUTS > 1 else x
    z = tl.load(z_ptr + at, mask=inside).to(tl.float32) if INPUTS > 2 else x
    tl.store(out_ptr + at, _value(x, y, z, KIND).to(out_ptr.dtype.element_ty), mask=inside)


def fused(kind: str, operands: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
    """Write the result of a kind with one to three operands of equal length to ``out``."""
    numel = out.numel()
    x, y, z = (*operands, operands[0], operands[0])[:3]
    modes = {"KIND": kind, "INPUTS": len(operands), "LARGE": numel >= _LARGE, "WIDE": numel >= 2**31 - 2**16}
    _fused[lambda meta: (triton.cdiv(numel, meta["BLOCK"]),)](x, y, z, out, numel, **modes, **LAUNCH_OPTIONS)
