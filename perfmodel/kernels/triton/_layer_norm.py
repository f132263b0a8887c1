"""Code of the normalisations: a row is read once, kept in registers for its statistics, and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from perfmodel.kernels.triton._base import LAUNCH_OPTIONS, is_wide
from perfmodel.kernels.triton._rows import INTERPRETED, ROW_CONFIGS, row_fits
from perfmodel.kernels.triton._tune import tuned


@triton.jit
def _both(sum_a, squares_a, sum_b, squares_b):
    return sum_a + sum_b, squares_a + squares_b


@tuned(ROW_CONFIGS, ("cols", "CENTRED"), INTERPRETED, row_fits)
@triton.jit
def _normalised(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, rows, cols, eps,
    CENTRED: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """LayerNorm where CENTRED, else RMSNorm."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = column < cols
    mask = (row < rows)[:, None] & inside[None, :]
    start = row.to(tl.int64) if WIDE else row
    at = start[:, None] * cols + column[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    # loaded early, so that the load overlaps with the statistics
    gamma = tl.load(gamma_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        beta = tl.load(beta_ptr + column, mask=inside, other=0.0).to(tl.float32)
        if x_ptr.dtype.element_ty.primitive_bitwidth <= 16:
            # One reduction in place of two, each of which all warps wait for. With a mean of r deviations the
            # difference cancels r^2 2^-24 of the variance; the rounding of 16-bit inputs has changed it by as much.
            total, squares = tl.reduce((x, x * x), 1, _both)
            mean = total / cols
            variance = tl.maximum(squares / cols - mean * mean, 0.0)
            x = x - mean[:, None]
        else:
            mean = tl.sum(x, 1) / cols
            x = tl.where(inside[None, :], x - mean[:, None], 0.0)
            variance = tl.sum(x * x, 1) / cols
    else:
        variance = tl.sum(x * x, 1) / cols
    scale = 1.0 / tl.sqrt(variance + eps)
    y = x * scale[:, None] * gamma[None, :]
    if CENTRED:
        y += beta[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


def normalised(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None, eps: float, y: torch.Tensor) -> None:
    """Write the LayerNorm of x [rows, cols] to y; without ``beta`` the RMSNorm."""
    rows, cols = x.shape
    modes = {"CENTRED": beta is not None, "WIDE": is_wide(x), "BLOCK": max(16, triton.next_power_of_2(cols))}
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)  # noqa: E731 -- Triton calls it with the configuration
    shift = gamma if beta is None else beta
    _normalised[grid](x, gamma, shift, y, rows, cols, eps, **modes, **LAUNCH_OPTIONS)
