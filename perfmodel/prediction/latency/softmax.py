"""Softmax over the last axis, as PyTorch computes it: a warp a row up to 1024 columns, above it a block a row.

A warp keeps its row in registers, padded to a power of two of columns. A block reads its row three times: for the
maximum, for the sum, for the output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.elementwise import ETA, FEED, FILL, LAUNCH, beside_math, stream_times
from perfmodel.prediction.latency.family import Constant, Family, Terms, Values
from perfmodel.prediction.latency.layer_norm import THRASH, missed_share, resident_blocks, sm_threads, thrash_bytes
from perfmodel.prediction.latency.machine import Machine

WARP = Constant("warp", "", 0.2, 0.02, 5.0, 0.35, "cycles of an SM for one column of a row in a warp's registers")
STEP = Constant(
    "step", "", 1800.0, 100.0, 40e3, 0.3, "cycles of a thread's step along its row, in an SM full of threads"
)
CONSTANTS = (replace(ETA, default=0.8), LAUNCH, FEED, replace(FILL, default=0.6), WARP, STEP, THRASH)

#: dispatch of the call over a plain one's, through a layer (1.26 to 1.5 on 7 machines)
CALLS = 1.3
#: most columns that a warp keeps in registers
WARP_COLUMNS = 1024.0
#: columns whose arithmetic takes as long as the row's own, where a warp has it
ROW = 200.0
#: steps that joining the threads of a block is worth
JOIN = 4.0
#: steps that a step over a whole vector is worth, where one over a single element is 1
VECTOR_STEP = 2.0
#: bytes that a thread reads at once
VECTOR_BYTES = 16.0
#: AMD's build: threads of a block, steps that joining them is worth, and steps of a row in shared memory over those of
#: one read three times (MI100, above 0.1 ms: 3250 + 0.8 cols and 3250 + 1.85 cols cycles of a CU)
AMD_THREADS, AMD_JOIN, AMD_SHARED = 1024.0, 1.76, 0.43


def block_threads(cols: Number, vector: float) -> Number:
    """Return the threads of a row's block: at least half of its vectors in one step, a power of two, at most 512.

    ``SoftMax_getBlockSize`` of PyTorch 2.1.
    """
    half = np.maximum(np.floor(np.floor(cols / vector) / 2.0), 1.0)
    threads: Number = np.clip(2.0 ** np.ceil(np.log2(half)), 32.0, 512.0)
    return threads


def steps(cols: Number, threads: Number, vector: float) -> Number:
    """Return the steps of a thread along a row: over vectors, then over the elements that are left.

    A row that does not start at a multiple of 16 bytes has a step over single elements in front; of rows of fp32
    that is 3 in 4 of odd length, 1 in 2 of even length, none of a multiple of 4. So 1600 columns take longer than
    2048: one step over vectors and 3 over elements, against two over vectors, of 256 threads.
    """
    even = _steps(cols, threads, vector)
    odd = 1.0 + _steps(np.maximum(cols - threads, 0.0), threads, vector)
    askew = 1.0 - np.gcd(np.asarray(cols, dtype=np.int64), int(vector)) / vector
    return even + askew * (odd - even)


def _steps(cols: Number, threads: Number, vector: float) -> Number:
    whole = np.floor(cols / (vector * threads))
    return VECTOR_STEP * whole + np.ceil((cols - vector * threads * whole) / threads)


def _block(cols: Number, vector: float, machine: Machine) -> tuple[Number, Number, Number | np.ndarray]:
    """Return a block's threads, the steps of one of them with those of joining all, and whether it reads its row once.

    AMD's build had 1024 threads in every row measured, kept rows of whole vectors in shared memory
    ("cunn_SoftMaxForwardSmem"), and took as long as a row has columns: wavefronts without columns cost nothing.
    """
    if machine.generation.startswith("cdna"):
        once = cols % vector == 0
        walked = cols / AMD_THREADS * np.where(once, AMD_SHARED, 1.0)
        return np.full_like(cols, AMD_THREADS), AMD_JOIN + walked, once
    threads = block_threads(cols, vector)
    return threads, JOIN + steps(cols, threads, vector), np.zeros_like(cols, dtype=bool)


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, dram + l2|| [s].

    Traffic is rows cols size (2 + 2 mu) and twice `thrash_bytes`, neither in a warp nor in shared memory; math =
    max(rows / SM, 1) cycles / f, with cycles = warp (2^ceil(log2 cols) + row) in a warp, else step threads / (threads
    of an SM) (join + steps): a step waits for its loads, while as many blocks as the SM holds wait at once.
    """
    rows = cast(Softmax, op).rows
    cols = np.asarray(cast(Softmax, op).cols, dtype=np.float64)
    row_bytes = cols * dtype_bytes(op.dtype)
    vector = VECTOR_BYTES / dtype_bytes(op.dtype)
    in_warp = cols <= WARP_COLUMNS
    threads, walked, once = _block(cols, vector, machine)
    resident = np.minimum(rows, resident_blocks(machine, threads)) * row_bytes
    again = missed_share(resident, machine, c) * rows * row_bytes + thrash_bytes(
        rows * row_bytes, machine, c, conditions
    )
    work = op.work()
    traffic = work.bytes + np.where(np.logical_or(in_warp, once), 0.0, 2.0 * again)
    padded = 2.0 ** np.ceil(np.log2(np.maximum(cols, 32.0)))
    block = c["step"] * threads / sm_threads(machine) * walked
    cycles = np.where(in_warp, c["warp"] * (padded + ROW), block)
    math = np.maximum(rows / machine.sm_count, 1.0) * cycles / machine.clock_hz
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)


def calls(op: Operator, c: Values) -> Number:
    """Return the dispatch over a plain call's."""
    return CALLS


FAMILY = Family("softmax", CONSTANTS, terms, calls=calls)
