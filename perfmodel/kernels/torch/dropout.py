"""Dropout: torch.native_dropout, which returns its mask, and F.dropout without one."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.dropout import DROPPED
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.dropout import Dropout


def _library(op: Dropout, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: torch.native_dropout(x, DROPPED, True)[0]


def _workspace_bytes(op: Dropout) -> float:
    return float(op.numel)


_FORWARD = Kernel(
    "torch.native_dropout", "dropout", "torch", _library, supports_dtype, workspace_bytes=_workspace_bytes
)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        numel=1048576/{beyond}
        numel=1048576 backward=true
    """,
    cuda_more="""
        numel=67108864 dtype=bf16
        numel=67108864 dtype=bf16 backward=true
    """,
)
