"""Embedding look-up: F.embedding."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.embedding import Embedding


def _library(op: Embedding, inputs: Mapping[str, torch.Tensor]) -> Call:
    table, index = inputs["table"], inputs["index"]
    return lambda: F.embedding(index, table)


_FORWARD = Kernel("F.embedding", "embedding", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        tokens=256..16384 vocab=32000 dim=512
        tokens=4096 vocab=32000 dim=128 backward=true
    """,
    cuda_sweep="tokens=256..131072 vocab=131072 dim=1024 dtype=bf16",
    cuda_more="""
        tokens=16384 vocab=131072 dim=4096 dtype=bf16
        tokens=16384 vocab=131072 dim=4096 dtype=bf16 backward=true
    """,
)
