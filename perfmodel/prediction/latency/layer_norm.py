"""LayerNorm and RMSNorm over the last axis, as PyTorch computes them: a block a row, which it reads twice.

The vectorised kernel of layer_norm_kernel.cu (`vectorized_layer_norm_kernel`; since PyTorch 2.8 `F.rms_norm` runs it,
too): each of 128 threads loads 4 elements at a time, 512 columns a step, first for the statistics and then for the
result. The steps of a block follow one another, so that few long rows take as long as their steps, however few bytes
they have.

Rows that are no whole vectors take two kernels that load single elements (`RowwiseMomentsCUDAKernel`,
`LayerNormForwardCUDAKernel`). Both have one element of a thread under way, so that many rows take their steps once for
each round of blocks. Numbers of instructions are those of nvcc 13.0's code for compute capability 9.0. On the rows of
our records that have such columns, which were in view, the formula is 5 % off (H100 and H200, torch 2.11, 13 rows).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, ErrorSource
from perfmodel.core.work import Number, anywhere, ceil, everywhere, maximum, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import ROWS_ELSEWHERE, Doubt
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
    THRASH_FROM,
    beside_math,
    missed_share,
    resident_blocks,
    stream_times,
    thrash_bytes,
)
from perfmodel.prediction.latency.terms import LAUNCH, Terms, smooth_max

SERVES = {"layer_norm": ("layer_norm", "rms_norm")}

COLUMN = Constant("column", "", 0.75, 0.05, 10.0, 0.3, "cycles of an SM for one column of one row")
TRIP = Constant("trip", "s", 0.95e-6, 0.1e-6, 5e-6, 0.2, "a block's step along its row, in both passes over it")
CONSTANTS = (replace(ETA, default=0.8), START, FEED, replace(FILL, default=0.55), COLUMN, TRIP, THRASH)

#: dispatch of the call over a plain one's: two layers of the framework, three results (1.5 to 1.9 on 7 machines)
CALL_COST = 1.75
#: threads of a block, and columns that they take in a step
THREADS, STEP = 128.0, 512.0
#: columns of a vector
VECTOR = 4.0
#: columns whose arithmetic takes as long as the fixed part of a row: joining the statistics of its threads
ROW = 800.0
#: the same of a sum of squares, which takes less to join than a mean and a variance (`cuWelfordCombine`), and its
#: instructions over LayerNorm's; its steps over LayerNorm's, in 16 bits and in fp32
RMS_ROW, RMS_COLUMN, RMS_TRIP, RMS_TRIP_FP32 = 450.0, 0.8, 0.8, 0.6
#: threads of the two kernels of single elements, one column each in a step (`kCUDABlockReduceNumThreads`,
#: `kCUDANumThreads`)
MOMENTS, RESULTS = 512.0, 256.0
#: share of a single element's instructions that each of them has: 28 and 31 for 32 columns; together they take the time
#: of one column of fp32 vectors, twice the instructions of 16-bit vectors (114 for 128 columns), of half the time
OF_EACH = 0.5
#: `ROW` of single elements, for RMSNorm too, which computes the mean as well: 16 warps of 205 instructions, in 5 rounds
#: of shuffles, and 170 of the warp that joins them, over 59 / 32 a column
SINGLE_ROW = 1900.0
#: rounds of shuffles over those of vectors: 5 in a warp and 5 among 16 warps, in place of 5 and 2 among 4
SINGLE_JOIN = 10.0 / 7.0
#: a step of single elements over one of vectors, as of a sum of squares: it waits for its load, and no 4 divisions
#: follow one another
SINGLE_TRIP = RMS_TRIP
#: steps that take as long as the start and the join of a block
JOIN = 1.0
#: exponent of the smooth maximum of a block's own steps and of what all blocks of an SM issue
OVERLAP = 2.0
#: bytes of the elements that ``column`` is stated for
COLUMN_BYTES = 4.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, hbm + l2|| [s].

    Traffic is rows cols size (2 + mu), with the `missed_share` mu, the weights and `thrash_bytes`. Rows that are no
    whole vectors take two kernels, the second of which reads all rows again.
    """
    norm = cast(LayerNorm | RmsNorm, op)
    rows, cols = norm.rows, norm.cols
    work = op.work()
    row_bytes = cols * dtype_bytes(op.dtype)
    whole = cols % VECTOR == 0
    # All rows pass between the two reads of one where a second kernel reads them.
    between = where(whole, minimum(rows, resident_blocks(machine, THREADS)), rows)
    missed = missed_share(between * row_bytes, machine, c)
    traffic = work.bytes + missed * rows * row_bytes + thrash_bytes(rows * row_bytes, machine, c, conditions)
    # Columns of one kind, as most sweeps have, ask for one formula.
    math = _vectors_s(norm, machine, c) if anywhere(whole) else 0.0
    if not everywhere(whole):
        math = where(whole, math, _single_s(rows, cols, machine, c))
    terms = beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)
    return Terms({**terms.adds, LAUNCH: c["launch"] * where(whole, 1.0, 2.0)}, terms.alone)


