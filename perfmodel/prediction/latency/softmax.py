"""Softmax over the last axis, as PyTorch computes it: short rows in a warp, longer ones in a block.

A warp keeps its row in registers, padded to a power of two of columns. Since PyTorch 2.7 (pull request 144679) it has
rows of up to 2048 columns, and a block of 1024 threads keeps up to 9 columns a thread in registers
(`cunn_SoftMaxForwardReg` of SoftMax.cu), longer rows in shared memory; a row that does not fit there is read three
times: for the maximum, for the sum, for the output. Before, a warp had up to 1024 columns, and a block of at most 512
threads read every longer row three times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import BY_HAND, ROWS_ELSEWHERE, STREAMS_ON_RADEON, Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ETA,
    FEED,
    FILL,
    FRAMEWORKS,
    FUSED,
    START,
    STREAM_TERMS,
    THRASH,
    beside_math,
    missed_share,
    resident_blocks,
    stream_times,
    thrash_bytes,
)
from perfmodel.prediction.latency.terms import Terms, smooth_max

SERVES = {"softmax": ("softmax",)}

WARP = Constant("warp", "", 0.4, 0.02, 5.0, 0.35, "cycles of an SM for one column of a row in a warp's registers")
STEP = Constant(
    "step",
    "",
    1800.0,
    100.0,
    40e3,
    0.3,
    "cycles of a thread's step along its row, in an SM of 2048 threads and 4 schedulers",
)
LANE = Constant(
    "lane", "s", 0.15e-6, 0.02e-6, 1e-6, 0.2, "latency of one column of a thread that keeps its columns in registers"
)
CONSTANTS = (replace(ETA, default=0.85, spread=0.05), START, FEED, replace(FILL, default=0.6), WARP, STEP, LANE, THRASH)

#: dispatch of the call over a plain one's, through a layer (1.26 to 1.5 on 7 machines)
CALL_COST = 1.3
#: the release since which rows stay in registers
REGISTERS_SINCE = (2, 7)
#: most columns that a warp keeps in registers before that release; since then, and bytes of them
WARP_COLUMNS = 1024.0
MOST_WARP_COLUMNS, MOST_WARP_BYTES = 2048.0, 8192.0
#: columns of a row in a warp over which an SM holds fewer warps, and what issuing a column takes then, over before:
#: 0.62 over 0.45 cycles (H100, torch 2.11, bf16)
MANY_COLUMNS, MANY = 1024.0, 1.35
#: latency of a column in a warp in fp32 over that in 16 bits, which it converts: 3.4 us over 4.9 for 1024 columns, 6.7
#: over 9.9 for 2048 (H100, torch 2.11)
UNCONVERTED, UNCONVERTED_BYTES = 0.68, 4.0
#: threads of a block since then, columns that each keeps in registers at most, and up to how many of them, in fp32 and
#: in 16 bits, an SM of 2048 threads holds two blocks: more need over 32 registers a thread. On a B200 4224 columns of
#: fp32 take 1.6 times as long as 4096 for that, and 9344, in shared memory, 0.7 times as long as 9216
BLOCK, MOST_KEPT, FEW_KEPT, FEW_NARROW = 1024.0, 9.0, 4.0, 5.0
#: lanes of a warp
LANES = 32.0
#: reductions of a block since then, in columns of a thread, and what a block issues for a column over what a warp does
BLOCK_JOIN, BLOCK_ISSUE = 6.0, 1.15
#: what a block issues for a column of the logarithm over what it does for the softmax, which evaluates a second exp
#: for the output and divides, about half of its instructions, where the logarithm subtracts (epilogues of SoftMax.cu).
#: Set on six calls of F.cross_entropy of 0.25 to 2.7 ms, rows of 31 to 421 KB in bf16 and fp32 (H100 and H200, own
#: records, torch 2.11.0; all in view): half would make five of them 8 to 22 % too fast
LOG_ISSUE = 0.67
#: most bytes of a row in shared memory: what a kernel has without asking for more
SHARED_ROW_BYTES = 48.0 * 1024.0
#: exponent of the smooth maximum of a row's own latency and of what all rows of an SM issue
OVERLAP = 1.5
#: most columns of a row in the tables of these kernels (NeuSight @ 6945927d9afc)
LONGEST = 16384
#: columns whose arithmetic takes as long as the fixed part of a row, where a warp has it
ROW = 60.0
#: joining the threads of a block, in steps
JOIN = 4.0
#: share of a step that is for its element; a step over the 4 elements of a vector of fp32 takes as long as 2 over one
ELEMENT = 1.0 / 3.0
#: threads that share a scheduler of an SM whose step is the constant, and the share of the step that does not grow with
#: them. Fits of each machine without it give 995 cycles with 256 threads a scheduler (T4), 1620 to 1750 with 512 (A100,
#: P4, V100) and 2610 with 1024 (P100): a wait of 400 to 500 and an issue for each warp
USUAL_CROWD, WAIT = 512.0, 0.28
#: bytes that a thread reads at once
VECTOR_BYTES = 16.0
#: blocks that have the same number of threads for every row (AMD's build): joining them in steps, and the steps of a
#: row in shared memory over those of one read three times (MI100, above 0.1 ms: 3250 + 0.8 cols and 3250 + 1.85 cols
#: cycles of a CU)
FIXED_JOIN, IN_SHARED_MEMORY = 1.76, 0.43
#: bytes of a row that no longer fits there (64 KiB of a CU; rows of 16384 columns of fp32 are read three times)
SHARED_MEMORY_BYTES = 65536.0
#: time of a row in a block over that of one in a warp, at most: where the number of threads follows the row, and where
#: it is fixed. The largest in NeuSight (@ 6945927d9afc): 2.1 (P100, 1024 and 1101 columns), 3.3 (MI210, 1022 and 1033).
#: Machines of more bandwidth and narrower dtypes would exceed it by the count of instructions; they run later builds,
#: which read a row once, so that the largest measured is assumed to hold for them.
MOST_STEP, MOST_FIXED_STEP = 2.4, 3.5


def block_threads(cols: Number, vector: float) -> Number:
    """Return the threads of a row's block: at least half of its vectors in one step, a power of two, at most 512.

    ``SoftMax_getBlockSize`` of PyTorch 2.1.
    """
    half = np.maximum(np.floor(np.floor(cols / vector) / 2.0), 1.0)
    threads: Number = np.clip(2.0 ** np.ceil(np.log2(half)), 32.0, 512.0)
    return threads


def steps(cols: Number, threads: Number, vector: float) -> Number:
    """Return the steps of a thread along a row: over vectors, then over the remaining elements.

    A row that does not start at a multiple of 16 bytes has a step over single elements in front. For rows of fp32 that
    is 3 in 4 of odd length, 1 in 2 of even length, none of a multiple of 4. So 1600 columns take longer than 2048: one
    step over vectors and 3 over elements, against two over vectors, with 256 threads.
    """
    even = _steps(cols, threads, vector)
    odd = 1.0 + _steps(np.maximum(cols - threads, 0.0), threads, vector)
    unaligned = 1.0 - np.gcd(np.asarray(cols, dtype=np.int64), int(vector)) / vector
    return even + unaligned * (odd - even)


def _steps(cols: Number, threads: Number, vector: float) -> Number:
    whole = np.floor(cols / (vector * threads))
    return (1.0 + (vector - 1.0) * ELEMENT) * whole + np.ceil((cols - vector * threads * whole) / threads)


def _block(cols: Number, vector: float, machine: Machine) -> tuple[Number, Number, Number | np.ndarray]:
    """Return a block's threads, the steps of one of them with those of joining all, and whether it reads its row once.

    AMD's build had 1024 threads in every row measured, kept rows of whole vectors in shared memory
    ("cunn_SoftMaxForwardSmem"), and took as long as a row has columns: wavefronts without columns cost nothing.
    """
    if fixed := machine.kernels.softmax_threads:
        once = (cols % vector == 0) & (cols * VECTOR_BYTES / vector < SHARED_MEMORY_BYTES)
        walked = cols / fixed * np.where(once, IN_SHARED_MEMORY, 1.0)
        return np.full_like(cols, fixed), FIXED_JOIN + walked, once
    threads = block_threads(cols, vector)
    return threads, JOIN + steps(cols, threads, vector), np.zeros_like(cols, dtype=bool)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, hbm + l2|| [s], of the kernel that the library's version has."""
    if conditions.is_before(*REGISTERS_SINCE):
        return read_three_times(op, machine, c, conditions)
    return kept_in_registers(op, machine, c, conditions)


