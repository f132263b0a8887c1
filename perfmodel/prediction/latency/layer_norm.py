"""LayerNorm and RMSNorm over the last axis: a block of threads a row reads it for its statistics, then again.

PyTorch's vectorised kernel. RMSNorm needs no mean, and so less arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.elementwise import ETA, FEED, FILL, LAUNCH, beside_math, stream_times
from perfmodel.prediction.latency.family import Constant, Family, Terms, Values
from perfmodel.prediction.latency.machine import Machine

COLUMN = Constant("column", "", 0.75, 0.05, 10.0, 0.3, "cycles of an SM for one column of one row")
THRASH = Constant("thrash", "", 0.4, 0.01, 3.0, 1.0, "bytes read again, for each byte that the call before left in L2")
CONSTANTS = (replace(ETA, default=0.8), LAUNCH, FEED, replace(FILL, default=0.55), COLUMN, THRASH)

#: dispatch of the call over a plain one's: two layers of the framework, three results (1.5 to 1.9 on 7 machines)
CALLS = 1.75
#: threads of a block
THREADS = 128.0
#: columns whose arithmetic takes as long as a row's own: joining the statistics of its threads
ROW = 800.0
#: rows that one SM works on at once before more of them take longer: one row alone cannot fill it
ALONE = 2.0
#: arithmetic of RMSNorm over LayerNorm's: no mean, no running variance, no division a column
RMS = 0.4
#: threads that an SM holds at once where it is not 2048 (CUDA C++ programming guide, compute capabilities)
SM_THREADS = {"turing": 1024.0, "ada": 1536.0, "ampere-8.6": 1536.0}
#: what the resident rows read and write between the two reads of a row, over the size of the rows
BETWEEN = 2.0
#: over ``fill`` of L2: from this much between two reads on, every second read misses
SPAN = 6.0
#: share of L2 that the rows fill where `thrash_bytes` begin, and where all of them are there
THRASH_FROM, THRASH_ALL = 0.3, 0.7
#: where L2 has two halves that copy each other's lines (NVIDIA A100 and H100 white papers)
HALVED_L2 = ("ampere-8.0", "hopper")


def sm_threads(machine: Machine) -> float:
    """Return how many threads an SM holds at once."""
    return SM_THREADS.get(machine.generation, 2048.0)


def resident_blocks(machine: Machine, threads: Number) -> Number:
    """Return how many blocks of so many threads a machine holds at once."""
    return machine.sm_count * sm_threads(machine) / threads


def missed_share(resident_rows_bytes: Number, machine: Machine, c: Values) -> Number:
    """Return the share of a row's second read that misses L2.

    mu = clip((F / (fill C) - 1) / (span - 1), 0, 1): none while the bytes F that pass between the two reads fit.
    """
    fits = c["fill"] * max(machine.l2_bytes, 1.0)
    missed: Number = np.clip((BETWEEN * resident_rows_bytes / fits - 1.0) / (SPAN - 1.0), 0.0, 1.0)
    return missed


def thrash_bytes(rows_bytes: Number, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the bytes that a kernel reads once more because of what the call before left in L2 [B].

    thrash min(S, C), S the bytes of the rows and C the capacity: lines of the call before and rows that are still
    needed push each other out, until as much as L2 holds has passed. Nothing with cold caches, nor where the rows of
    both calls fit. Six of seven machines show it, for LayerNorm and softmax alike, and none for kernels that read once.
    """
    capacity = max(machine.l2_bytes, 1.0) / (2.0 if machine.generation in HALVED_L2 else 1.0)
    if conditions.cache != "warm":
        return 0.0 * rows_bytes
    full = np.clip((rows_bytes / capacity - THRASH_FROM) / (THRASH_ALL - THRASH_FROM), 0.0, 1.0)
    again: Number = c["thrash"] * full * np.minimum(rows_bytes, capacity)
    return again


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, dram + l2|| [s].

    Traffic is rows cols size (2 + mu), the weights and `thrash_bytes`; math = max(rows / SM, alone) (cols + row)
    column / f.
    """
    rows, cols = cast(LayerNorm, op).rows, cast(LayerNorm, op).cols
    work = op.work()
    row_bytes = cols * dtype_bytes(op.dtype)
    missed = missed_share(np.minimum(rows, resident_blocks(machine, THREADS)) * row_bytes, machine, c)
    traffic = work.bytes + missed * rows * row_bytes + thrash_bytes(rows * row_bytes, machine, c, conditions)
    column = c["column"] * (RMS if op.op == "rms_norm" else 1.0)
    math = np.maximum(rows / machine.sm_count, ALONE) * (cols + ROW) * column / machine.clock_hz
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)


def calls(op: Operator, c: Values) -> Number:
    """Return the dispatch over a plain call's."""
    return CALLS


FAMILY = Family("layer_norm", CONSTANTS, terms, calls=calls)