def _vectors_s(norm: LayerNorm | RmsNorm, machine: Machine, c: Values) -> Number:
    """Return the math of whole vectors, ||rows / SM (cols + row) column / f, (join + ceil(cols / 512)) trip||_2 [s]."""
    size = dtype_bytes(norm.dtype)
    # Loads are vectors of 16 B, so that narrow elements take fewer; MI210's build does not gain from that.
    narrow = 1.0 if machine.matrix_instruction == "mfma" else size / COLUMN_BYTES
    column, trip, row, join = c["column"] * narrow / machine.clock_hz, c["trip"], ROW, JOIN
    if norm.op == RmsNorm.op:
        # Both the instructions and the steps of a join are those of a sum.
        row, join, column = RMS_ROW, JOIN * RMS_ROW / ROW, column * RMS_COLUMN
        trip = trip * (RMS_TRIP if size < COLUMN_BYTES else RMS_TRIP_FP32)
    issued = norm.rows / machine.sm_count * (norm.cols + row) * column
    return smooth_max(OVERLAP, issued, trip * (join + ceil(norm.cols / STEP)))


def _single_s(rows: Number, cols: Number, machine: Machine, c: Values) -> Number:
    """Return the math of single elements, of moments and results in sequence [s].

    ||rows / SM (cols / 2 + row) column / f, rounds (join trip + ceil(cols / 512) wait)||_2
    + ||rows / SM cols / 2 column / f, rounds ceil(cols / 256) wait||_2, with the rounds of resident blocks of each, at
    least 1, and wait = 0.8 trip / 2, since ``trip`` is a step in both passes.
    """
    column, wait = rows / machine.sm_count * c["column"] / machine.clock_hz, SINGLE_TRIP * c["trip"] / 2.0
    of_each = OF_EACH * cols * column
    moments, results = (maximum(1.0, rows / resident_blocks(machine, threads)) for threads in (MOMENTS, RESULTS))
    joined = SINGLE_JOIN * JOIN * c["trip"] + ceil(cols / MOMENTS) * wait
    first = smooth_max(OVERLAP, of_each + SINGLE_ROW * column, moments * joined)
    return first + smooth_max(OVERLAP, of_each, results * ceil(cols / RESULTS) * wait)


def applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether this kernel runs: forward, for a LayerNorm that is not fused, and for a framework's RMSNorm."""
    return not op.backward and (library in FRAMEWORKS or (op.op == LayerNorm.op and library not in FUSED))


def _any(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a norm may take its instructions rather than its bytes: any may where bytes are to spare."""
    return True


def _has_bytes_to_spare(hardware: Hardware) -> bool:
    memory, clock = hardware.main_memory, hardware.clocks_hz.get("vector")
    if not (memory.bandwidth_bytes_per_s and clock and hardware.sm_count):
        return False
    return memory.bandwidth_bytes_per_s > MEASURED_BYTES_PER_CLOCK * hardware.sm_count * clock


#: most bytes of memory for each clock of an SM of a machine with rows of norms, with a fifth more: 18.4 on an H200,
#: where a norm takes as long by its bytes as by its instructions, so that rows do not tell these apart
MEASURED_BYTES_PER_CLOCK = 22.0
#: eight norms of PyTorch in 16 bits on a B200 took 0.57 to 1.7 times the predicted time, RMSNorm less and LayerNorm
#: more (linkedin/Liger-Kernel's data and pytorch pull request 159682), ln with a root mean square of 0.4
BY_INSTRUCTIONS = Doubt(ErrorSource.EXTRAPOLATION, _any, (0.2, 0.4, 0.4), machines=_has_bytes_to_spare)


def _evicts(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether rows evict what the same call before left, which makes warm calls slower than cold ones."""
    if conditions.cache != CacheState.WARM:
        return False
    return op.rows * op.cols * dtype_bytes(op.dtype) * machine.l2_copies > THRASH_FROM * machine.l2_bytes


def _has_a_larger_l2(hardware: Hardware) -> bool:
    return bool(hardware.caches) and (hardware.caches[-1].capacity_bytes or 0.0) > LARGEST_EVICTING_BYTES


#: the largest L2 in which warm rows were measured to take longer than cold ones: up to 1.5 times, on machines with 4 to
#: 50 MiB (NeuSight @ 6945927d9afc), of which an H100 keeps two copies
LARGEST_EVICTING_BYTES = 64 * 2.0**20
#: larger ones may evict as much, which is what is predicted, up to 1.8 times, or nothing: the interval holds both
EVICTING = Doubt(ErrorSource.CACHE, _evicts, (0.2, 0.45, 0.45), machines=_has_a_larger_l2)
FAMILY = Family(
    "layer_norm",
    CONSTANTS,
    formula,
    STREAM_TERMS,
    applies,
    call_cost=lambda op, c: CALL_COST,
    for_pytorch=lambda op: op.op == RmsNorm.op,
    doubts=(BY_INSTRUCTIONS, EVICTING, ROWS_ELSEWHERE),
)
FAMILIES = (FAMILY,)
