"""The largest elements of rows: torch.topk, and the first elements of a sort."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk


def _library(op: Topk, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, k = inputs["x"], int(op.k)
    return lambda: torch.topk(x, k, -1).values


def _sorted(op: Topk, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, k = inputs["x"], int(op.k)
    return lambda: torch.sort(x, -1, descending=True).values[:, :k]


def _sorting(op: Topk) -> tuple[Operator, ...]:
    """All keys of each row with their indices."""
    return (Sort(rows=op.rows, cols=op.cols, value_dtype="int64", dtype=op.dtype),)


def _workspace_bytes(op: Topk) -> float:
    """Return the memory of the sorted row and its indices [B]."""
    return float(op.rows * op.cols) * 12.0


KERNELS = (
    Kernel("torch.topk", "topk", "torch", _library, supports_dtype),
    Kernel("naive", "topk", "torch", _sorted, supports_dtype, workspace_bytes=_workspace_bytes, composition=_sorting),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="rows=8 cols=32768 k=50",
    cpu_full="rows=8 cols=4096..131072 k=50",
    cuda_quick="rows=64 cols=131072 k=50",
    cuda_targets="rows=1024 cols=131072 k=50",
    cuda_more="""
        rows=1/64 cols=8192/131072/1048576 k=50
        rows=64 cols=131072 k=50 dtype=bf16
    """,
)