def kept_in_registers(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms since PyTorch 2.7.

    A row's own latency is lane (1 + columns a lane) in a warp, lane (join + columns a thread) in a block, and what it
    issues ``warp`` cycles of its SM for a column, in a block somewhat more, or less of the logarithm. math is the
    smooth maximum of the latency and of the issue in a warp, of which an SM holds many. An SM holds one or two blocks,
    which follow one another: math = rounds (latency + issue of all that it holds). Traffic is rows cols size
    (2 + 2 mu), mu only of a row that is kept nowhere.
    """
    rows = np.asarray(cast(Softmax, op).rows, dtype=np.float64)
    cols = np.asarray(cast(Softmax, op).cols, dtype=np.float64)
    size = dtype_bytes(op.dtype)
    vector = VECTOR_BYTES / size
    work = op.work()
    each = rows / machine.sm_count
    warp_issue = c["warp"] * np.where(cols > MANY_COLUMNS, MANY, 1.0) / machine.clock_hz
    lane = c["lane"] * (UNCONVERTED if size >= UNCONVERTED_BYTES else 1.0)
    warp = smooth_max(OVERLAP, each * warp_issue * cols, lane * (1.0 + cols / LANES))
    kept = np.ceil(cols / BLOCK)
    in_registers = kept <= MOST_KEPT
    shared = (cols % vector == 0) & (cols * size < SHARED_ROW_BYTES)
    reads = np.where(in_registers | shared, 1.0, 3.0)
    walked = np.where(in_registers, kept, reads * np.ceil(cols / (BLOCK * vector)))
    two = ~in_registers | (kept <= (FEW_KEPT if size >= UNCONVERTED_BYTES else FEW_NARROW))
    held = np.maximum(1.0, np.floor(np.where(two, 1.0, 0.5) * machine.threads_per_sm / BLOCK))
    rounds = np.maximum(1.0, each / held)
    issue = (LOG_ISSUE if cast(Softmax, op).log else 1.0) * BLOCK_ISSUE * c["warp"] / machine.clock_hz
    busy = np.clip(each, 1.0, held)
    block = rounds * (c["lane"] * (BLOCK_JOIN + walked) + busy * issue * kept * BLOCK)
    in_warp = (cols <= MOST_WARP_COLUMNS) & (cols * size <= MOST_WARP_BYTES)
    missed = missed_share(np.minimum(rows, machine.sm_count * held) * cols * size, machine, c)
    again = np.where(in_warp, 0.0, (reads - 1.0) * missed * rows * cols * size)
    times = stream_times(work.bytes + again, work.working_set_bytes, machine, c, conditions)
    return beside_math(np.where(in_warp, warp, block), *times, c)


def read_three_times(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms before PyTorch 2.7.

    Traffic is rows cols size (2 + 2 mu), with the `missed_share` mu, and twice `thrash_bytes`; rows in a warp or in
    shared memory have neither mu nor thrashing. math = max(rows / SM, 1) cycles / f, with cycles = warp (2^ceil(log2
    cols) + row) in a warp, else step threads / (threads of an SM) (join + steps): a step waits for its loads, while as
    many blocks as the SM holds wait at once, and for the other warps of its scheduler. A block takes at most
    `MOST_STEP` times what its row would take in a warp.
    """
    rows = cast(Softmax, op).rows
    cols = np.asarray(cast(Softmax, op).cols, dtype=np.float64)
    row_bytes = cols * dtype_bytes(op.dtype)
    vector = VECTOR_BYTES / dtype_bytes(op.dtype)
    in_warp = cols <= WARP_COLUMNS
    threads, walked, once = _block(cols, vector, machine)
    missed = missed_share(np.minimum(rows, resident_blocks(machine, threads)) * row_bytes, machine, c)
    again = missed * rows * row_bytes + thrash_bytes(rows * row_bytes, machine, c, conditions)
    work = op.work()
    traffic = work.bytes + np.where(np.logical_or(in_warp, once), 0.0, 2.0 * again)
    padded = np.where(in_warp, 2.0 ** np.ceil(np.log2(np.maximum(cols, 32.0))), cols)
    of_cycles = np.maximum(rows / machine.sm_count, 1.0) / machine.clock_hz
    warp = c["warp"] * (padded + ROW) * of_cycles
    most = MOST_FIXED_STEP if machine.kernels.softmax_threads else MOST_STEP
    read_once = sum(stream_times(work.bytes, work.working_set_bytes, machine, c, conditions))
    each, held = of_cycles * machine.clock_hz, machine.threads_per_sm / threads
    alone = not machine.kernels.softmax_threads  # else it is the columns that take time, however few blocks there are
    rounds, beside = (np.maximum(each / held, 1.0), np.minimum(each, held)) if alone else (each / held, held)
    block = c["step"] * walked * rounds * _crowd(beside * threads / machine.schedulers_per_sm) / machine.clock_hz
    filled = np.maximum(held / each, 1.0) if alone else 1.0
    block = np.minimum(block, most * np.maximum(warp * filled, read_once))
    math = np.where(in_warp, warp, block)
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)


