"""Attention over many queries: blocks of query rows that walk along the keys, after a pass that fills the KV cache.

A block holds `TILE` rows of queries and visits its keys a tile at a time. A pair of kernel costs the tensor engine
two products of TILE x TILE x head_dim, and the exponential unit TILE^2 results, which the first hides only in part
(T. Dao, "FlashAttention-2", arXiv 2307.08691; J. Shah et al., "FlashAttention-3", arXiv 2407.08608).
"""

from __future__ import annotations

import math
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.record import record
from perfmodel.core.vocabulary import Load
from perfmodel.core.work import Number, ceil, clipped, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import flash2
from perfmodel.prediction.latency.attention.axes import PREFILL_AXES
from perfmodel.prediction.latency.attention.beyond import ANOTHERS_KERNEL, BEYOND, LARGE_HEADS
from perfmodel.prediction.latency.attention.choice import choices, is_by_pytorch, masks_window
from perfmodel.prediction.latency.attention.first_pass import first_pass, inputs, narrow_keys, narrowing_s, prepared
from perfmodel.prediction.latency.attention.kernels import (
    KERNELS,
    WGMMA,
    Kernel,
    kernel_of,
    lenders,
)
from perfmodel.prediction.latency.attention.phases import is_decode
from perfmodel.prediction.latency.attention.rates import ada_8bit, on_lanes, reached_per_clock
from perfmodel.prediction.latency.attention.terms import BLOCK, KV_WRITE, MASK, SOFTMAX, WITHOUT_WRITE
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.gemm.times import POWER_LIMIT
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY, s_per_flop, sustained_share
from perfmodel.prediction.latency.streams import warm_bandwidth
from perfmodel.prediction.latency.terms import CONTENTION, HBM, LAUNCH, MATH, TILE_WASTE, WAVES, Terms, smooth_max

