"""Latent attention by F.scaled_dot_product_attention: one key head, whose first columns are its values."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.mla import as_attention
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch import _sdpa
from perfmodel.operators.attention import Attention
from perfmodel.operators.mla import Mla


def _prepare(op: Mla, inputs: Mapping[str, torch.Tensor]) -> Call:
    return _sdpa.prepare("", *as_attention(op, inputs))


def _supports(op: Mla, device: Device) -> str:
    if op.chosen:
        return "scaled_dot_product_attention attends to all keys, and the operator to chosen ones"
    return _sdpa.supports("", op.attention(), device)


def _own(op: Mla) -> Attention:
    """The operator as the kernel sees it, which reads keys and values apart."""
    return op.attention()


KERNELS = (Kernel("torch.sdpa", "mla", "torch", _prepare, _supports, own_operator=_own),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        batch=2 heads=16 seq_kv=1024
        heads=16 seq_q=2 seq_kv=1024 causal=true dtype=bf16
    """,
    cuda_more="batch=32 heads=16 seq_kv=4096 dtype=bf16",
)
