"""How FlashAttention-2 serves few queries: which heads share a block, and when it splits the keys.

It has two kernels. One, with blocks of 64 rows, splits the keys over idle SMs; where there are blocks enough it does
not run, but that of prompts, whose blocks have 128 rows however few of them hold queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.work import Number, anywhere, ceil, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import WGMMA, Kernel, head_step_keys
from perfmodel.prediction.latency.machine import Machine

#: rows of its kernel that splits keys: kBlockM in run_mha_fwd_splitkv_dispatch, flash_fwd_launch_template.h
SPLIT_ROWS = 64.0
#: columns of a head above which a block of 128 rows leaves no room for another in the shared memory of Hopper
LARGEST_WHOLE = 192.0
#: num_splits_heuristic and set_params_splitkv of csrc/flash_attn/flash_api.cpp, github.com/Dao-AILab/flash-attention:
#: blocks that an SM holds, the share of so many places from which on keys are not split, and most parts
AT_ONCE, FULL, MOST_PARTS = 2.0, 0.8, 128.0
#: what its second kernel, whose blocks add up the parts of their rows one after another, takes for each part [s]: 65
#: parts of 4 heads take an H200 16.2 us (a profile of torch 2.11)
ADDED_S = 0.22e-6


def chooses_splits(kernel: Kernel) -> bool:
    """Return whether a kernel is FlashAttention-2's for sequences of one length, which may split their keys."""
    return kernel.name == "fa2" and kernel.splits and not kernel.varlen


def packed(op: Attention) -> Any:
    """Whether the query heads of a group are the queries of one head: for one query, without a window.

    That is seqlenq_ngroups_swapped in mha_fwd of csrc/flash_attn/flash_api.cpp.
    """
    return (op.seq_q == 1) & (op.window == 0)


def places_left(op: Attention, machine: Machine) -> Number:
    """Return the places for blocks of 64 rows over the blocks there are: P / b."""
    heads = where(packed(op), op.kv_heads, op.heads)
    queries = where(packed(op), op.heads / op.kv_heads, op.seq_q)
    blocks: Number = 1.0 * op.batch * heads * ceil(queries / SPLIT_ROWS)
    return AT_ONCE * machine.sm_count / blocks


def whole(op: Attention, machine: Machine) -> Any:
    """Whether the keys stay whole: where blocks fill 0.8 of the places for them, b >= 0.8 P."""
    return places_left(op, machine) * FULL <= 1.0


def parts(op: Attention, machine: Machine) -> Number:
    """Return the parts that the keys of a prompt are split into: as many as there are places for, 1 where none.

    FlashAttention-2 takes the fewest whole parts whose waves are filled to 0.85 of the best filling, which is near it.
    The longest part is a whole step.
    """
    steps = op.seq_kv / head_step_keys(op.head_dim)
    split = maximum(minimum(places_left(op, machine), minimum(steps, MOST_PARTS)), 1.0)
    found: Number = where(whole(op, machine), 1.0, split)
    return found


def rows_of(op: Attention, machine: Machine, kernel: Kernel, split: Number) -> Number:
    """Return the rows of a block of queries: fewer where keys are split, or heads of 256 columns run two on an SM.

    They do on Hopper, whose SMs have the shared memory for two blocks of 64 rows: run_mha_fwd_hdim256 in
    flash_fwd_launch_template.h.
    """
    usual: Number = kernel.rows
    if machine.matrix_instruction == WGMMA:
        usual = where(op.head_dim > LARGEST_WHOLE, SPLIT_ROWS, usual)
    found: Number = where(split > 1.0, minimum(usual, SPLIT_ROWS), usual)
    return found


def step_of(head_dim: Number, split: Number) -> Number:
    """Return the keys of a step, kBlockN: of the kernel that splits keys, and of the one that does not."""
    found: Number = where(split > 1.0, head_step_keys(head_dim), where(head_dim <= 64.0, 128.0, 64.0))
    return found


def first_keys(op: Attention, machine: Machine) -> Number:
    """Return the keys of the first step of few queries, which is done in full.

    The other kernel, whose steps are shorter, has calls whose keys are one step at most, and those whose keys stay
    whole.
    """
    split, step = head_step_keys(op.head_dim), step_of(op.head_dim, 1.0)
    alone = whole(op, machine) | (op.keys() <= split)
    found: Number = where(alone, minimum(split, step * ceil(op.keys() / step)), split)
    return found


def by_blocks(op: Attention) -> tuple[tuple[Any, Attention], ...]:
    """Return the call as its blocks see it, for the points that a mask names: the heads of a group as queries."""
    together = packed(op) & (op.heads > op.kv_heads)
    if not anywhere(together):
        return ((True, op),)
    swapped = op.changed(heads=op.kv_heads, seq_q=op.heads / op.kv_heads, causal=False, window=0)
    return ((together, swapped), (np.logical_not(together), op))