CONSTANTS = (
    Constant("launch", "s", 9e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("math", "", 0.75, 0.1, 1.0, 0.25, "share of the tensor peak in the two products", True),
    Constant("block", "", 2500.0, 50.0, 1e5, 0.7, "SM cycles of a block of query rows, its kernel aside", True),
    Constant("token", "", 35.0, 0.1, 1000.0, 1.0, "SM cycles of a token of a head before the kernel", True, None, True),
    Constant(
        "energy",
        "J/FLOP",
        TENSOR_ENERGY,
        1e-13,
        2e-11,
        0.15,
        "energy of a 16-bit FLOP at the lowest voltage in TSMC 4N",
    ),
    Constant("kv", "", 1.2, 0.1, 10.0, 0.4, "traffic of the pass that writes the KV cache, over the least", True),
)

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
#: share of the datasheet bandwidth of a stream, and the speed of L2 over it
STREAM, L2_SPEED = 0.85, 3.0
#: block cost of a window over that of a full row in TensorRT-LLM's wgmma kernels with a 16-bit cache, whose blocks mask
#: fewer of their kernel than those with an 8-bit one
WINDOW_16BIT = 2.0
#: cycles of a score in fp32, over those of 16 bits, where products in fp32 run on the tensor engine
FP32_SCORE = 2.0
#: elements of a row of a mask that are 16 B
MASK_ROW = 8.0
#: start of the three small kernels that make a mask [s], the bytes of an element before it has the dtype of Q, and the
#: share of the bandwidth that moves them: 2816 x 2817 and 3008 x 3072 elements take an H200 18.5 and 20.9 us (profiles
#: of torch 2.11)
MASK_KERNELS_S, MASK_BYTES, MASK_STREAM = 5.5e-6, 1.0, 0.28
#: columns of a head above which blocks of few queries have no room to load their next keys while they compute: four
#: calls of an H200 with 64 queries and heads of 192 and 256 columns (`examples/records`, 2026-11-27)
LARGE = 128.0
#: rows of a warp group, of which a block has two (wgmma m64)
GROUP_ROWS = 64.0
#: most of a last wave that equal blocks show: the blocks of two waves overlap (assumed; no call jumps by three then)
LAST_WAVE = 0.5
#: start and drain of their kernels of heads of 128 in 16 bits, over that of others: no pass prepares Q (H100, H200)
UNPREPARED = 0.78


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


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions, kernel: Kernel | None = None) -> Terms:
    """Return launch + KV pass + || busy SMs and their tail, traffic ||_4 [s].

    With n blocks a head of r rows that visit k keys, F FLOP and X exponentials of an SM in a clock, f the clock:

        pair(k)  = r k (4 head_dim / (math F) + 1 / X)                        [cycles]
        block    = block of the constants, less the kernel's share ``filled`` of it for rows without queries
        busy     = batch heads n (pair(k) + block) / (SM f)
        longest  = (pair(k_max) / split + block) / f
        blocks   = || busy + tail longest, longest ||_4 + joining + what the power limit adds
        t        = launch + || blocks, bytes / W ||_4 + || token batch seq_q heads / (SM f), kv (new bytes) / W ||_2

    head_dim is the size that the kernel pads a head to. Where all blocks visit as many keys, kernels whose blocks end
    together show the rest of their last wave in place of the tail. A mask that is a tensor (`masked`) takes kernels of
    its own; its scores are all visited, and take longer than exponentials do.
    The new bytes are those of K and V, read as computed and written as cached, and of Q, read and written, where
    the library turns it in a pass of its own. If the queries of a chunk are few against its keys, the keys are split
    over idle SMs, in at most seq_kv / seq_q parts of at least one step each; FlashAttention-3 splits those of a whole
    prompt, too (`_split`).
    """
    attention = cast(Attention, op)
    kernel = kernel or kernel_of(attention, machine, conditions.library)
    blocks = _block_times(attention, machine, c, kernel, conditions.load)
    traffic = attention.work().bytes
    # The pass before attention reads K and V where the layer before left them, beside the cache that it fills.
    used = traffic + (inputs(attention, machine, kernel) if attention.kv_write else 0.0)
    stream = warm_bandwidth(STREAM * machine.bandwidth_bytes_per_s, L2_SPEED, used, machine, conditions)
    hbm = traffic / stream
    if kernel.large_blocks:
        waits = where((attention.head_dim > LARGE) & (attention.seq_q <= GROUP_ROWS), hbm, 0.0)
        blocks = blocks.waiting(waits * minimum(1.0 * attention.batch * attention.heads / machine.sm_count, 1.0))
    computes = blocks.run >= hbm
    first = first_pass(attention, machine, c, kernel, stream) if attention.kv_write else 0.0
    adds = {
        MATH: where(computes, blocks.math, 0.0),
        SOFTMAX: where(computes, blocks.softmax, 0.0),
        TILE_WASTE: where(computes, maximum(blocks.waste, 0.0), 0.0),
        BLOCK: where(computes, blocks.setup, 0.0),
        WAVES: where(computes, blocks.tail, 0.0),
        POWER_LIMIT: where(computes, blocks.held, 0.0),
        HBM: where(computes, 0.0, hbm),
        CONTENTION: smooth_max(4, blocks.run, hbm) - maximum(blocks.run, hbm),
        KV_WRITE: first,
        LAUNCH: c["launch"] * _launches(attention, machine, kernel) + narrowing_s(attention, kernel),
        MASK: _mask_s(attention, machine, kernel),
    }
    return Terms(adds, {MATH: blocks.run, HBM: hbm, KV_WRITE: first})


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


