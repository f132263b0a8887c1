"""LayerNorm over the last axis: one block of threads a row, which reads it for its statistics, then again.

This is PyTorch's vectorised kernel.
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
from perfmodel.prediction.latency.family import Constant, Family, Values, forward_only
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ETA,
    FEED,
    FILL,
    START,
    STREAM_TERMS,
    THRASH,
    beside_math,
    missed_share,
    resident_blocks,
    stream_times,
    thrash_bytes,
)
from perfmodel.prediction.latency.terms import Terms

SERVES = {"layer_norm": ("layer_norm",)}

COLUMN = Constant("column", "", 0.75, 0.05, 10.0, 0.3, "cycles of an SM for one column of one row")
CONSTANTS = (replace(ETA, default=0.8), START, FEED, replace(FILL, default=0.55), COLUMN, THRASH)

#: dispatch of the call over a plain one's: two layers of the framework, three results (1.5 to 1.9 on 7 machines)
CALL_COST = 1.75
#: threads of a block
THREADS = 128.0
#: columns whose arithmetic takes as long as the fixed part of a row: joining the statistics of its threads
ROW = 800.0
#: rows that one SM works on at once before more of them take longer: one row alone cannot fill it
ALONE = 2.0
#: bytes of the elements that ``column`` is stated for
COLUMN_BYTES = 4.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, hbm + l2|| [s].

    Traffic is rows cols size (2 + mu), with the `missed_share` mu, the weights and `thrash_bytes`; math =
    max(rows / SM, alone) (cols + row) column / f.
    """
    rows, cols = cast(LayerNorm, op).rows, cast(LayerNorm, op).cols
    work = op.work()
    row_bytes = cols * dtype_bytes(op.dtype)
    missed = missed_share(np.minimum(rows, resident_blocks(machine, THREADS)) * row_bytes, machine, c)
    traffic = work.bytes + missed * rows * row_bytes + thrash_bytes(rows * row_bytes, machine, c, conditions)
    # Loads are vectors of 16 B, so that narrow elements take fewer; MI210's build does not gain from that.
    narrow = 1.0 if machine.matrix_instruction == "mfma" else dtype_bytes(op.dtype) / COLUMN_BYTES
    column = c["column"] * narrow
    math = np.maximum(rows / machine.sm_count, ALONE) * (cols + ROW) * column / machine.clock_hz
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)


def call_cost(op: Operator, c: Values) -> Number:
    """Return the dispatch over that of a plain call."""
    return CALL_COST


FAMILY = Family("layer_norm", CONSTANTS, formula, STREAM_TERMS, forward_only, call_cost=call_cost)
FAMILIES = (FAMILY,)
