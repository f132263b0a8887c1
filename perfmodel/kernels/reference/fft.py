"""Fourier transforms in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.fft import Fft


def reference(op: Fft, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some of the transforms and of their numbers.

    The errors of log2 N steps, each as large as the root mean square of the result, add up (Gentleman and Sande 1966,
    "Fast Fourier transforms: for fun and profit", doi:10.1145/1464291.1464352).
    """
    batches, *places = selection
    whole = transformed(op, exact(inputs["x"][batches]))
    total = float(op.n * op.others)
    size = whole.square().mean(dim=tuple(range(1, whole.dim())), keepdim=True).sqrt().expand_as(whole)
    value = whole
    for axis, chosen in enumerate(places):
        value, size = value.index_select(1 + axis, chosen), size.index_select(1 + axis, chosen)
    scale = value.abs() + max(math.log2(total), 1.0) * size
    return Reference(value, scale, scale, 1)


def transformed(op: Fft, x: torch.Tensor) -> torch.Tensor:
    """Return torch's transform of x [batch, others, n, parts of complex numbers], not scaled."""
    axes = (-2, -1) if op.axes > 1 else (-1,)
    if op.kind == "real":
        return torch.view_as_real(torch.fft.rfftn(x, dim=axes))
    numbers = torch.view_as_complex(x)
    if op.kind == "complex":
        return torch.view_as_real(torch.fft.fftn(numbers, dim=axes))
    sizes = (int(op.others), int(op.n)) if op.axes > 1 else (int(op.n),)
    result: torch.Tensor = torch.fft.irfftn(numbers, s=sizes, dim=axes, norm="forward")
    return result
