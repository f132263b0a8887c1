"""y[n, k, o, p, q] = sum over c, t, r, s of x weight, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.conv3d import Conv3d


def reference(op: Conv3d, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some films, filters, pictures, rows and columns."""
    films, filters, pictures, rows, columns = selection
    x, weight = exact(inputs["x"][films]), exact(inputs["weight"])

    def chosen(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return convolved(op, a, b)[:, filters][:, :, pictures][:, :, :, rows][:, :, :, :, columns]

    value = chosen(x, weight)
    partial = torch.sqrt(chosen(x.square(), weight.square()).clamp(min=0))
    length = int(op.c / op.groups * op.t * op.r * op.s)
    return Reference(value, value.abs() + 4 * partial, chosen(x.abs(), weight.abs()), length)


def convolved(op: Conv3d, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return torch's convolution of an operator's sizes."""
    stride, padding, dilation = (
        tuple(int(getattr(op, f"{name}_{axis}")) for axis in "dhw") for name in ("stride", "padding", "dilation")
    )
    return F.conv3d(x, weight, None, stride, padding, dilation, int(op.groups))
