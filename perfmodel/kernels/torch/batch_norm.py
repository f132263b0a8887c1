"""Batch normalisation: F.batch_norm with the statistics of the batch, or with given ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.batch_norm import EPS, MEAN, VARIANCE
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.batch_norm import BatchNorm


def _library(op: BatchNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    if op.training:
        return lambda: F.batch_norm(x, None, None, training=True, eps=EPS)
    statistics = torch.float64 if x.dtype is torch.float64 else torch.float32
    mean, variance = (torch.full(x.shape[1:2], value, dtype=statistics, device=x.device) for value in (MEAN, VARIANCE))
    return lambda: F.batch_norm(x, mean, variance, training=False, eps=EPS)


_FORWARD = Kernel("F.batch_norm", "batch_norm", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=8 c=64 hw=3136
        n=8 c=512 hw=49
        n=8 c=64 hw=3136 training=false
        n=8 c=64 hw=3136 backward=true
    """,
    cuda_more="""
        n=256 c=64 hw=3136 dtype=bf16
        n=256 c=512 hw=49 dtype=bf16
        n=256 c=64 hw=3136 dtype=bf16 backward=true
    """,
)
