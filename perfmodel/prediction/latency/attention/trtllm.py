"""TensorRT-LLM's decodes of one query: a kernel for the heads of a group, and one for each head by itself.

The second, its masked multi-head attention, runs on the vector units. The group, the number of blocks and the chip
decide which of them runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, ceil, floor, maximum, minimum, plain, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import TCGEN05, WGMMA
from perfmodel.prediction.latency.attention.rates import summed_per_clock
from perfmodel.prediction.latency.attention.run import KEYS, TILE_MATH, Run
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine

#: largest group of the kernel for groups, rows of its products, lane-cycles of a column and head
GROUP_MOST, GROUP_ROWS, GROUP_LANE_CYCLES, LANES = 32.0, 64.0, 1.0, 128.0
#: its constants kMinHistoryTokensPerBlock, kEnableMinBlockFactor, kTargetWaveFactor and kXQA_MAX_NUM_SUB_SEQ
#: (decoderXQAConstants.h)
PART_KEYS, FEWEST_WAVES, MOST_WAVES, MOST_PARTS = 128.0, 4.0, 8.0, 6000.0
#: cost of a part outside the window, over that of a part inside
EMPTY = 0.6
#: growth of a block's cost from heads of 0 to 128 columns; with 8-bit keys that are widened in software
BLOCK_SLOPE, WIDENED_SLOPE = 0.15, 0.35
#: its wgmma version for 8-bit caches (Hopper): block cost and launches, over those of the 16-bit version
WGMMA_8BIT_BLOCK, WGMMA_8BIT_LAUNCH = 0.9, 0.5
#: keys of one pass of 1024 threads over heads of 128 columns; cost of the first 64 keys over that of the block, also
#: with tcgen05 and keys of 16 bits
PASS_KEYS, FIRST_KEYS, FIRST_KEYS_TCGEN05 = 512.0, 0.45, 0.1
#: 8-bit keys widened on the vector units in software (Ada): cycles of the keys and of a block, over those of 16 bits
WIDENED_KEYS, WIDENED_BLOCK = 5.4, 3.0
#: from here on waves overlap enough to count in part
WHOLE_WAVES = 12.0


def run_of(op: Attention, machine: Machine, c: Values, keys: Number) -> Run:
    """Return a decode of one query: by the kernel of groups (XQA) if it has enough blocks, else by that of heads."""
    group = op.heads / op.kv_heads
    narrow = dtype_bytes(op.kv_dtype) == 1
    blocks = 1.0 * op.batch * op.kv_heads
    most = maximum(floor(op.seq_kv / PART_KEYS), 1.0)
    alone = (group == 1) | (group > GROUP_MOST)
    if machine.matrix_instruction == TCGEN05:
        alone = alone | True
    elif not (narrow and (machine.matrix_instruction == WGMMA or machine.kernels.widens_fp8_keys)):
        # mayHavePerfGain in decoderXQAImplPrecompiled.cpp of github.com/NVIDIA/TensorRT-LLM
        alone = alone | (blocks * most * FEWEST_WAVES < machine.sm_count)
    heads, together = _single_heads(op, machine, c, keys, narrow), _group(op, machine, c, keys, narrow, blocks, most)
    return Run(
        where(alone, heads.busy, together.busy),
        where(alone, heads.parts, together.parts),
        where(alone, heads.launches, together.launches),
    )


def _group(op: Attention, machine: Machine, c: Values, keys: Number, narrow: bool, blocks: Number, most: Number) -> Run:
    """Return the time of a block for each group of heads, and part of the keys; waves of blocks are whole."""
    wgmma8, widens = narrow and machine.matrix_instruction == WGMMA, narrow and machine.kernels.widens_fp8_keys
    # computeMultiBlockCount in decoderXQAImplCommon.h: the whole sequence counts, whatever the window
    root: Any = np.round(np.sqrt(8.0 * most))
    parts: Number = minimum(most, plain(root))
    parts = floor(parts / maximum(1.0, blocks * parts / (machine.sm_count * MOST_WAVES)))
    parts = 1.0 if widens else maximum(minimum(parts, floor(MOST_PARTS / op.batch)), 1.0)
    at_once = maximum(floor(384.0 / op.head_dim), 1.0) if wgmma8 else 1.0
    a_part = op.seq_kv / parts
    seen = minimum(parts, ceil(keys / a_part) + (keys < op.seq_kv))
    waves = _waves(blocks * parts, machine.sm_count * at_once)
    waves = maximum(waves * (seen + (0.0 if wgmma8 else EMPTY) * (parts - seen)) / parts, 1.0)
    slope = WIDENED_SLOPE if widens else BLOCK_SLOPE
    start = c["block"] * (1.0 + slope * (op.head_dim / 128.0 - 1.0)) * (WGMMA_8BIT_BLOCK if wgmma8 else 1.0)
    row = 4.0 * op.head_dim / (summed_per_clock(machine) * TILE_MATH)
    a_key = GROUP_ROWS * row + _group_lanes(op)
    further = a_key * maximum(minimum(keys, a_part) - KEYS, 0.0) * maximum(1.0, 0.4 * at_once)
    busy = waves * (start + further) / machine.clock_hz
    return Run(busy, parts + 0.0 * busy, WGMMA_8BIT_LAUNCH if wgmma8 else 1.0)


def _group_lanes(op: Attention) -> Number:
    """Return the cycles of a key on the vector lanes, for all heads of its group."""
    return GROUP_LANE_CYCLES * (op.heads / op.kv_heads) * op.head_dim / LANES


def _single_heads(op: Attention, machine: Machine, c: Values, keys: Number, narrow: bool) -> Run:
    """Return the time of a block for each head, and part of the keys.

    Blocks have 1024 threads where that leaves no SM without one, else 512 or 256; so many run on an SM at once as its
    registers allow. Keys are split into parts of one pass of 1024 threads at least, over the blocks of one wave
    (multi_block_grid_setup in decoderMaskedMultiheadAttentionLaunch.h).
    """
    widens = narrow and machine.kernels.widens_fp8_keys
    blocks = 1.0 * op.batch * op.heads
    most = 3.0 if widens or (machine.matrix_instruction == TCGEN05 and not narrow) else 4.0
    factor = minimum(ceil(machine.sm_count * most / blocks), most)
    at_once = where(factor >= 4.0, 1.0, where(factor >= 2.0, floor(most / 2.0), most))
    one_pass = PASS_KEYS * 128.0 / op.head_dim
    newest = 0.0 if machine.kernels.widens_fp8_keys else 1.0
    parts = minimum(ceil((keys + newest) / one_pass), ceil(machine.sm_count * at_once / blocks))
    waves = _waves(blocks * parts, machine.sm_count * at_once)
    sharing = minimum(at_once, maximum(blocks * parts / machine.sm_count, 1.0))
    prologue, widened = (WIDENED_BLOCK, WIDENED_KEYS) if widens else (1.0, 1.0)
    first = FIRST_KEYS_TCGEN05 if machine.matrix_instruction == TCGEN05 and not narrow else FIRST_KEYS
    start = prologue * c["head"] * (1.0 + first * minimum(keys / 64.0, 1.0))
    further = widened * c["key"] * op.head_dim / 128.0 * sharing * maximum(keys / parts - 256.0, 0.0)
    return Run(waves * (start + further) / machine.clock_hz, parts)


def _waves(blocks: Number, at_once: Number) -> Number:
    """Return the waves of blocks: whole while they are few, since all blocks start and end together."""
    waves = blocks / at_once
    counted: Number = where(waves < WHOLE_WAVES, ceil(waves - 1e-9), waves + 0.5)
    return counted
