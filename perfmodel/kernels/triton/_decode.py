"""Code of attention with few queries: the keys are split over blocks, each with its own softmax, then combined.

After "Flash-Decoding for long-context inference" (Dao, Haziza, Massa, Sizov 2023). The queries of all heads that share
a key head are the rows of one tile, so that its keys and values are read once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from perfmodel.kernels.triton._attention import _keys
from perfmodel.kernels.triton._base import LAUNCH_OPTIONS, multiprocessors
from perfmodel.kernels.triton._tune import config, tuned

#: the search space: keys per step
CONFIGS = (config(4, 3, BLOCK_N=64), config(4, 2, BLOCK_N=128), config(4, 4, BLOCK_N=32))
#: blocks per multiprocessor, so that one loads while another computes
_BLOCKS_EACH = 4
#: fewest keys per split; with fewer, the pass over the partial results costs more than it saves
_LEAST_KEYS = 256


@tuned(CONFIGS, ("seq_q", "seq_kv", "splits", "HEAD_DIM"), {"BLOCK_N": 32})
@triton.jit
def _split(
    q_ptr, k_ptr, v_ptr, o_ptr, part_ptr, log_sum_ptr, scale, heads, group, seq_q, seq_kv, window, splits, span,
    stride_qh, stride_qs, stride_kh, stride_ks, stride_vh, stride_vs,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DIRECT: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Process one split of the keys of one key head; with DIRECT there is only one split, and O is written here."""
    split = tl.program_id(0) % splits
    key_head = tl.program_id(0) // splits
    row = tl.arange(0, BLOCK_R)
    query = row % seq_q
    # heads are numbered over all sequences; `group` consecutive query heads share a key head
    head = tl.cast(key_head, tl.int64) * group + row // seq_q
    inside = row < group * seq_q
    depth = tl.arange(0, BLOCK_D)
    at = head * stride_qh + query * stride_qs
    mask = inside[:, None] & (depth < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + at[:, None] + depth[None, :], mask=mask, other=0.0)
    if UPCAST:
        q = q.to(tl.float32)
    k_base = k_ptr + tl.cast(key_head, tl.int64) * stride_kh
    v_base = v_ptr + tl.cast(key_head, tl.int64) * stride_vh
    first = split * span
    last = min(seq_kv, first + span)
    place = query + (seq_kv - seq_q)
    most = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_R,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_R, BLOCK_D), dtype=tl.float32)
    # One query without a mask: whole blocks of keys need no mask.
    plain_until = first
    if not CAUSAL:
        plain_until = first + max(last - first, 0) // BLOCK_N * BLOCK_N
        acc, most, total = _keys(
            acc, most, total, q, k_base, v_base, stride_ks, stride_vs, 0, first, plain_until, place, last,
            window, scale, False, CAUSAL, WINDOWED, False, HEAD_DIM, BLOCK_D, BLOCK_N, UPCAST, PRECISION,
        )  # fmt: skip
    acc, most, total = _keys(
        acc, most, total, q, k_base, v_base, stride_ks, stride_vs, 0, plain_until, last, place, last,
        window, scale, True, CAUSAL, WINDOWED, False, HEAD_DIM, BLOCK_D, BLOCK_N, UPCAST, PRECISION,
    )  # fmt: skip
    if DIRECT:
        o = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
        tl.store(o_ptr + at[:, None] + depth[None, :], o, mask=mask)
    else:
        # row of the result, [heads of all sequences, seq_q], and split within it
        out = (head * seq_q + query) * splits + split
        tl.store(part_ptr + out[:, None] * HEAD_DIM + depth[None, :], acc / total[:, None], mask=mask)
        tl.store(log_sum_ptr + out, most + tl.log2(total), mask=inside)


@triton.jit
def _combine(
    part_ptr, log_sum_ptr, o_ptr, splits,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Combine the partial results of one query, weighted by the sums of their exponentials."""
    row = tl.cast(tl.program_id(0), tl.int64)
    split = tl.arange(0, BLOCK_S)
    depth = tl.arange(0, BLOCK_D)
    log_sum = tl.load(log_sum_ptr + row * splits + split, mask=split < splits, other=-float("inf"))
    weight = tl.exp2(log_sum - tl.max(log_sum, 0))
    at = (row * splits + split)[:, None] * HEAD_DIM + depth[None, :]
    part = tl.load(part_ptr + at, mask=(split < splits)[:, None] & (depth < HEAD_DIM)[None, :], other=0.0)
    o = tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(o_ptr + row * HEAD_DIM + depth, o.to(o_ptr.dtype.element_ty), mask=depth < HEAD_DIM)


def splits_of(blocks: int, keys: int) -> tuple[int, int]:
    """Return the number of splits that fill the GPU, and the keys of each; no split is empty.

    Parameters
    ----------
    blocks : key heads of all sequences, each a block before the split.
    keys : keys of a sequence.
    """
    wanted = min(triton.cdiv(_BLOCKS_EACH * multiprocessors(), blocks), max(1, keys // _LEAST_KEYS))
    # a multiple of every step in the search space
    span = triton.cdiv(triton.cdiv(keys, wanted), 128) * 128
    return triton.cdiv(keys, span), span


def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, causal: bool, window: int,
    modes: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the attention of a few queries, contiguous q [batch, heads, seq_q, head_dim], over k and v to o."""
    batch, heads, seq_q, head_dim = q.shape
    key_heads, seq_kv = k.shape[1], k.shape[2]
    splits, span = splits_of(batch * key_heads, seq_kv)
    part = torch.empty((batch, heads, seq_q, splits, head_dim), dtype=torch.float32, device=q.device)
    log_sum = torch.empty((batch, heads, seq_q, splits), dtype=torch.float32, device=q.device)
    shape = {"HEAD_DIM": head_dim, "BLOCK_D": max(16, triton.next_power_of_2(head_dim))}
    rows = max(16, triton.next_power_of_2(heads // key_heads * seq_q))
    strides = (q.stride(1), q.stride(2), k.stride(1), k.stride(2), v.stride(1), v.stride(2))
    _split[(batch * key_heads * splits,)](
        q, k, v, o, part, log_sum, 1 / (math.sqrt(head_dim) * math.log(2)), heads, heads // key_heads, seq_q, seq_kv,
        window, splits, span, *strides, BLOCK_R=rows, CAUSAL=causal and (seq_q > 1 or window > 0),
        WINDOWED=window > 0, DIRECT=splits == 1, **shape, **modes,
    )  # fmt: skip
    if splits > 1:
        block = triton.next_power_of_2(splits)
        _combine[(batch * heads * seq_q,)](part, log_sum, o, splits, BLOCK_S=block, **shape, **LAUNCH_OPTIONS)