def _mask_s(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the time of the kernels that make the tensor of a mask [s].

    Two fill values, and one chooses between them by the mask's bytes: 3 B an element of 16 bits, one by one
    (convert_boolean_attn_mask in aten/src/ATen/native/transformers/attention.cpp of github.com/pytorch/pytorch).
    """
    if not kernel.masks:
        return 0.0
    moved = (MASK_BYTES + dtype_bytes(op.dtype)) * op.seq_q * op.keys()
    made = MASK_KERNELS_S + moved / (MASK_STREAM * machine.bandwidth_bytes_per_s)
    found: Number = where(masked(op, kernel), made, 0.0)
    return found


def _launches(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the launches of a call over those of a usual one."""
    usual = 1.0 if op.kv_write else WITHOUT_WRITE
    if kernel.prepares_q:
        others: Number = where(prepared(op, machine, kernel), 1.0, UNPREPARED)
        return usual * others
    return usual


@record
class _BlockTimes:
    """What all blocks take together [s]: the parts of ``run``: arithmetic, softmax, waste, setup, tail, held clock."""

    math: Number
    softmax: Number
    waste: Number
    setup: Number
    tail: Number
    held: Number
    run: Number

    def waiting(self, time_s: Number) -> _BlockTimes:
        """Return the same with time in which all blocks wait for memory, and compute nothing [s]."""
        setup, run = self.setup + time_s, self.run + time_s
        return _BlockTimes(self.math, self.softmax, self.waste, setup, self.tail, self.held, run)


def _block_times(op: Attention, machine: Machine, c: Values, kernel: Kernel, load: Load) -> _BlockTimes:
    whole = flash2.parts(op, machine) if flash2.chooses_splits(kernel) else None
    rows: Number = kernel.rows if whole is None else flash2.rows_of(op, machine, kernel, whole)
    step = kernel.step_keys(op.head_dim) if whole is None else flash2.step_of(op.head_dim, whole)
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
    split, joining = _split(op, machine, kernel, blocks, whole)
    longest = (blocks.rows * blocks.most_keys * pair / split + block) / machine.clock_hz
    busy = visited * pair / cycles + setup
    tail: Number = kernel.tail * longest
    if kernel.in_waves:
        loads = heads * blocks.a_head * split / machine.sm_count
        last = where(loads > 1.0, clipped(ceil(loads) - loads, kernel.tail, LAST_WAVE), 1.0 - loads)
        tail = where(blocks.keys == blocks.most_keys, last * longest, tail)
    if kernel.ascending:
        # No more than would be busy if all blocks were as long as the longest: a mask makes no call slower.
        later = kernel.ascending * (1.0 - blocks.keys / blocks.most_keys) * longest
        tail = tail + minimum(later, (blocks.most_keys / blocks.keys - 1.0) * visited * pair / cycles)
    run = smooth_max(4, busy + tail, kernel.sharing * longest) + joining
    held = _held_down(op, machine, c, kernel, load, visited, run)
    return _BlockTimes(math, softmax, visited * pair / cycles - math - softmax, setup, run - busy, held, run + held)


def _split(
    op: Attention, machine: Machine, kernel: Kernel, blocks: _Blocks, chosen: Number | None
) -> tuple[Number, Number]:
    """Return the parts that a block's keys are split into over idle SMs, and the time of joining those [s].

    A chunk of few queries has at most as many parts as keys for each query, a whole prompt one for each
    ``SPLIT_STEPS`` steps of keys. Joining starts and writes in proportion to the parts beyond one, so that nothing
    jumps where the blocks begin to fill the SMs. ``chosen`` are the parts where the kernel chooses them.
    """
    if chosen is not None:
        moved = PART_BYTES * op.batch * op.heads * op.seq_q * op.head_dim * chosen
        return chosen, where(chosen > 1.0, JOIN_S + moved / machine.bandwidth_bytes_per_s, 0.0)
    count = 1.0 * op.batch * op.heads * blocks.a_head
    steps = blocks.most_keys / kernel.keys
    most = minimum(op.seq_kv / op.seq_q, steps) if kernel.splits else 1.0
    if not kernel.splits_whole:
        return maximum(minimum(machine.sm_count / count, most), 1.0), 0.0
    most = maximum(most, steps / SPLIT_STEPS)
    split = maximum(minimum(machine.sm_count / count, most), 1.0)
    moved = PART_BYTES * op.batch * op.heads * op.seq_q * op.head_dim * (split - 1.0)
    return split, JOIN_S * minimum(split - 1.0, 1.0) + moved / machine.bandwidth_bytes_per_s


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


def applies(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point has several queries, or a sequence of one token."""
    if op.backward:
        return False
    one_query = is_decode(op, machine, library)
    return not one_query if isinstance(one_query, bool) else ~one_query


def values_on(machine: Machine, library: str, dtype: str) -> Values:
    """Return the constants of many queries on a machine, for families that use them."""
    if machine.hardware is None:
        return {constant.name: constant.default for constant in PREFILL.all_constants}
    return constants(PREFILL, machine.hardware, library, dtype).values


PREFILL = Family(
    "attention_prefill",
    CONSTANTS,
    formula,
    (MATH, SOFTMAX, TILE_WASTE, BLOCK, WAVES, POWER_LIMIT, HBM, CONTENTION, KV_WRITE, LAUNCH, MASK),
    applies,
    chooses=choices,
    borrows=lenders,
    kernels=tuple(KERNELS),
    for_pytorch=is_by_pytorch,
    doubts=(*BEYOND, ANOTHERS_KERNEL, LARGE_HEADS),
    axes=PREFILL_AXES,
    surfaced=lambda op: float(op.causal),  # all that was measured is
)
