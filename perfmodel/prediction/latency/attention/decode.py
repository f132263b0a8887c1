"""Attention of one query, or a few: the KV cache streams past, split over the SMs.

A block serves the query heads that share a key head. If there are fewer blocks than SMs, the keys are split over more
of them (Flash-Decoding, T. Dao et al., 2023). TensorRT-LLM's kernels are in `trtllm`.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, anywhere, ceil, clipped, floor, maximum, minimum, plain, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import flash2, prefill, trtllm
from perfmodel.prediction.latency.attention.beyond import (
    ANOTHERS_KERNEL,
    KEEPS_KEYS_WHOLE,
    LARGE_DECODES,
    LARGE_HEADS,
    ON_LANES,
    UNSPLIT,
    UNSPLIT_ALONE,
)
from perfmodel.prediction.latency.attention.blocks import LARGE
from perfmodel.prediction.latency.attention.choice import is_by_pytorch
from perfmodel.prediction.latency.attention.first_pass import narrow_keys, narrowing_s
from perfmodel.prediction.latency.attention.kernels import KERNELS, MMA, TCGEN05, WGMMA, Kernel, head_step_keys
from perfmodel.prediction.latency.attention.libraries import decoding_lenders, kernel_of
from perfmodel.prediction.latency.attention.phases import BLOCK_QUERIES, FEW_QUERIES, LONGER, filled, is_decode
from perfmodel.prediction.latency.attention.rates import on_lanes, summed_per_clock
from perfmodel.prediction.latency.attention.run import KEYS, TILE_MATH, Run
from perfmodel.prediction.latency.attention.terms import KV_WRITE, WITHOUT_WRITE
from perfmodel.prediction.latency.attention.values import by_width
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import FACTOR, Constant, Family, Values, scaled
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import warm_bandwidth
from perfmodel.prediction.latency.terms import (
    CONTENTION,
    HBM,
    LAUNCH,
    MATH,
    SPLIT_K,
    Term,
    Terms,
    between,
    faster,
    overlapped,
    smooth_max,
)

CONSTANTS = (
    Constant("launch", "s", 8e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("eta", "", 0.82, 0.1, 1.05, 0.15, "share of the datasheet bandwidth that the cache streams at", True),
    Constant("block", "", 3500.0, 50.0, 1e5, 0.8, "SM cycles of a block, its keys aside", True),
    Constant("l2", "", 1.5, 1.0, 12.0, 0.5, "speed of a cache that lies in L2, over that of device memory", True),
    Constant("token", "", 80.0, 0.5, 1e4, 0.8, "SM cycles of one query head beside the keys (RoPE, output)", True),
    Constant("head", "", 7500.0, 100.0, 1e5, 0.4, "SM cycles of a block of one head on its own kernel", True),
    Constant("key", "", 22.0, 1.0, 1e3, 0.4, "SM cycles of a key of one head of 128 columns on its own kernel", True),
    Constant("join", "s", 2e-6, 0.1e-6, 20e-6, 0.6, "second kernel, that joins the parts of split keys", True),
    Constant("split", "s", 0.7e-6, 0.05e-6, 20e-6, 0.5, "joining them, for each doubling of the parts", True),
)

#: rows that a block's tensor products have, however few query heads share its keys
ROWS = 128.0
#: SM cycles of a key in cuDNN's kernel of one query for heads of more than 128 columns, and keys of its shortest step:
#: eight calls of an H200 (`examples/records`, 2026-11-27), which were in view: 24 heads of 192 columns and 9248 keys
#: take it 83 us, 4 of 8112 keys 10
LARGE_KEY, FEW_KEYS = 74.0, 64.0
#: numbers of parts that keys are split into
PARTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128], dtype=float)
#: share of a block's cycles that the longest block shows when there are fewer blocks than SMs
SHOWN = 0.6
#: share of a block's cycles that does not grow with the size of a head, with wgmma and tcgen05
FIXED_BLOCK = 0.5
#: cost of a block for each doubling of the query heads over those that are free, with tcgen05 (B200, 2 to 4096 blocks);
#: and SM cycles of each query head over those where half of the SMs are idle
GROUP_DOUBLING, GROUP_CYCLES = 0.4, 170.0


def _grouped(op: Attention, machine: Machine, c: Values, keys: Number, kernel: Kernel, hbm: Number) -> Run:
    """FlashAttention's kernels: a block of the kernel's rows, query heads and queries that share a key head.

    The parts of the keys are those that end first. Each number of parts takes longer with more keys, heads or
    sequences, and so does the shortest of them.
    """
    group = op.heads / op.kv_heads
    rows: Number = ROWS
    if kernel.step_by_head or machine.matrix_instruction == MMA:
        rows = kernel.rows if machine.matrix_instruction == MMA else flash2.SPLIT_ROWS
    blocks = 1.0 * op.batch * op.kv_heads * ceil(op.seq_q * group / rows)
    apart = _apart(op, kernel)
    if kernel.apart_in_windows:
        blocks = where(apart, 1.0 * op.batch * op.heads * ceil(op.seq_q / rows), blocks)
    first: Number = head_step_keys(op.head_dim) if kernel.step_by_head else KEYS
    if flash2.chooses_splits(kernel):
        first = flash2.first_keys(op, machine)
    if kernel.small_rows < rows:
        rows = where(op.seq_q * group <= kernel.small_rows, kernel.small_rows, rows)
    if on_lanes(op, machine, kernel):
        # No instruction has a shape there: rows without queries, and keys that are none, cost nothing.
        rows, first = minimum(rows, where(apart, op.seq_q, op.seq_q * group)), minimum(first, keys)
    a_key = rows * _cycles_of_a_row(op, machine, kernel)
    if kernel.widened and narrow_keys(op):
        a_key = a_key + 2.0 * op.head_dim / kernel.widened
    start, extra = _start_of_a_block(op, machine, c, kernel)
    # The first step is done in full however few the keys are.
    start = start + a_key * first
    parts = PARTS.reshape((-1,) + (1,) * np.ndim(keys + blocks + hbm))
    further = a_key * maximum(keys / parts - first, 0.0)
    busy = blocks * parts * (start + further) / machine.sm_count
    run: Any = maximum(busy, further + SHOWN * start + extra) / machine.clock_hz
    total: Any = smooth_max(4, run, hbm) + _join(c, parts, kernel)
    if kernel.varlen:
        total = where((parts > 1) & (apart | (group == 1)), math.inf, total)
    best = np.argmin(total, axis=0)
    if not np.ndim(best):
        return Run(float(run[best]), float(PARTS[best]))
    run = np.take_along_axis(np.broadcast_to(run, total.shape), best[np.newaxis], axis=0)[0]
    return Run(run, PARTS[best])


def _apart(op: Attention, kernel: Kernel) -> Any:
    """Whether each query head has blocks of its own, although several share their keys."""
    apart: Any = kernel.apart_in_windows and (op.window > 0)
    return apart | (op.seq_q > 1) if kernel.varlen or flash2.chooses_splits(kernel) else apart


def _cycles_of_a_row(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the SM cycles of a key and a row of queries."""
    # The kernels of tcgen05 narrow the queries of an 8-bit cache, and multiply at twice the rate.
    narrow = machine.matrix_instruction == TCGEN05 and dtype_bytes(op.kv_dtype) < dtype_bytes(op.dtype)
    rate = summed_per_clock(machine) * (2.0 if narrow else 1.0) * TILE_MATH * kernel.rate
    if on_lanes(op, machine, kernel) and dtype_bytes(op.dtype) > 2:
        rate *= kernel.fp32_rate
    if not flash2.chooses_splits(kernel):
        return 4.0 * kernel.padded(op.head_dim) / rate
    # It hides no exponentials, and is no faster than where it does not split.
    rate *= min(prefill.values_on(machine, kernel.name, op.dtype)["math"] / TILE_MATH, 1.0)
    return 4.0 * kernel.padded(op.head_dim) / rate + kernel.exponentials / machine.exponentials_per_clock


