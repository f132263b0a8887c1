"""Reduction of rows: reads once, writes little. Nothing is fitted: no table has rows of it.

The constants are those of an elementwise kernel, which streams as well. One profile checks it, an H100 trace of
TraceLens (@ 171dd74721ca): 3.6 us for one row of 141 values, 15.1 us for 8944 rows of 1024.

Blocks share a row that is long enough for several. PyTorch's Reduce.cuh does so from 131,072 values on only (256 for
each of 512 threads), so that a few rows somewhat shorter take it up to 16 times what is said here, and longer than rows
of more columns. No row measured that, and kernels of compilers split earlier.
"""

from __future__ import annotations

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import Limiter
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values, forward_only
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START, stream_times
from perfmodel.prediction.latency.terms import HBM, L2, LAUNCH, WAVES, Term, Terms

SERVES = {"reduction": ("reduction",)}

CONSTANTS = (ETA, START, FEED, FILL)
#: idle SMs cost bandwidth here, not arithmetic
IDLE = Term(WAVES, Limiter.HBM, "bandwidth that the busy SMs alone cannot draw")

#: values that a block of 512 threads takes at least, 16 for each thread
BLOCK_VALUES = 512.0 * 16.0
#: bytes that one SM draws from memory in a clock at most: 2.5 times its fair share of an A100's or H100's bandwidth
#: (10 to 13 B), so that fewer than SM / 2.5 blocks cannot saturate it there
DRAW_BYTES = 30.0


def block_s(size: float, machine: Machine) -> float:
    """Return the time of one block that takes its least number of values, of so many bytes each [s]."""
    return BLOCK_VALUES * size / (DRAW_BYTES * machine.clock_hz)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + max(hbm + l2, block) [s]; the cost of idle SMs is "wave quantisation"."""
    work = op.work()
    hbm, l2 = stream_times(work.bytes, work.working_set_bytes, machine, c, conditions)
    idle = np.maximum(0.0, block_s(dtype_bytes(op.dtype), machine) - (hbm + l2))
    return Terms({HBM: hbm, L2: l2, IDLE: idle, LAUNCH: c["launch"]}, {HBM: hbm, L2: l2})


FAMILY = Family("reduction", CONSTANTS, formula, (HBM, L2, IDLE, LAUNCH), forward_only, streams=True)
FAMILIES = (FAMILY,)
