"""Sums into rows that indices name: index_add_ and, element by element, scatter_add_, into zeros."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.scatter_add import ScatterAdd


def _zeros(op: ScatterAdd, x: torch.Tensor) -> torch.Tensor:
    return torch.zeros((int(op.table), int(op.cols)), dtype=x.dtype, device=x.device)


def _rows(op: ScatterAdd, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, index = inputs["x"], inputs["index"]
    return lambda: _zeros(op, x).index_add_(0, index, x)


def _elements(op: ScatterAdd, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, index = inputs["x"], inputs["index"]
    # each element has its index, a view of those of the rows
    every = index[:, None].expand(x.shape)
    return lambda: _zeros(op, x).scatter_add_(0, every, x)


def _composition(op: ScatterAdd) -> tuple[Operator, ...]:
    return (Elementwise(numel=op.table * op.cols, kind="fill", dtype=op.dtype), op)


def _by_element(op: ScatterAdd) -> tuple[Operator, ...]:
    return _composition(op.changed(by_element=True))


_FORWARD = (
    Kernel("torch.index_add", "scatter_add", "torch", _rows, supports_dtype, composition=_composition),
    Kernel("torch.scatter_add", "scatter_add", "torch", _elements, supports_dtype, composition=_by_element),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0]))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=65536 cols=64 table=16384
        rows=65536 cols=64 table=16384 distribution=zipf
        rows=65536 cols=64 table=16384 distribution=same
        rows=65536 cols=64 table=16384 backward=true
    """,
    cuda_more="""
        rows=1048576 cols=64 table=65536 dtype=fp32
        rows=1048576 cols=64 table=65536 distribution=zipf dtype=fp32
        rows=1048576 cols=64 table=65536 distribution=same dtype=fp32
        rows=1048576 cols=64 table=65536 dtype=fp32 backward=true
    """,
)
