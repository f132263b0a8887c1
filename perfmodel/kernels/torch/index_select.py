"""Selection of rows: torch.index_select."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.index_select import IndexSelect


def _library(op: IndexSelect, inputs: Mapping[str, torch.Tensor]) -> Call:
    table, index = inputs["table"], inputs["index"]
    return lambda: torch.index_select(table, 0, index)


_FORWARD = Kernel("torch.index_select", "index_select", "torch", _library, supports_dtype)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=16384 cols=512 table=65536
        rows=16384 cols=512 table=65536 distribution=zipf
        rows=16384 cols=512 table=65536 distribution=same
        rows=16384 cols=128 table=16384 backward=true
    """,
    cuda_more="""
        rows=65536 cols=1024 table=131072 dtype=fp32
        rows=65536 cols=1024 table=131072 distribution=zipf dtype=fp32
        rows=65536 cols=1024 table=131072 dtype=fp32 backward=true
    """,
)
