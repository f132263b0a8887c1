"""What the kernels of linear attention and of the delta rule share: chunks of tokens, and which algorithm they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.torch._passes import streamed
from perfmodel.operators import Operator


def supports_chunks(op: Any, device: Device) -> str:
    """Return why a kernel cannot run an operator with chunks on a device, or an empty string."""
    if op.algorithm == "chunked" and int(op.seq) % int(min(op.chunk, op.seq)):
        return f"chunks of {op.chunk} tokens do not divide {op.seq}"
    return unsupported_dtype(device.kind, op.dtype)


def in_chunks(x: torch.Tensor, length: int) -> torch.Tensor:
    """Return [batch, heads, seq, ...] as [batch, heads, chunks, length, ...]."""
    return x.reshape(*x.shape[:2], -1, length, *x.shape[3:])


def of_each_head(op: Any, x: torch.Tensor) -> torch.Tensor:
    """Return queries or keys [batch, key_heads, ...] as those of each head [batch, heads, ...]."""
    group = int(op.heads // op.key_heads)
    return x.repeat_interleave(group, 1) if group > 1 else x


def repeating(op: Any) -> tuple[Operator, ...]:
    """Return the kernels of `of_each_head` for queries and keys, a copy in fp32."""
    if op.key_heads == op.heads:
        return ()
    return streamed(2.0 * op.batch * op.seq * op.heads * op.head_dim, "fp32", "copy")


def computes(algorithm: str) -> Callable[[Any], bool]:
    """Return whether an operator has an algorithm, as a condition of a kernel."""
    return lambda op: bool(op.algorithm == algorithm)
