"""Attention: F.scaled_dot_product_attention, and the unfused composition that writes its scores to memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.attention import hidden
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention


def _supports_sdpa(op: Attention, device: Device) -> str:
    if op.algorithm == "unfused":
        return "the operator asks for the unfused algorithm"
    if op.kv_dtype != op.dtype:
        return f"scaled_dot_product_attention takes no {op.kv_dtype} keys with {op.dtype} queries"
    return unsupported_dtype(device.kind, op.dtype)


def _supports_naive(op: Attention, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.kv_dtype)


def _sdpa(op: Attention, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Without a mask tensor where torch can do without: its is_causal aligns the first query with the first key."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    grouped = bool(op.heads != op.kv_heads)
    square = op.causal and op.seq_q == op.seq_kv and not op.window
    sees_all = not op.causal or (op.seq_q == 1 and not op.window)
    if square or sees_all:
        causal = bool(square and op.seq_q > 1)
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    mask = ~_hidden(op, q.device)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


def _hidden(op: Attention, device: torch.device) -> torch.Tensor:
    mask = hidden(op, torch.arange(int(op.seq_q), device=device))
    assert mask is not None
    return mask


def _naive(op: Attention, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Product, mask, softmax, product: all scores are computed and cross memory several times."""
    q, group = inputs["q"], int(op.heads // op.kv_heads)
    dtype, scale = TORCH_DTYPES[op.dtype], 1 / math.sqrt(op.head_dim)
    mask = _hidden(op, q.device) if op.causal else None
    keys, values = inputs["k"], inputs["v"]

    def call() -> torch.Tensor:
        k, v = keys.to(dtype), values.to(dtype)
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.matmul(q, k.mT) * scale
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return torch.matmul(torch.softmax(scores, -1), v)

    return call


def _unfused(op: Attention) -> Operator:
    return dataclasses.replace(op, algorithm="unfused")


def _workspace_bytes(op: Attention) -> float:
    scores = next(float(t.size_bytes) for t in _unfused(op).tensors() if t.name == "scores")
    return 4.0 * scores


KERNELS = (
    Kernel("torch.sdpa", "attention", "torch", _sdpa, _supports_sdpa),
    Kernel(
        "naive", "attention", "torch", _naive, _supports_naive, workspace_bytes=_workspace_bytes, own_operator=_unfused
    ),
)