def _start_of_a_block(op: Attention, machine: Machine, c: Values, kernel: Kernel) -> tuple[Number, Number]:
    """Return the SM cycles of a block, its keys aside, and those that a large group adds to the longest one."""
    group = op.heads / op.kv_heads
    over = maximum(op.seq_q * group / kernel.group_rows, 1.0)
    if machine.matrix_instruction == MMA:
        start: Number = c["block"]
    else:
        start = c["block"] * (FIXED_BLOCK + (1.0 - FIXED_BLOCK) * op.head_dim / 128.0)
    if machine.matrix_instruction == TCGEN05:
        over = minimum(over, ROWS / kernel.group_rows)
        start = start * (1.0 + GROUP_DOUBLING * ceil(plain(np.log2(over))))
        return start, GROUP_CYCLES * kernel.group_rows * (over - 1.0)
    if kernel.group_rows < ROWS:
        extra: Number = where(over > 1.0, start, 0.0)
        return start + extra, extra
    return start, 0.0


def _one_query_of_large_heads(op: Attention, machine: Machine, c: Values, keys: Number) -> Run:
    """The kernel of cuDNN of one query for heads of more than 128 columns (16x128x256 and 64x64x256 by its names).

    It is Hopper's: PyTorch has no other chip run heads of so many columns there.

    It pads heads to 256 columns and is bound by its own steps: a key of a block costs `LARGE_KEY` SM cycles, however
    few the queries. Keys are split over idle SMs, in whole parts; blocks end together.
    """
    blocks = 1.0 * op.batch * op.kv_heads
    parts = maximum(minimum(floor(machine.sm_count / blocks), ceil(keys / KEYS)), 1.0)
    waves = ceil(blocks * parts / machine.sm_count)
    busy = waves * (c["block"] + LARGE_KEY * maximum(keys / parts, FEW_KEYS)) / machine.clock_hz
    return Run(busy, parts)


