"""Writing keys and values into a cache: index_copy_ at slots that all differ."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.kv_write import KvWrite


def _supports(op: KvWrite, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.cache_dtype)


def _library(op: KvWrite, inputs: Mapping[str, torch.Tensor]) -> Call:
    kv, slots, dtype = inputs["kv"], inputs["slots"], TORCH_DTYPES[op.cache_dtype]
    # the cache is the caller's: its memory is not part of the call
    cache = torch.empty(kv.shape, dtype=dtype, device=kv.device)
    if dtype == kv.dtype:
        return lambda: cache.index_copy_(1, slots, kv)
    return lambda: cache.index_copy_(1, slots, kv.to(dtype))


KERNELS = (Kernel("torch.index_copy", "kv_write", "torch", _library, _supports),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="tokens=64..4096 kv_heads=8 head_dim=128",
    cuda_more="tokens=8192 kv_heads=8 head_dim=128 dtype=bf16",
)
