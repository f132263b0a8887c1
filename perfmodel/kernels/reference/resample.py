"""Images at other places than their pixels, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.resample import Resample

#: kind of `Resample` -> names of torch's modes by the number of axes, for F.interpolate
_MODES = {
    "nearest": {1: "nearest", 2: "nearest", 3: "nearest"},
    "linear": {1: "linear", 2: "bilinear", 3: "trilinear"},
    "cubic": {2: "bicubic"},
}


def reference(op: Resample, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some images, channels and places.

    A place of a grid is rounded in units of the image's width, and pixels differ by twice the largest at most.
    """
    images, channels, *places = selection
    x = exact(inputs["x"][images][:, channels])
    grid = exact(inputs["grid"][images]) if op.grid else None

    def chosen(values: torch.Tensor) -> torch.Tensor:
        for axis, kept in enumerate(places):
            values = values.index_select(2 + axis, kept)
        return values

    value, magnitudes = chosen(resampled(op, x, grid)), chosen(resampled(op, x.abs(), grid)).abs()
    size = x.detach().abs()
    moved = float(max(op.d, op.h, op.w)) * size.amax() if op.grid else size.mean()
    return Reference(value, magnitudes + moved, magnitudes + moved, int(op.taps))


def resampled(op: Resample, x: torch.Tensor, grid: torch.Tensor | None) -> torch.Tensor:
    """Return torch's samples of x [n, c, d, h, w] at [n, o, p, q] places, as [n, c, o, p, q]."""
    axes = int(op.axes)
    sizes = tuple(int(size) for size in (op.o, op.p, op.q))
    images = x.flatten(2, 5 - axes)  # depth, and of signals height too, are one
    if grid is None:
        sampled = F.interpolate(images, sizes[3 - axes :], mode=_MODES[op.kind][axes])
    else:
        places = grid if axes == 3 else grid.flatten(1, 2)
        mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[op.kind]
        sampled = F.grid_sample(images, places, mode=mode, align_corners=False)
    return sampled.reshape(*x.shape[:2], *sizes)
