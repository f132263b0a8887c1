"""Group normalisation: F.group_norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.group_norm import EPS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.group_norm import GroupNorm


def _library(op: GroupNorm, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, gamma, beta, groups = inputs["x"], inputs["gamma"], inputs["beta"], int(op.groups)
    return lambda: F.group_norm(x, groups, gamma, beta, EPS)


_FORWARD = Kernel("F.group_norm", "group_norm", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=8 groups=32 c=256 hw=784
        n=8 groups=32 c=256 hw=784 backward=true
    """,
    cuda_more="""
        n=64 groups=32 c=256 hw=4096 dtype=bf16
        n=64 groups=32 c=512 hw=1024 dtype=bf16
        n=64 groups=32 c=256 hw=4096 dtype=bf16 backward=true
    """,
)
