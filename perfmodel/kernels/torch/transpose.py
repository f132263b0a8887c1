"""Transposition in memory: a contiguous copy of the transposed view."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.transpose import Transpose


def _library(op: Transpose, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: x.mT.contiguous()


KERNELS = (Kernel("torch.contiguous", "transpose", "torch", _library, supports_dtype),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="rows=1024 cols=1024/1000",
    cuda_more="rows=8192 cols=8192 dtype=bf16",
)
