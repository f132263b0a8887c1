"""The largest element or the mean of each window of a film, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.pool3d import Pool3d


def reference(op: Pool3d, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some films, channels, pictures, rows and columns of the output."""
    films, channels, *places = selection
    x = exact(inputs["x"][films][:, channels])
    sides, steps, paddings = _windows(op)
    outside = 0.0 if op.kind == "mean" else float("-inf")
    # windows of ceil_mode leave the film behind, below and to the right
    ends = [
        max(0, (int(out) - 1) * step + side - padding - length)
        for out, side, step, padding, length in zip(
            (op.o, op.p, op.q), sides, steps, paddings, x.shape[2:], strict=True
        )
    ]
    windows = _padded(x, paddings, ends, outside)
    for axis, (side, step) in enumerate(zip(sides, steps, strict=True)):
        windows = windows.unfold(2 + axis, side, step).index_select(2 + axis, places[axis])
    windows = windows.flatten(-3)
    if op.kind == "max":
        value = windows.amax(-1)
        return Reference(value, value.abs(), value.abs(), 1)
    value = windows.mean(-1)
    return Reference(value, value.abs(), windows.abs().mean(-1), windows.shape[-1])


def _padded(x: torch.Tensor, before: tuple[int, ...], after: list[int], value: float) -> torch.Tensor:
    """Return films with elements before and after each of their three axes; torch lists the last axis first."""
    pairs = [size for pair in reversed(list(zip(before, after, strict=True))) for size in pair]
    return F.pad(x, pairs, value=value)


def _windows(op: Pool3d) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return sides, steps and padding of the windows along d, h and w."""
    sides = tuple(int(side) for side in (op.t, op.r, op.s))
    steps, paddings = (tuple(int(getattr(op, f"{name}_{axis}")) for axis in "dhw") for name in ("stride", "padding"))
    return sides, steps, paddings


def pooled(op: Pool3d, x: torch.Tensor) -> torch.Tensor:
    """Return torch's pool, which is the one that knows to which of several equal elements a maximum's gradient goes."""
    windows = _windows(op)
    if op.kind == "mean":
        return F.avg_pool3d(x, *windows)
    if op.indices:
        return F.max_pool3d(x, *windows, ceil_mode=op.ceil_mode, return_indices=True)[0]
    return F.max_pool3d(x, *windows, ceil_mode=op.ceil_mode)
