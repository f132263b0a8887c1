"""Code of flash attention, forward pass: each block of queries reads all keys and values once.

After Dao, "FlashAttention-2", arXiv 2307.08691, and Triton's tutorial 06: softmax statistics in float32, powers of two
with the scale folded in, a mask only for keys on the diagonal.
"""

# Triton compiles branches away, so that each side returns.
# ruff: noqa: RET505

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from perfmodel.kernels.triton._tune import config, tuned

#: the search space: queries and keys of a block; the last one is for shapes that fit no other
CONFIGS = (
    config(8, 2, BLOCK_M=128, BLOCK_N=128),
    config(8, 3, BLOCK_M=128, BLOCK_N=128),
    config(8, 3, BLOCK_M=128, BLOCK_N=64),
    config(4, 2, BLOCK_M=128, BLOCK_N=64),
    config(4, 3, BLOCK_M=64, BLOCK_N=64),
    config(4, 2, BLOCK_M=64, BLOCK_N=32),
)
_INTERPRETED = {"BLOCK_M": 32, "BLOCK_N": 32}
#: shared memory for Q and for K and V of the pipeline, of the 227 KiB per block on sm_90; the softmax uses the rest
_SHARED_BYTES = 224 * 1024
#: float32 accumulators per thread for O and the scores, of its 255 registers
_MOST_ACCUMULATORS = 192
#: from so many queries in 16 bits on, blocks of 64 queries are not tried, and these are, by warps, stages and keys: a
#: deeper pipeline, and two blocks of four warps on an SM, of which one multiplies while the other has its softmax
_LONG, _OF_LONG = 2048, ((8, 3, 128), (4, 2, 64))
#: bytes of keys and values of the heads that run together, so that they remain in an L2 of 50 MB
_SECTION_BYTES = 2**24


def _fits(configs: list[triton.Config], arguments: Mapping[str, Any], **given: Any) -> list[triton.Config]:
    """Drop blocks that exceed shared memory or registers, or are larger than the sequence.

    Without tensor cores a large block is thousands of multiply-adds in a row, which take long to compile.
    """
    known = {**arguments, **given}
    depth, queries = known["BLOCK_D"], known["seq_q"]
    element = known["q_ptr"].element_size()
    long = element == 2 and queries >= _LONG
    most_queries = 64 if element == 4 and known.get("PRECISION") == "ieee" else 128
    kept = []
    for candidate in configs[:-1]:
        m, n = candidate.kwargs["BLOCK_M"], candidate.kwargs["BLOCK_N"]
        shared = element * depth * (m + 2 * n * candidate.num_stages)
        accumulators = m * (depth + n) / (32 * candidate.num_warps)
        of_long = (candidate.num_warps, candidate.num_stages, n) in _OF_LONG
        suits = m <= most_queries and (long if of_long else m < 128 or queries > 64)
        if shared <= _SHARED_BYTES and accumulators <= _MOST_ACCUMULATORS and suits:
            kept.append(candidate)
    if long:
        kept = [candidate for candidate in kept if candidate.kwargs["BLOCK_M"] == 128] or kept
    return kept or [configs[-1]]


