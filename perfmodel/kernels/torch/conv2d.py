"""Convolution: F.conv2d, and its unfolding in memory followed by a product."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.kernels.torch._passes import streamed
from perfmodel.operators import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.gemm import Gemm


def _supports_unfolded(op: Conv2d, device: Device) -> str:
    return "the unfolded matrix is of one group" if op.groups > 1 else supports_dtype(op, device)


def _library(op: Conv2d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, weight = inputs["x"], inputs["weight"]
    sizes = (None, int(op.stride), int(op.padding), int(op.dilation), int(op.groups))
    return lambda: F.conv2d(x, weight, *sizes)  # inputs have the operator's layout, and so has the result


def _unfolded(op: Conv2d, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, weight = inputs["x"], inputs["weight"]
    shape = (int(op.n), int(op.k), int(op.p), int(op.q))
    taps, sizes = (int(op.r), int(op.s)), (int(op.dilation), int(op.padding), int(op.stride))
    return lambda: (weight.flatten(1) @ F.unfold(x, taps, *sizes)).reshape(shape)


def _is_unfolded(op: Conv2d) -> bool:
    return op.algorithm == "im2col"


def _is_library(op: Conv2d) -> bool:
    return op.algorithm != "im2col"


def _unfolded_parts(op: Conv2d) -> tuple[Operator, ...]:
    """The images unfolded, written once, and the product with the filters."""
    columns, pixels = op.c * op.r * op.s, op.p * op.q
    unfolded = streamed(op.n * columns * pixels, op.dtype, "copy")
    return (*unfolded, Gemm(batch=op.n, m=op.k, n=pixels, k=columns, dtype=op.dtype))


def _workspace_bytes(op: Conv2d) -> float:
    return next((float(t.size_bytes) for t in op.tensors() if t.name == "unfolded"), 0.0)


_FORWARD = (
    Kernel("F.conv2d", "conv2d", "torch", _library, supports_dtype, _is_library),
    Kernel(
        "im2col",
        "conv2d",
        "torch",
        _unfolded,
        _supports_unfolded,
        _is_unfolded,
        workspace_bytes=_workspace_bytes,
        composition=_unfolded_parts,
    ),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], Conv2d.composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        n=4 c=64 h=56 w=56 k=64 r=3 s=3 padding=1
        n=4 c=64 h=56 w=56 k=64 r=3 s=3 padding=1 algorithm=im2col
        n=4 c=256 h=14 w=14 k=1024 r=1 s=1
        n=2 c=64 h=28 w=28 k=64 r=3 s=3 padding=1 backward=true
    """,
    cuda_more="""
        n=64 c=256 h=56 w=56 k=256 r=3 s=3 padding=1 dtype=bf16
        n=64 c=64 h=56 w=56 k=64 r=3 s=3 padding=1 dtype=fp32
        n=64 c=256 h=56 w=56 k=256 r=3 s=3 padding=1 dtype=bf16 backward=true
        n=64 c=64 h=56 w=56 k=64 r=3 s=3 padding=1 dtype=fp32 backward=true gradient=weight
    """,
)