def _crowd(threads: Number) -> Number:
    """Return a step where a scheduler has some threads, over one where it has `USUAL_CROWD`."""
    return WAIT + (1.0 - WAIT) * threads / USUAL_CROWD


def applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether one of these kernels runs: forward, unless a library fuses it."""
    return not op.backward and library not in FUSED


def _is_longer_than_measured(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether rows that are read three times are longer than any of the tables'."""
    return conditions.is_before(*REGISTERS_SINCE) and (op.cols > LONGEST)


#: four calls of ten rows of 32,768 to 131,072 columns on an RTX 3090 took 1.4 to 1.6 times as long as predicted, four
#: of 128 rows 0.8 to 1.1 times (flagos-ai/FlagGems pull request 76, PyTorch before 2.7; in view)
LONGER_THAN_MEASURED = Doubt(ErrorSource.EXTRAPOLATION, _is_longer_than_measured, (0.15, 0.25, 0.2))

FAMILY = Family(
    "softmax",
    CONSTANTS,
    formula,
    STREAM_TERMS,
    applies,
    call_cost=lambda op, c: CALL_COST,
    doubts=(LONGER_THAN_MEASURED, ROWS_ELSEWHERE, BY_HAND, STREAMS_ON_RADEON),
    since=dict.fromkeys(FRAMEWORKS, REGISTERS_SINCE),
)
FAMILIES = (FAMILY,)
