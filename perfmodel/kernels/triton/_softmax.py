"""Code of the softmax: rows that fit a block are read once; longer ones twice, with an online maximum and sum.

The online recurrence is that of Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from perfmodel.kernels.triton._base import LAUNCH_OPTIONS, is_wide
from perfmodel.kernels.triton._rows import INTERPRETED, ROW_CONFIGS, row_fits
from perfmodel.kernels.triton._tune import config, tuned

#: the search space for long rows: elements of a row that are in flight together
LONG_CONFIGS = (config(8, 1, BLOCK=4096), config(16, 1, BLOCK=8192), config(16, 1, BLOCK=16384))


@tuned(ROW_CONFIGS, ("cols",), INTERPRETED, row_fits)
@triton.jit
def _one_pass(
    x_ptr, y_ptr, rows, cols, WIDE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (column < cols)[None, :]
    start = row.to(tl.int64) if WIDE else row
    at = start[:, None] * cols + column[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=-float("inf")).to(tl.float32) * 1.4426950408889634
    # rows beyond the last are all -inf and are not stored
    power = tl.exp2(x - tl.where((row < rows), tl.max(x, 1), 0.0)[:, None])
    total = tl.where((row < rows), tl.sum(power, 1), 1.0)
    tl.store(y_ptr + at, (power / total[:, None]).to(y_ptr.dtype.element_ty), mask=mask)


@tuned(LONG_CONFIGS, ("cols",), {"BLOCK": 256})
@triton.jit
def _online(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Compute the maximum and the sum of a row block by block, then read the row again and write the result."""
    start = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    # Each lane has its own maximum and sum, so that only the end of the row needs a reduction.
    most = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + first + column, mask=first + column < cols, other=-float("inf"))
        x = x.to(tl.float32) * 1.4426950408889634
        larger = tl.maximum(most, x)
        # In the first block `most` is -inf and the sum is 0; 0 times exp2(-inf) is 0.
        total = tl.where(x > -float("inf"), total * tl.exp2(most - larger) + tl.exp2(x - larger), total)
        most = larger
    highest = tl.max(most, 0)
    whole = tl.sum(total * tl.exp2(most - highest), 0)
    for first in range(0, cols, BLOCK):
        inside = first + column < cols
        x = tl.load(x_ptr + start + first + column, mask=inside, other=0.0).to(tl.float32) * 1.4426950408889634
        y = tl.exp2(x - highest) / whole
        tl.store(y_ptr + start + first + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor, y: torch.Tensor, widest: int) -> None:
    """Write the softmax of the rows of x [rows, cols] to y; rows of more than ``widest`` elements are read twice."""
    rows, cols = x.shape
    if cols > widest:
        _online[(rows,)](x, y, cols, **LAUNCH_OPTIONS)
        return
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)  # noqa: E731 -- Triton calls it with the configuration
    modes = {"WIDE": is_wide(x), "BLOCK": max(16, triton.next_power_of_2(cols))}
    _one_pass[grid](x, y, rows, cols, **modes, **LAUNCH_OPTIONS)
