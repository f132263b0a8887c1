"""Look-up of bags of rows: F.embedding_bag."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.embedding_bag import EmbeddingBag


def _library(op: EmbeddingBag, inputs: Mapping[str, torch.Tensor]) -> Call:
    table, index = inputs["table"], inputs["index"]
    return lambda: F.embedding_bag(index, table, mode="sum")


_FORWARD = Kernel("F.embedding_bag", "embedding_bag", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        bags=256..2048 pooling=20 vocab=100000 dim=64
        bags=1024 pooling=20 vocab=10000 dim=64 backward=true
    """,
    cuda_more="""
        bags=8192 pooling=20 vocab=1000000 dim=128 dtype=fp32
        bags=8192 pooling=20 vocab=1000000 dim=128 dtype=fp32 backward=true
    """,
)
