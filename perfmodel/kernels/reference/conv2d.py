"""y[n, k, p, q] = sum over c, r, s of x weight, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.conv2d import Conv2d


def reference(op: Conv2d, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some images, filters, rows and columns.

    Winograd's transforms, which a library may choose, round intermediates of a few times the size of the terms.
    """
    images, filters, rows, columns = selection
    sizes = (None, int(op.stride), int(op.padding), int(op.dilation), int(op.groups))
    x, weight = exact(inputs["x"][images]), exact(inputs["weight"])

    def convolved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(a, b, *sizes)[:, filters][:, :, rows][:, :, :, columns]

    value = convolved(x, weight)
    partial = torch.sqrt(convolved(x.square(), weight.square()).clamp(min=0))
    length = int(op.c / op.groups * op.r * op.s)
    return Reference(value, value.abs() + 4 * partial, convolved(x.abs(), weight.abs()), length)
