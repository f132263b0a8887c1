"""The largest element or the mean of each window, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.pool2d import Pool2d


def reference(op: Pool2d, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some images, channels, rows and columns of the output."""
    images, channels, rows, columns = selection
    side, step, padding = int(op.k), int(op.stride), int(op.padding)
    x = exact(inputs["x"][images][:, channels])
    # windows of ceil_mode leave the image to the right and below
    beyond = [max(0, (int(out) - 1) * step + side - padding - length) for out, length in ((op.q, op.w), (op.p, op.h))]
    outside = 0.0 if op.kind == "mean" else float("-inf")
    padded = F.pad(x, (padding, int(beyond[0]), padding, int(beyond[1])), value=outside)
    windows = padded.unfold(2, side, step).unfold(3, side, step)[:, :, rows][:, :, :, columns].flatten(-2)
    if op.kind == "max":
        value = windows.amax(-1)
        return Reference(value, value.abs(), value.abs(), 1)
    value = windows.mean(-1)
    return Reference(value, value.abs(), windows.abs().mean(-1), side * side)


def pooled(op: Pool2d, x: torch.Tensor) -> torch.Tensor:
    """Return torch's pool, which is the one that knows to which of several equal elements a maximum's gradient goes."""
    window = (int(op.k), int(op.stride), int(op.padding))
    if op.kind == "mean":
        return F.avg_pool2d(x, *window)
    if op.indices:
        return F.max_pool2d(x, *window, ceil_mode=op.ceil_mode, return_indices=True)[0]
    return F.max_pool2d(x, *window, ceil_mode=op.ceil_mode)
