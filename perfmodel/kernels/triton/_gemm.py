"""Code of the matrix products: tiles in a grouped order, accumulated in float32, with a fused epilogue.

After Triton's tutorials 03 (matrix multiplication) and 09 (persistent matmul).
"""

# Triton compiles branches away, so that each side returns.
# ruff: noqa: RET505

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from perfmodel.kernels.triton._base import multiprocessors
from perfmodel.kernels.triton._gemm_space import CONFIGS, INTERPRETED, KEY, fits
from perfmodel.kernels.triton._tune import tuned

#: rows and columns of the tiles that are transposed
_TURNED = 64
#: tiles with at least this many columns are stored by descriptor in two halves
_HALVED = 32 if triton.knobs.runtime.interpret else 256


@triton.jit
def _place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return row and column of a tile; tiles run in groups of rows that share columns of B in the L2."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    return first + (tile % in_group) % height, (tile % in_group) // height


@triton.jit
def _gelu(x):
    """Return x Phi(x) = max(x, 0) - |x| Q(|x|), with 60 % of the instructions that erf takes.

    The error of Q is at most 7.5e-8. Q is the upper tail of the normal distribution: formula 7.1.26 for erf of
    Abramowitz and Stegun, "Handbook of mathematical functions", 1964, at x / sqrt(2) and halved.
    """
    size = tl.abs(x)
    t = 1.0 / (1.0 + 0.23164188 * size)
    series = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    return tl.maximum(x, 0.0) - size * series * tl.exp2(-0.7213475204 * x * x)


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr, NARROW: tl.constexpr):
    """Return the activation; gelu's tolerates an error of 1.5e-7 where the result is rounded to 16 bits."""
    if ACTIVATION == "relu":
        return tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        if NARROW:
            return _gelu(x)
        else:
            return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "silu":
        return x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "sigmoid":
        return 1.0 / (1.0 + tl.exp(-x))
    elif ACTIVATION == "tanh":
        return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
    else:
        return x


@triton.jit
def _finished(acc, bias_ptr, columns, N, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, NARROW: tl.constexpr):
    """Return the accumulator after bias and activation, both in float32."""
    if HAS_BIAS:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
    return _activated(acc, ACTIVATION, NARROW)


