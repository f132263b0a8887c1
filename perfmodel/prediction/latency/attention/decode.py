"""Attention of one query, or a few: the KV cache streams past, split over the SMs.

A block serves the query heads that share a key head, and where there are fewer blocks than SMs the keys are split
over more (Flash-Decoding, T. Dao et al., 2023). TensorRT-LLM has a second kernel, its masked multi-head attention,
that serves each query head by itself on the vector units; which of them runs is a matter of the group and the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Terms, Values, overlapped, smooth_max
from perfmodel.prediction.latency.machine import Machine

CONSTANTS = (
    Constant("launch", "s", 9.4e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("eta", "", 0.82, 0.1, 1.05, 0.15, "share of the datasheet bandwidth that the cache streams at", True),
    Constant("block", "", 3500.0, 50.0, 1e5, 0.8, "SM cycles of a block, its keys aside", True),
    Constant("l2", "", 1.5, 1.0, 12.0, 0.5, "speed of a cache that lies in L2, over that of device memory", True),
    Constant("token", "", 80.0, 0.5, 1e4, 0.8, "SM cycles of one query head beside the keys (RoPE, output)"),
    Constant("split", "s", 1e-6, 0.05e-6, 20e-6, 0.5, "joining the parts of split keys, for each doubling of parts"),
)

#: rows that a block's tensor products have, whether or not so many query heads share its keys; its step of keys
ROWS, KEYS = 128.0, 128.0
#: share of the tensor peak in such a block
TILE_MATH = 0.8
#: the kernel of one query head alone: lane-cycles of an element of a head (two products and the widening of K and
#: V, on 128 lanes), and SM cycles of a block at least
LONE_LANE_CYCLES, LONE_BLOCK, LANES = 20.0, 2500.0, 128.0
#: share of the SMs that it splits its keys over (B200: 8 to 64 heads of 8192 keys and more take 1.6 times what all SMs
#: would)
LONE_SPLIT = 0.5
#: TensorRT-LLM's kernel for a group: largest group, rows of its products, lane-cycles of an element and head
GROUP_MOST, GROUP_ROWS, GROUP_LANE_CYCLES = 32.0, 64.0, 1.0
#: with a window, its blocks also visit what they mask; over the block cost
GROUP_WINDOW = 2.0
#: its Hopper version for 8-bit caches: block cost and launches, over those of the 16-bit one
HOPPER_8BIT_BLOCK, HOPPER_8BIT_LAUNCH = 0.25, 0.67
#: Ada widens 8-bit keys on the vector units in software: cycles of the keys and of a block, over those of 16 bits
ADA_8BIT, ADA_8BIT_BLOCK = 5.4, 3.0


@dataclass(frozen=True)
class _Kernel:
    """The kernel that serves a call: blocks, the steps of keys that each can be split into, and their cycles.

    ``block`` and ``step`` are SM cycles of a block and of `KEYS` keys in it; ``least`` bounds their sum from below;
    ``spread`` is the share of the SMs that keys are split over.
    """

    blocks: Number
    parts: Number
    block: Number
    step: Number
    least: Number
    launches: Number
    spread: Number


def _grouped(op: Attention, machine: Machine, c: Values, keys: Number) -> _Kernel:
    """FlashAttention's kernels: a block of up to 128 query heads and queries that share a key head."""
    group = op.heads / op.kv_heads
    blocks = op.batch * op.kv_heads * np.ceil(op.seq_q * group / ROWS)
    # Blackwell narrows the queries of an 8-bit cache, and multiplies at twice the rate.
    narrow = machine.generation == "blackwell" and dtype_bytes(op.kv_dtype) < dtype_bytes(op.dtype)
    rate = machine.flop_per_clock_per_sm * (2.0 if narrow else 1.0)
    step = ROWS * KEYS * 4.0 * op.head_dim / (rate * TILE_MATH)
    # The first step is done in full however few the keys are.
    return _Kernel(blocks, np.ceil(keys / KEYS), c["block"] + step, step, 0.0, 1.0, 1.0)


