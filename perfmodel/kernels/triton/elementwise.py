"""Elementwise kinds in Triton: one kernel each, also for the chain of four."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.triton._base import torch_dtype, unavailable
from perfmodel.operators.elementwise import KINDS, Elementwise

DTYPES = ("fp32", "bf16", "fp16")
#: the kinds that the kernel supports
FUSED = ("add", "mul", "silu_mul", "chain4", "gelu", "silu", "relu", "copy")


def _supports(op: Elementwise, device: Device) -> str:
    if op.kind not in FUSED:
        return f"there is no Triton kernel for {op.kind}, only for {', '.join(FUSED)}"
    if op.num_inputs != KINDS[op.kind].inputs:
        return f"the Triton kernel needs {KINDS[op.kind].inputs} tensors for {op.kind}, not {op.num_inputs}"
    return unavailable(device, DTYPES, op.dtype, op.out_dtype)


def _prepare(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    from perfmodel.kernels.triton._elementwise import fused

    operands, dtype, kind = inputs["x"].unbind(), torch_dtype(op.out_dtype), op.kind

    def call() -> torch.Tensor:
        out = torch.empty_like(operands[0], dtype=dtype)
        fused(kind, operands, out)
        return out

    return call


KERNELS = (Kernel("triton.elementwise", "elementwise", "triton", _prepare, _supports),)
