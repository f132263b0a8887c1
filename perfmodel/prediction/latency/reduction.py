"""Reduction of rows: reads once, writes little. Nothing is fitted: no table has rows of it.

The constants are those of an elementwise kernel, which streams as well; how rows are spread over blocks is PyTorch's
Reduce.cuh. One profile checks it, an H100 trace of TraceLens (@ 171dd74721ca): 3.6 us for one row of 141 values,
15.1 us for 8944 rows of 1024.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.reduction import Reduction
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.elementwise import ETA, FEED, FILL, LAUNCH, stream_times
from perfmodel.prediction.latency.family import Family, Terms, Values
from perfmodel.prediction.latency.machine import Machine

CONSTANTS = (ETA, LAUNCH, FEED, FILL)

#: values that a block of 512 threads takes at least, 16 a thread; it shares what it has left with other rows
BLOCK_VALUES = 512.0 * 16.0
#: values of a row, 256 a thread, from which on several blocks share it, each with `BLOCK_VALUES`
SPLIT_VALUES = 512.0 * 256.0
#: over its fair share of the bandwidth, what one SM can draw: fewer than SM / 2.5 blocks cannot saturate the memory
DRAW = 2.5


def busy_share(rows: Number, cols: Number, machine: Machine) -> Number:
    """Return the share of the bandwidth that the blocks of a reduction can draw."""
    taken = np.where(np.asarray(cols) < SPLIT_VALUES, np.minimum(cols, BLOCK_VALUES), cols)
    blocks = rows * taken / BLOCK_VALUES
    busy: Number = np.minimum(1.0, DRAW * blocks / machine.sm_count)
    return busy


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + (dram + l2) / busy [s]; what idle SMs cost is "wave quantisation"."""
    work = op.work()
    dram, l2 = stream_times(work.bytes, work.working_set_bytes, machine, c, conditions)
    busy = busy_share(cast(Reduction, op).rows, cast(Reduction, op).cols, machine)
    idle = (dram + l2) * (1.0 / busy - 1.0)
    return Terms({"dram": dram, "l2": l2, "wave quantisation": idle, "launch": c["launch"]}, {"dram": dram, "l2": l2})


FAMILY = Family("reduction", CONSTANTS, terms)
