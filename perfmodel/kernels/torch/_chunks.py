"""What the kernels of linear attention and of the delta rule share: chunks of tokens, and which algorithm they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype


def supports_chunks(op: Any, device: Device) -> str:
    """Return why a kernel cannot run an operator with chunks on a device, or an empty string."""
    if op.algorithm == "chunked" and int(op.seq) % int(min(op.chunk, op.seq)):
        return f"chunks of {op.chunk} tokens do not divide {op.seq}"
    return unsupported_dtype(device.kind, op.dtype)


def in_chunks(x: torch.Tensor, length: int) -> torch.Tensor:
    """Return [batch, heads, seq, ...] as [batch, heads, chunks, length, ...]."""
    return x.reshape(*x.shape[:2], -1, length, *x.shape[3:])


def computes(algorithm: str) -> Callable[[Any], bool]:
    """Return whether an operator has an algorithm, as a condition of a kernel."""
    return lambda op: bool(op.algorithm == algorithm)
