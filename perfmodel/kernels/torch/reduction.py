"""Sums of rows: torch.sum. Calibration also uses it to read memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import is_gradient
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.reduction import Reduction


def _library(op: Reduction, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: torch.sum(x, -1)


def _expanded(op: Reduction, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The gradient written to memory, as the operator after it does; autograd alone hands on a view of dy."""
    dy, shape = inputs["dy"], (int(op.rows), int(op.cols))
    return lambda: dy[:, None].expand(shape).contiguous()


KERNELS = (
    Kernel("torch.sum", "reduction", "torch", _library, supports_dtype),
    Kernel("torch.expand.backward", "reduction", "torch", _expanded, supports_dtype, is_gradient, gradient=True),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="rows=2048 cols=4096",
    cpu_full="""
        rows=64..16384 cols=1024
        rows=2048 cols=1024 backward=true
    """,
    cuda_quick="rows=65536 cols=4096 dtype=fp32",
    cuda_targets="rows=32768 cols=8192 dtype=bf16",
    cuda_sweep="rows=256..16384 cols=1024/4096/8192 dtype=fp32",
    cuda_more="""
        rows=32768 cols=8192 dtype=bf16 backward=true
    """,
)
