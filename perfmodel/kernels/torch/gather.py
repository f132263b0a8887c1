"""Gather: torch.gather of single elements."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.gather import Gather


def _library(op: Gather, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, index = inputs["x"], inputs["index"]
    return lambda: torch.gather(x, 0, index)


_FORWARD = Kernel("torch.gather", "gather", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        numel=1048576 table=16777216
        numel=1048576 table=16777216 distribution=zipf
        numel=1048576 table=16777216 distribution=same
        numel=1048576 table=4194304 backward=true
    """,
    cuda_more="""
        numel=16777216 table=268435456 dtype=fp32
        numel=16777216 table=268435456 distribution=zipf dtype=fp32
        numel=16777216 table=268435456 distribution=same dtype=fp32
        numel=16777216 table=268435456 dtype=fp32 backward=true
    """,
)