def _trtllm(op: Attention, machine: Machine, c: Values, keys: Number) -> _Kernel:
    """TensorRT-LLM: one kernel for groups of 2 to 32 heads, and one for a head alone (all of them on Blackwell)."""
    group = op.heads / op.kv_heads
    hopper8, ada8 = (machine.generation == g and dtype_bytes(op.kv_dtype) == 1 for g in ("hopper", "ada"))
    alone = np.logical_or(group == 1, group > GROUP_MOST) | (machine.generation == "blackwell")
    window = np.asarray(op.window)
    block = c["block"] * np.where((window > 0) & (window < op.seq_kv), GROUP_WINDOW, 1.0)
    block = block * (HOPPER_8BIT_BLOCK if hopper8 else 1.0)
    widened, prologue = (ADA_8BIT, ADA_8BIT_BLOCK) if ada8 else (1.0, 1.0)
    row = KEYS * 4.0 * op.head_dim / (machine.flop_per_clock_per_sm * TILE_MATH)
    step = GROUP_ROWS * row + GROUP_LANE_CYCLES * group * op.head_dim * KEYS / LANES
    parts = np.where(alone, np.ceil(keys / KEYS), 1.0 if ada8 else np.ceil(2.0 * keys / KEYS))
    return _Kernel(
        blocks=op.batch * op.seq_q * np.where(alone, op.heads, op.kv_heads),
        parts=parts,
        block=np.where(alone, 0.0, block),
        step=np.where(alone, widened * LONE_LANE_CYCLES * op.head_dim * KEYS / LANES, step),
        least=np.where(alone, prologue * LONE_BLOCK, 0.0),
        launches=np.where(alone, 1.0, HOPPER_8BIT_LAUNCH if hopper8 else 1.0),
        spread=np.where(alone, LONE_SPLIT, 1.0),
    )


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return launch + || traffic, busy SMs, longest block ||_4 + heads + joining [s].

    With B blocks, the keys k of each split into s parts where B is below the SM count, f the clock:

        s       = min(spread SM / B, parts), at least 1
        cycles  = || block + step (k / (s 128) - 1), least ||_4
        busy    = B s cycles / (SM f);   longest = step (k / (s 128) - 1) / f
        t       = launch + || bytes / (eta W), busy, longest ||_4 + token heads batch / (SM f) + split log2 s

    The cache lies in L2 when it is used again and fits: the share falls from 1 to 0 as K and V grow from 0.95 to
    1.15 of its capacity.
    """
    attention = cast(Attention, op)
    keys = attention.pairs() / attention.seq_q
    kernel = (_trtllm if conditions.library == "trtllm" else _grouped)(attention, machine, c, keys)
    parts = np.maximum(np.minimum(kernel.spread * machine.sm_count / kernel.blocks, kernel.parts), 1.0)
    cycles = machine.sm_count * machine.clock_hz
    alone = kernel.least > 0
    further = kernel.step * np.where(alone, keys / parts / KEYS, np.maximum(keys / parts / KEYS - 1.0, 0.0))
    busy = kernel.blocks * parts * smooth_max(4, kernel.block + further, kernel.least) / cycles
    here = overlapped(
        4,
        dram=_traffic_s(attention, machine, c, conditions),
        math=busy,
        latency=np.where(kernel.blocks * parts <= machine.sm_count * (1 + 1e-9), further / machine.clock_hz, 0.0),
    )
    queries = 1.0 * attention.batch * attention.seq_q * attention.heads
    adds = {
        **here.adds,
        "rope and kv write": c["token"] * queries / cycles,
        "split-k": c["split"] * np.log2(parts),
        "launch": c["launch"] * kernel.launches,
    }
    return Terms(adds, here.alone)


def _traffic_s(op: Attention, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the time of the compulsory traffic, at L2 speed where a warm cache fits [s]."""
    traffic = op.work().bytes
    speed: Number = c["eta"] * machine.bandwidth_bytes_per_s
    if conditions.cache == "warm" and machine.l2_bytes:
        held = np.clip((1.15 * machine.l2_bytes - traffic) / (0.2 * machine.l2_bytes), 0.0, 1.0)
        speed = speed * (1.0 + (c["l2"] - 1.0) * held)
    return traffic / speed


DECODE = Family("attention_decode", CONSTANTS, terms)