@triton.jit
def _one_tile(
    tile, a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_ab, stride_am, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute and store one tile of one product of the batch."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    row, column = _place(tile % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    # offsets between products of a batch exceed 32 bits sooner than offsets within a product
    batch = tl.cast(tile // tiles, tl.int64)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    # Beyond the edge the first row and column are loaded, but not stored: cheaper than a mask in the loop.
    inside_m = tl.max_contiguous(tl.multiple_of(tl.where(rows < M, rows, 0), BLOCK_M), BLOCK_M)
    inside_n = tl.max_contiguous(tl.multiple_of(tl.where(columns < N, columns, 0), BLOCK_N), BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    if WIDE:
        inside_m = inside_m.to(tl.int64)
        inside_n = inside_n.to(tl.int64)
        depth = depth.to(tl.int64)
        rows = rows.to(tl.int64)
    a = a_ptr + batch * stride_ab + inside_m[:, None] * stride_am + depth[None, :]
    b = b_ptr + batch * stride_bb + depth[:, None] * stride_bk + inside_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            left = tl.load(a)
            right = tl.load(b)
        else:
            left = tl.load(a, mask=depth[None, :] < K - k, other=0.0)
            right = tl.load(b, mask=depth[:, None] < K - k, other=0.0)
        if UPCAST:
            left = left.to(tl.float32)
            right = right.to(tl.float32)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
        a += BLOCK_K
        b += BLOCK_K * stride_bk
    narrow: tl.constexpr = c_ptr.dtype.element_ty.primitive_bitwidth <= 16
    acc = _finished(acc, bias_ptr, columns, N, HAS_BIAS, ACTIVATION, narrow)
    c = c_ptr + batch * stride_cb + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@tuned(CONFIGS, KEY, INTERPRETED, fits)
@triton.jit
def _tiled(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, BATCH,
    stride_ab, stride_am, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block per tile."""
    _one_tile(
        tl.program_id(0), a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
        stride_ab, stride_am, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN_K, WIDE, HAS_BIAS, ACTIVATION, UPCAST, PRECISION,
    )  # fmt: skip


@tuned(CONFIGS, KEY, INTERPRETED, fits)
@triton.jit
def _persistent(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, BATCH,
    stride_ab, stride_am, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block per multiprocessor; each computes every n-th tile."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) * BATCH
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        _one_tile(
            tile, a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
            stride_ab, stride_am, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN_K, WIDE, HAS_BIAS, ACTIVATION, UPCAST, PRECISION,
        )  # fmt: skip


def _shape_descriptors(arguments: Mapping[str, Any]) -> None:
    """Set the block shapes of the descriptors to those of a configuration, before it is launched."""
    m, n, k = arguments["BLOCK_M"], arguments["BLOCK_N"], arguments["BLOCK_K"]
    arguments["a_desc"].block_shape = [m, k]
    arguments["b_desc"].block_shape = [n, k] if arguments["B_BY_COLUMNS"] else [k, n]
    arguments["c_desc"].block_shape = [m, n // 2] if n >= _HALVED else [m, n]


#: the same search space, with the hook for descriptors
TMA_CONFIGS = tuple(
    triton.Config(c.kwargs, num_warps=c.num_warps, num_stages=c.num_stages, pre_hook=_shape_descriptors)
    for c in CONFIGS
    if c.kwargs["BLOCK_M"] >= 64
)


@tuned(TMA_CONFIGS, ("M", "N", "K"), INTERPRETED, fits)
@triton.jit
def _by_descriptor(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    B_BY_COLUMNS: tl.constexpr, HALVED: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block per multiprocessor; the tensor memory accelerator moves tiles, with zeros beyond the edges."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = _place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            left = a_desc.load([row * BLOCK_M, k])
            if B_BY_COLUMNS:  # noqa: SIM108 -- both sides of a ternary in Triton need one type
                right = b_desc.load([column * BLOCK_N, k]).T
            else:
                right = b_desc.load([k, column * BLOCK_N])
            if UPCAST:
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            acc = tl.dot(left, right, acc, input_precision=PRECISION)
        columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
        narrow: tl.constexpr = c_desc.dtype.primitive_bitwidth <= 16
        acc = _finished(acc, bias_ptr, columns, N, HAS_BIAS, ACTIVATION, narrow)
        if BLOCK_N >= HALVED:
            # storing a wide tile in halves needs half the shared memory, which leaves room for another stage
            pair = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            first, second = tl.split(pair)
            c_desc.store([row * BLOCK_M, column * BLOCK_N], first.to(c_desc.dtype))
            c_desc.store([row * BLOCK_M, column * BLOCK_N + BLOCK_N // 2], second.to(c_desc.dtype))
        else:
            c_desc.store([row * BLOCK_M, column * BLOCK_N], acc.to(c_desc.dtype))


@triton.jit
def _turned(b_ptr, out_ptr, K, N, stride_bb, BLOCK: tl.constexpr):
    """Write tiles of b [batch, k, n] to out [batch, n, k]."""
    batch = tl.cast(tl.program_id(2), tl.int64)
    k = tl.cast(tl.program_id(0), tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = tl.cast(tl.program_id(1), tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(b_ptr + batch * stride_bb + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N))
    turned = tl.trans(tile)
    tl.store(out_ptr + batch * K * N + n[:, None] * K + k[None, :], turned, mask=(n[:, None] < N) & (k[None, :] < K))


def by_columns(b: torch.Tensor) -> torch.Tensor:
    """Return a copy of b [batch, k, n] that is stored column by column; b's rows are contiguous."""
    batch, k, n = b.shape
    out = torch.empty((batch, n, k), dtype=b.dtype, device=b.device)
    grid = (triton.cdiv(k, _TURNED), triton.cdiv(n, _TURNED), batch)
    _turned[grid](b, out, k, n, b.stride(0), BLOCK=_TURNED, num_warps=8)
    return out.mT


def _strides(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[int, ...]:
    return (*a.stride()[:2], *b.stride(), *c.stride()[:2])


def _sizes(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int, int]:
    batch, m, k = a.shape
    return m, b.shape[2], k, batch


def tiled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None, **modes: Any) -> None:
    """Write the product of a [batch, m, k] and b [batch, k, n] to c [batch, m, n], with one block per tile."""
    m, n, k, batch = _sizes(a, b)

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]) * batch,)

    _tiled[grid](a, b, c, bias if bias is not None else c, m, n, k, batch, *_strides(a, b, c), **modes)


def persistent(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None, **modes: Any) -> None:
    """Write the product as `tiled` does, with one block per multiprocessor."""
    m, n, k, batch = _sizes(a, b)

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]) * batch
        return (min(multiprocessors(), tiles),)

    _persistent[grid](a, b, c, bias if bias is not None else c, m, n, k, batch, *_strides(a, b, c), **modes)


def by_descriptor(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None, **modes: Any) -> None:
    """Write a single product as `tiled` does; the tensor memory accelerator moves the tiles."""
    m, n, k, _ = _sizes(a, b)
    by_columns = b.stride(2) != 1
    make = functools.partial(TensorDescriptor.from_tensor, block_shape=[16, 16])
    descriptors = (make(a[0]), make(b[0].T if by_columns else b[0]), make(c[0]))

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        return (min(multiprocessors(), triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])),)

    _by_descriptor[grid](
        *descriptors, bias if bias is not None else c, m, n, k, B_BY_COLUMNS=by_columns, HALVED=_HALVED, **modes
    )
