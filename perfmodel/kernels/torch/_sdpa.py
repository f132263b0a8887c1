"""F.scaled_dot_product_attention by a named backend, and torch's reason where the backend does not support a shape."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch.nn.attention import SDPBackend, sdpa_kernel

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.attention import hidden
from perfmodel.kernels.registry import Call
from perfmodel.operators.attention import Attention

#: the last part of a kernel's name -> torch's name of the backend
BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "flash": "FLASH_ATTENTION",
        "efficient": "EFFICIENT_ATTENTION",
        "cudnn": "CUDNN_ATTENTION",
        "math": "MATH",
    }
)
#: the backends with a causal mask aligned to the lower right corner, without a mask tensor
_WITH_CORNER = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")
_ON_CPU = ("", "FLASH_ATTENTION", "MATH")
#: parts of torch's warnings that are not about the requested backend
_IRRELEVANT = ("not used because", "runtime disabled")


def supports(backend: str, op: Attention, device: Device) -> str:
    """Return why a backend ("" for torch's own choice) cannot run an operator on a device, or an empty string."""
    if op.algorithm == "unfused":
        return "the operator requires the unfused algorithm"
    if op.kv_dtype != op.dtype:
        return f"scaled_dot_product_attention does not support {op.kv_dtype} keys with {op.dtype} queries"
    if device.kind == "cpu" and backend not in _ON_CPU:
        return "torch has this backend only on GPUs"
    if backend == "EFFICIENT_ATTENTION" and op.heads != op.kv_heads:
        return "torch's memory-efficient kernel needs as many heads of keys as of queries"
    return unsupported_dtype(device.kind, op.dtype) or (_refusal(backend, op, device.kind) if backend else "")


def prepare(backend: str, op: Attention, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Return the call by a backend, without a mask tensor where torch does not need one."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    grouped = bool(op.heads != op.kv_heads)
    mask, causal = _mask(backend, op, q.device)

    def call() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)

    if not backend:
        return call

    def named() -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return call()

    return named


def _mask(backend: str, op: Attention, device: torch.device) -> tuple[Any, bool]:
    """Return attn_mask and is_causal; torch's is_causal aligns the first query with the first key."""
    square = op.causal and op.seq_q == op.seq_kv and not op.window
    sees_all = not op.causal or op.seq_q == 1  # with a window the inputs hold its keys alone
    if square or sees_all:
        return None, bool(square and op.seq_q > 1)
    if _supports_corner(backend, op, device):
        # This imports torch.compile, which takes seconds; a CPU does not need it.
        from torch.nn.attention.bias import causal_lower_right

        return causal_lower_right(int(op.seq_q), int(op.seq_kv)), False
    beyond = hidden(op, torch.arange(int(op.seq_q), device=device))
    assert beyond is not None
    return ~beyond, False


def _supports_corner(backend: str, op: Attention, device: torch.device) -> bool:
    """Return whether the mask is aligned to the lower right corner and the backend supports that without a tensor."""
    corner = op.causal and 1 < op.seq_q < op.seq_kv and not op.window
    return bool(corner and device.type == "cuda" and backend in _WITH_CORNER)


def _refusal(backend: str, op: Attention, device_kind: str) -> str:
    """Return torch's reason why a backend does not support the operator, for one sequence; empty if it does."""
    keys = op.kv_heads, op.keys()
    shapes = (op.heads, op.seq_q, op.head_dim), (*keys, op.head_dim), (*keys, op.value_columns)
    q, k, v = (torch.empty((1, *map(int, shape)), dtype=TORCH_DTYPES[op.dtype], device=device_kind) for shape in shapes)
    with warnings.catch_warnings(record=True) as caught, contextlib.suppress(RuntimeError):
        warnings.simplefilter("always")
        if _is_supported(backend, op, q, k, v):
            return ""
    reasons = [str(warning.message).partition(" (Triggered")[0].strip() for warning in caught]
    relevant = [reason for reason in reasons if not any(part in reason for part in _IRRELEVANT)]
    return relevant[0] if relevant else "torch reports that this backend does not support it"


def _is_supported(backend: str, op: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    grouped = bool(op.heads != op.kv_heads)
    mask, causal = _mask(backend, op, q.device)
    chosen = getattr(SDPBackend, backend)
    with sdpa_kernel(chosen):
        if _supports_corner(backend, op, q.device):
            parameters = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, grouped)
            flash = backend == "FLASH_ATTENTION"
            can_use = (
                torch.backends.cuda.can_use_flash_attention
                if flash
                else torch.backends.cuda.can_use_efficient_attention
            )
            return bool(can_use(parameters, False))  # True would write the reasons to stderr
        choice = torch._fused_sdp_choice(q, k, v, mask, 0.0, causal, enable_gqa=grouped)
        return bool(choice == chosen.value)
