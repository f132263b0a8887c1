"""Flash attention in Triton: by blocks of queries, the same with descriptors, and with split keys for decode."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel, Prepare
from perfmodel.kernels.triton._base import NARROW_LIMIT, TMA_CAPABILITY, product_modes, unavailable
from perfmodel.operators.attention import Attention

_DTYPES = ("fp32", "tf32", "bf16", "fp16")
#: with at most this many queries per key head, counted over its query heads, keys are split instead of queries
_FEW_QUERIES = 64
_WIDEST_HEAD = 256
#: the module with the code of each variant
_MODULES = MappingProxyType({"flash": "_attention", "flash_by_descriptor": "_attention", "decode": "_decode"})


def _is_few(op: Attention) -> bool:
    return bool(op.heads // op.kv_heads * op.seq_q <= _FEW_QUERIES)


def _is_many(op: Attention) -> bool:
    return not _is_few(op)


def _supports(op: Attention, device: Device) -> str:
    if op.algorithm == "unfused":
        return "the operator requires the unfused algorithm"
    if op.kv_dtype != op.dtype:
        return f"the Triton kernel does not support {op.kv_dtype} keys with {op.dtype} queries"
    if op.value_columns != op.head_dim:
        return f"the Triton kernel has no values of {op.value_columns} columns beside keys of {op.head_dim}"
    if op.head_dim > _WIDEST_HEAD:
        return f"head_dim={op.head_dim} does not fit one block; at most {_WIDEST_HEAD} does"
    if max(op.seq_q, op.seq_kv) * op.head_dim >= NARROW_LIMIT:
        return "offsets within one head need more than 32 bits"
    return unavailable(device, _DTYPES, op.dtype)


def _supports_descriptors(op: Attention, device: Device) -> str:
    if op.dtype not in ("bf16", "fp16"):
        return f"the kernel with descriptors supports bf16 and fp16, not {op.dtype}"
    if op.head_dim not in (64, 128):
        return f"the kernel with descriptors supports head_dim=64 and 128, not {op.head_dim}"
    return _supports(op, device) or unavailable(device, _DTYPES, op.dtype, least=TMA_CAPABILITY)


def _preparing(variant: str) -> Prepare:
    """Return ``prepare`` for one of the variants."""

    def prepare(op: Attention, inputs: Mapping[str, torch.Tensor], /) -> Call:
        launch = getattr(importlib.import_module(f"perfmodel.kernels.triton.{_MODULES[variant]}"), variant)
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        causal, window, modes = bool(op.causal), int(op.window), product_modes(op.dtype)

        def call() -> torch.Tensor:
            o = torch.empty_like(q)
            launch(q, k, v, o, causal, window, modes)
            return o

        return call

    return prepare


KERNELS = (
    Kernel("triton.attention", "attention", "triton", _preparing("flash"), _supports, applies=_is_many),
    Kernel(
        "triton.attention.tma",
        "attention",
        "triton",
        _preparing("flash_by_descriptor"),
        _supports_descriptors,
        applies=_is_many,
    ),
    Kernel("triton.attention.split", "attention", "triton", _preparing("decode"), _supports, applies=_is_few),
)
