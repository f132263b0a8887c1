"""LayerNorm and RMSNorm over the last axis, as PyTorch computes them: a block a row, which it reads twice.

The vectorised kernel of layer_norm_kernel.cu (`vectorized_layer_norm_kernel`; since PyTorch 2.8 `F.rms_norm` runs it,
too): each of 128 threads loads 4 elements at a time, 512 columns a step, first for the statistics and then for the
result. The steps of a block follow one another, so that few long rows take as long as their steps, however few bytes
they have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, ceil, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.prediction.conditions import Conditions
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
from perfmodel.prediction.latency.terms import LAUNCH, Terms, smooth_max

SERVES = {"layer_norm": ("layer_norm", "rms_norm")}

COLUMN = Constant("column", "", 0.75, 0.05, 10.0, 0.3, "cycles of an SM for one column of one row")
TRIP = Constant("trip", "s", 0.95e-6, 0.1e-6, 5e-6, 0.2, "a block's step along its row, in both passes over it")
CONSTANTS = (replace(ETA, default=0.8), START, FEED, replace(FILL, default=0.55), COLUMN, TRIP, THRASH)

#: dispatch of the call over a plain one's: two layers of the framework, three results (1.5 to 1.9 on 7 machines)
CALL_COST = 1.75
#: threads of a block, and columns that they take in a step
THREADS, STEP = 128.0, 512.0
#: columns of a vector; threads of the two kernels of rows that are not whole vectors, a column each in a step
VECTOR, MOMENTS, RESULTS = 4.0, 512.0, 256.0
#: columns whose arithmetic takes as long as the fixed part of a row: joining the statistics of its threads
ROW = 800.0
#: the same of a sum of squares, which takes less to join than a mean and a variance (`cuWelfordCombine`), and its
#: instructions over LayerNorm's; its steps over LayerNorm's, in 16 bits and in fp32
RMS_ROW, RMS_COLUMN, RMS_TRIP, RMS_TRIP_FP32 = 450.0, 0.8, 0.8, 0.6
#: fixed part of a row of single elements, over that of vectors of fp32: 16 warps join their statistics in place of 4
#: (400 rows of 1030 columns in fp16, the only ones on record: 9.0 and 9.2 us on H100 and H200, torch 2.11; 9.3 with it)
SINGLE_ROW = 1.4
#: steps that take as long as the start and the join of a block
JOIN = 1.0
#: exponent of the smooth maximum of a block's own steps and of what all blocks of an SM issue
OVERLAP = 2.0
#: bytes of the elements that ``column`` is stated for
COLUMN_BYTES = 4.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, hbm + l2|| [s].

    Traffic is rows cols size (2 + mu), with the `missed_share` mu, the weights and `thrash_bytes`; math =
    ||rows / SM (cols + row) column / f, (join + ceil(cols / 512)) trip||_2. Rows that are no whole vectors take two
    kernels that load single elements, so that narrow ones take no fewer instructions (`RowwiseMomentsCUDAKernel`,
    `LayerNormForwardCUDAKernel`), the second of which reads all rows again.
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
    # Loads are vectors of 16 B, so that narrow elements take fewer; MI210's build does not gain from that.
    narrow = 1.0 if machine.matrix_instruction == "mfma" else dtype_bytes(op.dtype) / COLUMN_BYTES
    column, trip = c["column"] * where(whole, narrow, 1.0) / machine.clock_hz, c["trip"]
    row = ROW
    if norm.op == RmsNorm.op:
        row, column = RMS_ROW, column * RMS_COLUMN
        trip = trip * (RMS_TRIP if dtype_bytes(op.dtype) < COLUMN_BYTES else RMS_TRIP_FP32)
    row = row * where(whole, 1.0, SINGLE_ROW)
    steps = where(whole, ceil(cols / STEP), (ceil(cols / MOMENTS) + ceil(cols / RESULTS)) / 2.0)
    kernels = where(whole, 1.0, 2.0)
    math = smooth_max(OVERLAP, rows / machine.sm_count * (cols + row) * column, trip * (kernels * JOIN + steps))
    terms = beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)
    return Terms({**terms.adds, LAUNCH: c["launch"] * kernels}, terms.alone)


def applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether this kernel runs: forward, for a LayerNorm that is not fused, and for a framework's RMSNorm."""
    return not op.backward and (library in FRAMEWORKS or (op.op == LayerNorm.op and library not in FUSED))


def call_cost(op: Operator, c: Values) -> Number:
    """Return the dispatch over that of a plain call."""
    return CALL_COST


FAMILY = Family("layer_norm", CONSTANTS, formula, STREAM_TERMS, applies, call_cost=call_cost)
FAMILIES = (FAMILY,)
