"""Attention of one query, or a few: the KV cache streams past, split over the SMs.

A block serves the query heads that share a key head. If there are fewer blocks than SMs, the keys are split over more
of them (Flash-Decoding, T. Dao et al., 2023). TensorRT-LLM has a second kernel, its masked multi-head attention, that
serves each query head by itself on the vector units; the group and the chip decide which of them runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.terms import KV_WRITE, LATENCY
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import warm_bandwidth
from perfmodel.prediction.latency.terms import CONTENTION, HBM, LAUNCH, MATH, SPLIT_K, Terms, overlapped, smooth_max

CONSTANTS = (
    Constant("launch", "s", 9.4e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("eta", "", 0.82, 0.1, 1.05, 0.15, "share of the datasheet bandwidth that the cache streams at", True),
    Constant("block", "", 3500.0, 50.0, 1e5, 0.8, "SM cycles of a block, its keys aside", True),
    Constant("l2", "", 1.5, 1.0, 12.0, 0.5, "speed of a cache that lies in L2, over that of device memory", True),
    Constant("token", "", 80.0, 0.5, 1e4, 0.8, "SM cycles of one query head beside the keys (RoPE, output)"),
    Constant("split", "s", 1e-6, 0.05e-6, 20e-6, 0.5, "joining the parts of split keys, for each doubling of parts"),
)

#: rows that a block's tensor products have, however few query heads share its keys; its step of keys
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
#: with a window, its blocks also visit the keys that they mask; over the block cost
GROUP_WINDOW = 2.0
#: its wgmma version for 8-bit caches (Hopper): block cost and launches, over those of the 16-bit version
WGMMA_8BIT_BLOCK, WGMMA_8BIT_LAUNCH = 0.25, 0.67
#: 8-bit keys widened on the vector units in software (Ada): cycles of the keys and of a block, over those of 16 bits
WIDENED_KEYS, WIDENED_BLOCK = 5.4, 3.0


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
    # The kernels of tcgen05 narrow the queries of an 8-bit cache, and multiply at twice the rate.
    narrow = machine.matrix_instruction == "tcgen05" and dtype_bytes(op.kv_dtype) < dtype_bytes(op.dtype)
    rate = machine.flop_per_clock_per_sm * (2.0 if narrow else 1.0)
    step = ROWS * KEYS * 4.0 * op.head_dim / (rate * TILE_MATH)
    # The first step is done in full however few the keys are.
    return _Kernel(blocks, np.ceil(keys / KEYS), c["block"] + step, step, 0.0, 1.0, 1.0)


def _trtllm(op: Attention, machine: Machine, c: Values, keys: Number) -> _Kernel:
    """TensorRT-LLM: one kernel for groups of 2 to 32 heads, and one for a head alone (all of them with tcgen05)."""
    group = op.heads / op.kv_heads
    instruction, narrow = machine.matrix_instruction, dtype_bytes(op.kv_dtype) == 1
    wgmma8, widens = narrow and instruction == "wgmma", narrow and machine.kernels.widens_fp8_keys
    alone = np.logical_or(group == 1, group > GROUP_MOST) | (instruction == "tcgen05")
    window = np.asarray(op.window)
    block = c["block"] * np.where((window > 0) & (window < op.seq_kv), GROUP_WINDOW, 1.0)
    block = block * (WGMMA_8BIT_BLOCK if wgmma8 else 1.0)
    widened, prologue = (WIDENED_KEYS, WIDENED_BLOCK) if widens else (1.0, 1.0)
    row = KEYS * 4.0 * op.head_dim / (machine.flop_per_clock_per_sm * TILE_MATH)
    step = GROUP_ROWS * row + GROUP_LANE_CYCLES * group * op.head_dim * KEYS / LANES
    parts = np.where(alone, np.ceil(keys / KEYS), 1.0 if widens else np.ceil(2.0 * keys / KEYS))
    return _Kernel(
        blocks=op.batch * op.seq_q * np.where(alone, op.heads, op.kv_heads),
        parts=parts,
        block=np.where(alone, 0.0, block),
        step=np.where(alone, widened * LONE_LANE_CYCLES * op.head_dim * KEYS / LANES, step),
        least=np.where(alone, prologue * LONE_BLOCK, 0.0),
        launches=np.where(alone, 1.0, WGMMA_8BIT_LAUNCH if wgmma8 else 1.0),
        spread=np.where(alone, LONE_SPLIT, 1.0),
    )


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return launch + || traffic, busy SMs, longest block ||_4 + heads + joining [s].

    With B blocks, the keys k of each split into s parts where B is below the SM count, and f the clock:

        s       = min(spread SM / B, parts), at least 1
        cycles  = || block + step (k / (s 128) - 1), least ||_4
        busy    = B s cycles / (SM f);   longest = step (k / (s 128) - 1) / f
        t       = launch + || bytes / (eta W), busy, longest ||_4 + token heads batch / (SM f) + split log2 s

    The cache lies in L2 as far as it fits when it is used again (`perfmodel.prediction.latency.streams.fitting_share`).
    """
    attention = cast(Attention, op)
    keys = attention.pairs() / attention.seq_q
    kernel = (_trtllm if conditions.library == "trtllm" else _grouped)(attention, machine, c, keys)
    parts = np.maximum(np.minimum(kernel.spread * machine.sm_count / kernel.blocks, kernel.parts), 1.0)
    cycles = machine.sm_count * machine.clock_hz
    alone = kernel.least > 0
    further = kernel.step * np.where(alone, keys / parts / KEYS, np.maximum(keys / parts / KEYS - 1.0, 0.0))
    busy = kernel.blocks * parts * smooth_max(4, kernel.block + further, kernel.least) / cycles
    one_wave = kernel.blocks * parts <= machine.sm_count * (1 + 1e-9)
    traffic = attention.work().bytes
    stream = warm_bandwidth(c["eta"] * machine.bandwidth_bytes_per_s, c["l2"], traffic, machine, conditions)
    body = overlapped(
        4, {HBM: traffic / stream, MATH: busy, LATENCY: np.where(one_wave, further / machine.clock_hz, 0.0)}
    )
    queries = 1.0 * attention.batch * attention.seq_q * attention.heads
    adds = {
        **body.adds,
        KV_WRITE: c["token"] * queries / cycles,
        SPLIT_K: c["split"] * np.log2(parts),
        LAUNCH: c["launch"] * kernel.launches,
    }
    return Terms(adds, body.alone)


#: libraries that send a prompt of one token to the kernel of decode too
PROMPTS_OF_ONE = ("vllm",)


def applies(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point is one query of a longer sequence; a sequence of one token is a (short) prompt."""
    return (op.seq_q == 1) & ((op.seq_kv > 1) | (library in PROMPTS_OF_ONE))


DECODE = Family(
    "attention_decode",
    CONSTANTS,
    formula,
    (HBM, MATH, LATENCY, CONTENTION, KV_WRITE, SPLIT_K, LAUNCH),
    applies,
)