@triton.jit
def _keys(
    acc, most, total, q, k_tiles, v_tiles, stride_ks, stride_vs, base, first, last, place, seq_kv, window, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, TMA: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Process the keys from ``first`` to ``last``; without MASKED all of them exist and none is masked."""
    depth = tl.arange(0, BLOCK_D)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        if TMA:
            k = k_tiles.load([base + start, 0])
        else:
            k = _tile(k_tiles, stride_ks, key, depth, seq_kv, MASKED, HEAD_DIM, BLOCK_D)
        if UPCAST:
            k = k.to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if MASKED:
            seen = (key < seq_kv)[None, :]
            if CAUSAL:
                seen = seen & (key[None, :] <= place[:, None])
            if WINDOWED:
                seen = seen & (key[None, :] > place[:, None] - window)
            # Finite: a row without any of these keys gives them weights that a later key scales to zero.
            scores = tl.where(seen, scores, -1.0e30)
        higher = tl.maximum(most, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - higher[:, None])
        keep = tl.exp2(most - higher)
        total = total * keep + tl.sum(weights, 1)
        acc = acc * keep[:, None]
        if TMA:
            v = v_tiles.load([base + start, 0])
        else:
            v = _tile(v_tiles, stride_vs, key, depth, seq_kv, MASKED, HEAD_DIM, BLOCK_D)
        weights = weights.to(v.dtype)
        if UPCAST:
            weights = weights.to(tl.float32)
            v = v.to(tl.float32)
        acc = tl.dot(weights, v, acc, input_precision=PRECISION)
        most = higher
    return acc, most, total


@triton.jit
def _tile(
    base, stride, row, depth, rows, MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Load rows of a head, with zeros beyond HEAD_DIM and, if MASKED, beyond the last row."""
    at = base + row[:, None] * stride + depth[None, :]
    if MASKED:
        return tl.load(at, mask=(row < rows)[:, None] & (depth < HEAD_DIM)[None, :], other=0.0)
    elif HEAD_DIM == BLOCK_D:
        return tl.load(at)
    else:
        return tl.load(at, mask=(depth < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def _place_of(program, blocks, heads_of_all, SECTION):
    """Return the head of a program, and its block of queries.

    Heads run in sections whose keys and values fit the L2. Within a section, blocks with the most keys start first, so
    that none of them remains when the others have finished.
    """
    section = program // (SECTION * blocks)
    inside = program % (SECTION * blocks)
    width = min(SECTION, heads_of_all - section * SECTION)
    return section * SECTION + inside % width, blocks - 1 - inside // width


@tuned(CONFIGS, ("seq_q", "seq_kv", "heads", "CAUSAL", "HEAD_DIM"), _INTERPRETED, _fits)
@triton.jit
def _flash(
    q_ptr, k_tiles, v_tiles, o_ptr, scale, heads_of_all, heads, group, seq_q, seq_kv, window, section,
    stride_qh, stride_qs, stride_kh, stride_ks, stride_vh, stride_vs,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, TMA: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute one block of queries of one head; heads are numbered over all sequences."""
    head, block = _place_of(tl.program_id(0), tl.cdiv(seq_q, BLOCK_M), heads_of_all, section)
    key_head = (head // heads) * (heads // group) + (head % heads) // group
    query = block * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_D)
    q_base = q_ptr + tl.cast(head, tl.int64) * stride_qh
    q = _tile(q_base, stride_qs, query, depth, seq_q, True, HEAD_DIM, BLOCK_D)
    if UPCAST:
        q = q.to(tl.float32)
    if TMA:
        base = key_head * seq_kv
    else:
        base = 0
        k_tiles += tl.cast(key_head, tl.int64) * stride_kh
        v_tiles += tl.cast(key_head, tl.int64) * stride_vh
    # the queries are the last positions of the sequence
    ahead = seq_kv - seq_q
    place = query + ahead
    lowest = block * BLOCK_M + ahead
    first, masked_until, last = 0, 0, seq_kv
    if CAUSAL:
        last = min(seq_kv, lowest + BLOCK_M)
    if WINDOWED:
        first = max(0, lowest - window + 1) // BLOCK_N * BLOCK_N
        masked_until = max(first, tl.cdiv(lowest + BLOCK_M - window, BLOCK_N) * BLOCK_N)
    # up to here no key is masked for any query
    plain_until = (min(lowest + 1, seq_kv) if CAUSAL else seq_kv) // BLOCK_N * BLOCK_N
    most = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    if WINDOWED:
        masked_until = min(masked_until, last)
        acc, most, total = _keys(
            acc, most, total, q, k_tiles, v_tiles, stride_ks, stride_vs, base, first, masked_until, place,
            seq_kv, window, scale, True, CAUSAL, WINDOWED, TMA, HEAD_DIM, BLOCK_D, BLOCK_N, UPCAST, PRECISION,
        )  # fmt: skip
        first = max(first, masked_until)
        plain_until = max(first, plain_until)
    acc, most, total = _keys(
        acc, most, total, q, k_tiles, v_tiles, stride_ks, stride_vs, base, first, plain_until, place,
        seq_kv, window, scale, False, CAUSAL, WINDOWED, TMA, HEAD_DIM, BLOCK_D, BLOCK_N, UPCAST, PRECISION,
    )  # fmt: skip
    acc, most, total = _keys(
        acc, most, total, q, k_tiles, v_tiles, stride_ks, stride_vs, base, plain_until, last, place,
        seq_kv, window, scale, True, CAUSAL, WINDOWED, TMA, HEAD_DIM, BLOCK_D, BLOCK_N, UPCAST, PRECISION,
    )  # fmt: skip
    o = o_ptr + tl.cast(head, tl.int64) * stride_qh + query[:, None] * stride_qs + depth[None, :]
    inside = (query < seq_q)[:, None] & (depth < HEAD_DIM)[None, :]
    tl.store(o, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)


def _section(k: torch.Tensor, group: int) -> int:
    """Return the number of query heads that share the L2: their keys and values fit `_SECTION_BYTES`."""
    head_bytes = 2 * k.shape[2] * k.shape[3] * k.element_size()
    return max(1, _SECTION_BYTES // head_bytes) * group


def _launch(
    q: torch.Tensor, k_tiles: Any, v_tiles: Any, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
    hook: bool, causal: bool, window: int, modes: Mapping[str, Any],
) -> None:  # fmt: skip
    batch, heads, seq_q, head_dim = q.shape
    group, seq_kv = heads // k.shape[1], k.shape[2]
    strides = (q.stride(1), q.stride(2), k.stride(1), k.stride(2), v.stride(1), v.stride(2))
    scale = 1 / (math.sqrt(head_dim) * math.log(2))
    shape = {"HEAD_DIM": head_dim, "BLOCK_D": max(16, triton.next_power_of_2(head_dim))}
    kernel = _flash_by_descriptor if hook else _flash
    kernel[lambda meta: (triton.cdiv(seq_q, meta["BLOCK_M"]) * batch * heads,)](
        q, k_tiles, v_tiles, o, scale, batch * heads, heads, group, seq_q, seq_kv, window, _section(k, group),
        *strides, CAUSAL=causal, WINDOWED=window > 0, TMA=hook, **shape, **modes,
    )  # fmt: skip


def _shape_descriptors(arguments: Mapping[str, Any]) -> None:
    """Set the block shapes of the descriptors to those of a configuration, before it is launched."""
    for name in ("k_tiles", "v_tiles"):
        arguments[name].block_shape = [arguments["BLOCK_N"], arguments["HEAD_DIM"]]


#: the same search space, with the hook for descriptors
TMA_CONFIGS = tuple(
    triton.Config(c.kwargs, num_warps=c.num_warps, num_stages=c.num_stages, pre_hook=_shape_descriptors)
    for c in CONFIGS
)
_flash_by_descriptor = tuned(
    TMA_CONFIGS, ("seq_q", "seq_kv", "heads", "CAUSAL", "HEAD_DIM"), _INTERPRETED, _fits
)(_flash.fn)  # fmt: skip


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, causal: bool, window: int,
    modes: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the attention of contiguous q [batch, heads, seq_q, head_dim] over k and v to o; 0 is no window."""
    _launch(q, k, v, k, v, o, False, causal, window, modes)


def flash_by_descriptor(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, causal: bool, window: int,
    modes: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the attention as `flash` does; the tensor memory accelerator moves keys and values."""
    k_tiles, v_tiles = (TensorDescriptor.from_tensor(t.view(-1, t.shape[-1]), [16, t.shape[-1]]) for t in (k, v))
    _launch(q, k_tiles, v_tiles, k, v, o, True, causal, window, modes)
