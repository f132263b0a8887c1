"""Blocks of query rows that walk along the keys: how many there are, and what all of them take together.

A block holds `TILE` rows of queries and visits its keys a tile at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.record import record
from perfmodel.core.vocabulary import Load
from perfmodel.core.work import Number, anywhere, ceil, clipped, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention import flash2
from perfmodel.prediction.latency.attention.choice import masks_window
from perfmodel.prediction.latency.attention.first_pass import narrow_keys
from perfmodel.prediction.latency.attention.kernels import WGMMA, Kernel
from perfmodel.prediction.latency.attention.rates import ada_8bit, on_lanes, reached_per_clock
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import s_per_flop, sustained_share
from perfmodel.prediction.latency.streams import fitting_share
from perfmodel.prediction.latency.terms import smooth_max

#: speed of L2 over that of device memory
L2_SPEED = 3.0
#: rows of queries of a usual block
TILE = 128.0
#: cost of their blocks of fewer than 128 queries where heads are not of 128 or 192 columns
ADA_8BIT_FEW = 3.0
#: fewest steps of keys of a part of a whole prompt: num_splits_heuristic in hopper/heuristics.h of
#: github.com/Dao-AILab/flash-attention splits none of so few. 1, 2 and 4 steps leave 5.4, 5.3 and 5.2 % of sglang's
#: rows on A100
SPLIT_STEPS = 4.0
#: start of the kernel that joins the parts [s]; an element of a part is written and read again in fp32 [B]
JOIN_S, PART_BYTES = 2e-6, 8.0
#: time of a call in which half of the power limit takes hold [s]: shorter calls end before the clock has come down.
#: Chosen on H100 and L40S: none, 1, 3, 6 and 10 ms leave 8.19, 8.17, 8.16, 8.16 and 8.17 % on the one, 10.47, 10.43 and
#: 10.40 % (three times) on the other (aiconfigurator @ 095f58a51c4c)
POWER_S = 3e-3
#: block cost of a window over that of a full row in TensorRT-LLM's wgmma kernels with a 16-bit cache, whose blocks mask
#: fewer of their kernel than those with an 8-bit one
WINDOW_16BIT = 2.0
#: cycles of a score in fp32, over those of 16 bits, where products in fp32 run on the tensor engine
FP32_SCORE = 2.0
#: operations in fp32 that the vector lanes of an SM do in a clock (of Blackwell, whose kernels alone count them); and
#: cycles of a score where 8 bits are wanted of it, over those of 16, as if half of the operations were done two at a
#: time: of 1, 0.75 and 0.5 what fits eight rows of cuDNN on GB200 and GB300 (`examples/published`, in view)
SCORE_LANES, NARROW_SCORE = 128.0, 0.75
#: elements of a row of a mask that are 16 B
MASK_ROW = 8.0
#: columns of a head above which blocks of few queries have no room to load their next keys while they compute: four
#: calls of an H200 with 64 queries and heads of 192 and 256 columns (`examples/records`, 2026-11-27)
LARGE = 128.0
#: rows of a warp group, of which a block has two (wgmma m64)
GROUP_ROWS = 64.0
#: most of a last wave that equal blocks show: the blocks of two waves overlap (assumed; no call jumps by three then)
LAST_WAVE = 0.5


def masked(op: Attention, kernel: Kernel) -> Any:
    """Return where a tensor masks the keys that a query may not see."""
    if not (kernel.masks and op.causal):
        return False
    windowed = masks_window(op)
    return windowed | ((op.seq_kv > op.seq_q) & (op.seq_q > 1)) if kernel.masks_ends else windowed


@record
class _Blocks:
    """Blocks of query rows: how many a head has, their rows and the share with queries, the keys that one visits.

    ``keys`` is the average over blocks, ``most_keys`` that of the block with the most.
    """

    a_head: Number
    rows: Number
    filled: Number
    keys: Number
    most_keys: Number
    windowed: Any

    @classmethod
    def of(cls, op: Attention, kernel: Kernel, rows: Number, step: Number, lanes: bool = False) -> _Blocks:
        """Count the blocks; those on vector lanes have no rows without queries, and steps of one key.

        A causal block of r rows visits (r - 1) / 2 keys more than its average row, and as many again at the
        other end of a window, where its rows are past the first window of keys; never fewer than a step.
        """
        held = op.seq_q / rows
        count = ceil(held)
        if kernel.packed:
            group = op.heads / op.kv_heads
            held = held * group
            count = minimum(count, ceil(held) / group)
        filled = minimum(held, 1.0)
        window = where(op.window > 0, op.window, math.inf)
        hidden = masked(op, kernel)
        windowed = (window < op.seq_kv) & (hidden ^ True)
        past = where(windowed, minimum((op.seq_kv - window) / op.seq_q, 1.0), 0.0)
        edges = 0.5 * maximum(rows, step) * (float(op.causal) + past)
        most = minimum(op.seq_kv, window + rows)
        # The call has the keys that any query attends to.
        most = where(hidden, op.keys(), most)
        keys = where(hidden, most, minimum(op.pairs() / op.seq_q + edges, most))
        if lanes:
            return cls(count, rows * filled, filled, keys, most, windowed)
        return cls(count, rows, filled, maximum(keys, step), maximum(most, step), windowed)


def _mask_cycles(op: Attention, kernel: Kernel) -> Number:
    """Return the cycles of a score that a tensor masks, over those of an exponential.

    Where the rows of a block are those of two warp groups, one without queries reads no mask.
    """
    whole, in_part, unaligned = kernel.mask_cycles
    aligned = where(op.seq_q % kernel.rows == 0, whole, in_part)
    filled = minimum(op.seq_q / GROUP_ROWS, 1.0)
    cycles = where(op.keys() % MASK_ROW == 0, aligned, in_part + (unaligned - in_part) * filled)
    read: Number = where((op.seq_q <= GROUP_ROWS) & (kernel.rows > GROUP_ROWS), 0.5, 1.0) * cycles
    return read


def _score_cycles(op: Attention, kernel: Kernel, exponential: Number) -> Number:
    """Return the cycles of a score in the softmax of a kernel whose products run beside it."""
    cycles: Number = exponential + kernel.score_ops / SCORE_LANES
    return NARROW_SCORE * cycles if dtype_bytes(op.dtype) == 1 else cycles


@record
class BlockTimes:
    """What all blocks take together [s]: the parts of ``run``, of which ``joining`` is of the parts of split keys."""

    math: Number
    softmax: Number
    waste: Number
    setup: Number
    tail: Number
    joining: Number
    held: Number
    run: Number

    def waiting(self, time_s: Number) -> BlockTimes:
        """Return the same with time in which all blocks wait for memory, and compute nothing [s]."""
        setup, run = self.setup + time_s, self.run + time_s
        return BlockTimes(self.math, self.softmax, self.waste, setup, self.tail, self.joining, self.held, run)

    def or_faster(self, other: BlockTimes) -> BlockTimes:
        """Return the same where that takes no longer than other blocks do, and else those."""
        faster = other.run < self.run
        return BlockTimes(
            *(where(faster, getattr(other, name), getattr(self, name)) for name in BlockTimes.__annotations__)
        )


def block_times(op: Attention, machine: Machine, c: Values, kernel: Kernel, load: Load) -> BlockTimes:
    """Return what the blocks take; no keys are split where joining their parts takes longer than that saves."""
    split = _with_parts(op, machine, c, kernel, load, math.inf)
    if not anywhere(split.joining > 0.0):
        return split
    return _with_parts(op, machine, c, kernel, load, 1.0).or_faster(split)


def _with_parts(op: Attention, machine: Machine, c: Values, kernel: Kernel, load: Load, most: float) -> BlockTimes:
    """Return what the blocks take with the parts of the keys that the kernel has, or as many at most."""
    chosen = minimum(flash2.parts(op, machine), most) if flash2.chooses_splits(kernel) else None
    rows = kernel.rows_for(op.seq_q) if chosen is None else flash2.rows_of(op, machine, kernel, chosen)
    step = kernel.step_keys(op.head_dim) if chosen is None else flash2.step_of(op.head_dim, chosen)
    blocks = _Blocks.of(op, kernel, rows, step, on_lanes(op, machine, kernel))
    cycles = machine.sm_count * machine.clock_hz
    heads = 1.0 * op.batch * op.heads
    product = 4.0 * kernel.padded(op.head_dim) / reached_per_clock(op, machine, kernel, c["math"])
    # Products in 8 bits are too short to hide them.
    shown: Number = kernel.exponentials if dtype_bytes(op.dtype) > 1 else 1.0
    if kernel.tf32_products and dtype_bytes(op.dtype) > 2:
        shown = FP32_SCORE * shown
    if kernel.masks:
        shown = shown + where(masked(op, kernel), _mask_cycles(op, kernel), 0.0)
    exponential = shown / machine.exponentials_per_clock
    if kernel.score_ops:
        exponential = smooth_max(4, product, _score_cycles(op, kernel, exponential)) - product
    pair = product + exponential
    # Of a block, however many rows it has: fits give 3,300 to 4,300 cycles for blocks of 64 rows (TensorRT-LLM on A100
    # and L40S, vLLM on L40S), 4,600 to 6,800 for those of 128 (Hopper).
    block: Number = c["block"]
    if kernel.large_blocks:
        block = block * where(op.seq_q > GROUP_ROWS, maximum(op.head_dim / LARGE, 1.0), 1.0)
    if kernel.window_cost != 1.0:
        narrow = dtype_bytes(op.kv_dtype) == 1
        block = block * where(blocks.windowed, kernel.window_cost if narrow else WINDOW_16BIT, 1.0)
    if ada_8bit(op, machine, kernel):
        others = (op.head_dim != 128) & (op.head_dim != 192)
        block = block * where(others & (op.seq_q < TILE), ADA_8BIT_FEW, 1.0)
    visited = heads * blocks.a_head * blocks.rows * blocks.keys
    math, softmax = (heads * op.pairs() * share / cycles for share in (product, exponential))
    if kernel.filled:
        block = block * (1.0 - kernel.filled) + block * kernel.filled * blocks.filled
    setup = heads * blocks.a_head * block / cycles
    split, joining = _split(op, machine, kernel, blocks, chosen, most)
    longest = (blocks.rows * blocks.most_keys * pair / split + block) / machine.clock_hz
    busy = visited * pair / cycles + setup
    tail: Number = kernel.tail * longest
    if kernel.in_waves:
        equal = (blocks.keys == blocks.most_keys) & np.logical_not(blocks.windowed)
        loads = heads * blocks.a_head * split / machine.sm_count
        last = where(loads > 1.0, clipped(ceil(loads) - loads, kernel.tail, LAST_WAVE), 1.0 - loads)
        # The first blocks of a causal prompt are shorter than equal ones: a mask makes no call slower.
        shorter = (blocks.most_keys / blocks.keys - 1.0) * visited * pair / cycles
        tail = where(equal, last * longest, minimum(tail, last * longest + shorter))
    if kernel.ascending:
        # No more than would be busy if all blocks were as long as the longest: a mask makes no call slower.
        later = kernel.ascending * (1.0 - blocks.keys / blocks.most_keys) * longest
        tail = tail + minimum(later, (blocks.most_keys / blocks.keys - 1.0) * visited * pair / cycles)
    alone = smooth_max(4, busy + tail, kernel.sharing * longest)
    run = alone + joining
    held = _held_down(op, machine, c, kernel, load, visited, run)
    waste = visited * pair / cycles - math - softmax
    return BlockTimes(math, softmax, waste, setup, alone - busy, joining, held, run + held)


def _split(
    op: Attention, machine: Machine, kernel: Kernel, blocks: _Blocks, chosen: Number | None, most_parts: float
) -> tuple[Number, Number]:
    """Return the parts that a block's keys are split into over idle SMs, and the time of joining those [s].

    A chunk of few queries has at most as many parts as keys for each query, a whole prompt one for each
    ``SPLIT_STEPS`` steps of keys. Joining starts and writes in proportion to the parts beyond one, so that nothing
    jumps where the blocks begin to fill the SMs. ``chosen`` are the parts where the kernel chooses them; there are no
    more than ``most_parts``.
    """
    if chosen is not None:
        return chosen, where(chosen > 1.0, JOIN_S + _parts_s(op, machine, chosen, near=True), 0.0)
    count = 1.0 * op.batch * op.heads * blocks.a_head
    steps = blocks.most_keys / kernel.step_keys(op.head_dim)
    most = minimum(op.seq_kv / op.seq_q, steps) if kernel.splits else 1.0
    if not kernel.splits_whole:
        return maximum(minimum(machine.sm_count / count, most), 1.0), 0.0
    most = maximum(most, steps / SPLIT_STEPS)
    split = maximum(minimum(machine.sm_count / count, minimum(most, most_parts)), 1.0)
    return split, JOIN_S * minimum(split - 1.0, 1.0) + _parts_s(op, machine, split - 1.0)


def _parts_s(op: Attention, machine: Machine, parts: Number, *, near: bool = False) -> Number:
    """Return the time of writing the sums of some parts and of reading them again, from L2 where they are near [s].

    Constants of FlashAttention-3 are fitted with parts that pass through device memory.
    """
    moved = PART_BYTES * op.batch * op.heads * op.seq_q * op.head_dim * parts
    held = fitting_share(0.5 * moved, machine.l2_bytes) if near and machine.l2_bytes else 0.0
    return moved / (machine.bandwidth_bytes_per_s * (1.0 + (L2_SPEED - 1.0) * held))


def _held_down(
    op: Attention, machine: Machine, c: Values, kernel: Kernel, load: Load, visited: Number, run: Number
) -> Number:
    """Return the time that the power limit adds [s]: all of it in calls far longer than ``POWER_S``.

    After minutes of load the clock is down before a call starts, and as far as `sustained_share` says.
    """
    if not math.isfinite(machine.tdp_w):
        return 0.0
    narrow = narrow_keys(op) and machine.matrix_instruction == WGMMA and not kernel.two_level
    flop = 4.0 * op.head_dim
    # A FLOP of 8 bits takes half the energy of one of 16.
    joule = c["energy"] * (0.5 * (1.0 if narrow else dtype_bytes(op.dtype)) + kernel.beside)
    limited = flop * visited * s_per_flop(machine, joule)
    if load == Load.SUSTAINED:
        return run / sustained_share(machine, run / limited) - run
    return maximum(limited - run, 0.0) * (limited / (limited + POWER_S))