def _longer(c: Values, queries: Number, one: Run | None, several: Run, hbm: Number) -> Run:
    """Return the run of several queries, which takes no less than that of one query, where that has its own kernel."""
    if one is None:
        return several
    first, others = (smooth_max(4, run.busy, hbm) + _join(c, run.parts) for run in (one, several))
    alone = (queries == 1) | (first > others)
    busy, parts = where(alone, one.busy, several.busy), where(alone, one.parts, several.parts)
    return Run(busy, parts, one.launches)


def _join(c: Values, parts: Number, kernel: Kernel | None = None) -> Number:
    """Return the time of joining the parts of the keys [s]: FlashAttention-2 adds up one after another."""
    if kernel is not None and flash2.chooses_splits(kernel):
        adding: Number = flash2.ADDED_S * parts
    else:
        adding = c["split"] * plain(np.log2(parts))
    joined: Number = where(parts > 1, c["join"] + adding, 0.0)
    return joined


def few_queries(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return launch + || traffic, SMs ||_4 + heads + joining [s].

    With B blocks, the keys k of each split into s parts, SM cycles ``a`` of a key, steps of n keys, and f the clock:

        cycles  = block + a (n + max(0, k / s - n))
        SMs     = max(B s cycles / (SM f), (cycles - (1 - SHOWN) block) / f)
        t       = launch + || bytes / (eta W), SMs ||_4 + token heads batch / (SM f) + join + split log2 s

    TensorRT-LLM's kernels run in whole waves: SMs = waves cycles / f, with the parts that its sources choose.

    The cache lies in L2 as far as it fits when it is used again (`perfmodel.prediction.latency.streams.fitting_share`).
    """
    attention = cast(Attention, op)
    kernel = kernel_of(attention, machine, conditions.library)
    # The keys that any of the queries sees: a block visits them for all of its queries.
    keys = 1.0 * attention.keys()
    traffic = attention.work().bytes
    stream = warm_bandwidth(c["eta"] * machine.bandwidth_bytes_per_s, c["l2"], traffic, machine, conditions)
    hbm = traffic / stream
    run = trtllm.run_of(attention, machine, c, keys) if kernel.heads_alone else None
    if run is None or anywhere(attention.seq_q > 1):
        run = _longer(c, attention.seq_q, run, _grouped(attention, machine, c, keys, kernel, hbm), hbm)
    if kernel.one_query and machine.matrix_instruction == WGMMA and anywhere(attention.head_dim > LARGE):
        large = _one_query_of_large_heads(attention, machine, c, keys)
        here = attention.head_dim > LARGE
        run = Run(where(here, large.busy, run.busy), where(here, large.parts, run.parts), run.launches)
    body = overlapped(4, {HBM: hbm, MATH: run.busy})
    queries = 1.0 * attention.batch * attention.seq_q * attention.heads
    writes = attention.kv_write
    adds: dict[Term, Number] = {
        **body.adds,
        KV_WRITE: c["token"] * queries / (machine.sm_count * machine.clock_hz) if writes else 0.0,
        SPLIT_K: _join(c, run.parts, kernel),
        LAUNCH: c["launch"] * run.launches * (1.0 if writes else WITHOUT_WRITE) + narrowing_s(attention, kernel),
    }
    return Terms(adds, body.alone)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of `few_queries`, and of many queries those of a prompt of as many, by and by.

    In a serving library's calls it is a matter of the keys, too (`_of_a_prompt`), else `handed_over`.
    """
    attention = cast(Attention, op)
    kernel = kernel_of(attention, machine, conditions.library)
    if anywhere(attention.value_dim):
        return by_width(attention, kernel, lambda one: formula(one, machine, c, conditions))
    few = few_queries(attention, machine, c, conditions)
    if flash2.chooses_splits(kernel):
        found = few
        for here, call in flash2.by_blocks(attention):
            prompt = _as_a_prompt(call, machine, c, conditions)
            handed = handed_over(few, prompt, attention, machine, c, conditions)
            found = between(found, handed, where(here, 1.0, 0.0))
        return found
    several = anywhere(attention.seq_q > 1)
    if attention.kv_write and not several:
        return few
    if not kernel.one_query and not several:
        return faster(few, _of_a_block(attention, machine, c, conditions))
    prompt = _as_a_prompt(attention, machine, c, conditions)
    if kernel.one_query:  # its library has the kernel of prompts, too
        return faster(few, prompt)
    if attention.kv_write:
        return between(few, prompt, _of_a_prompt(attention))
    return handed_over(few, prompt, attention, machine, c, conditions)


def _of_a_prompt(op: Attention) -> Number:
    """Return the weight of a prompt's time: 1 where a decode ends, at `BLOCK_QUERIES` or `LONGER` times as many keys.

    It is 0 up to half of the queries, and from twice as many keys on; between them it goes with the logarithm.
    In vLLM's calls one query of few keys takes longer than 16 (13.5 and 9.7 us on an RTX 4090, LLMServingSim).
    """
    short = where(op.seq_q > FEW_QUERIES, maximum(2.0 * LONGER * op.seq_q / op.seq_kv, 1.0), 1.0)
    return maximum(filled(op), minimum(plain(np.log2(short)), 1.0))


def _as_a_prompt(op: Attention, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the kernel of prompts, over the factor that multiplies all terms of decodes."""
    values = prefill.values_on(machine, conditions.library, op.dtype)
    return scaled(prefill.formula(op, machine, values, conditions), values).times(1.0 / c.get(FACTOR.name, 1.0))


def _of_a_block(op: Attention, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a prompt of `BLOCK_QUERIES`: fewer take no longer."""
    keys = maximum(1.0 * op.seq_kv, BLOCK_QUERIES)
    return _as_a_prompt(op.changed(seq_q=BLOCK_QUERIES, seq_kv=keys), machine, c, conditions)


def handed_over(few: Terms, prompt: Terms, op: Attention, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of attention alone, which the kernels of a few queries serve or those of prompts.

    With q queries of k keys, t(q, k) of `few_queries`, p(q, k) of a prompt and a block of Q queries:

        max(min(t(min(q, 8, k / 8), k), p(Q, k)), min(t(q, k), p(q, k)))

    A query or a key more takes no less time then, wherever a call passes from one form to the other. The first counts
    no exponentials, which few queries hide behind the cache, and fills a block with queries of any head; the other is
    fitted to whole blocks, and holds from half of them on, by and by. That the first holds for tens of queries was
    measured of FlashAttention-2 alone (30 rows of LLMServingSim); where they meet is assumed. FlashAttention-2 runs its
    kernel of prompts wherever it does not split the keys.
    """
    kernel = kernel_of(op, machine, conditions.library)
    share = filled(op)
    if flash2.chooses_splits(kernel):
        share = where(flash2.whole(op, machine), 1.0, share)
    found = between(faster(few, prompt), prompt, share)
    fewer = clipped(floor(op.seq_kv / (2.0 * LONGER)), 1.0, minimum(1.0 * op.seq_q, FEW_QUERIES))
    block = _of_a_block(op, machine, c, conditions)
    # Where the heads of a group share a block for one query alone, that may take longer than two.
    for queries in (1.0, fewer) if kernel.varlen else (fewer,):
        least = faster(few_queries(op.changed(seq_q=queries), machine, c, conditions), block)
        found = between(found, least, where(least.time_s > found.time_s, 1.0, 0.0))
    return found


def values_on(machine: Machine, library: str, dtype: str) -> Values:
    """Return the constants of a few queries on a machine, for families that use them."""
    if machine.hardware is None:
        return {constant.name: constant.default for constant in DECODE.all_constants}
    return constants(DECODE, machine.hardware, library, dtype).values


DECODE = Family(
    "attention_decode",
    CONSTANTS,
    formula,
    tuple(dict.fromkeys((HBM, MATH, CONTENTION, KV_WRITE, SPLIT_K, LAUNCH, *prefill.PREFILL.terms))),
    is_decode,
    borrows=decoding_lenders,
    kernels=tuple(KERNELS),
    for_pytorch=is_by_pytorch,
    doubts=(ANOTHERS_KERNEL, UNSPLIT, UNSPLIT_ALONE, KEEPS_KEYS_WHOLE, ON_LANES, LARGE_HEADS, LARGE_DECODES),
)
