"""Reduction of rows, as PyTorch does it: reads once, writes little, and shares the rows out among threads and blocks.

`setReduceConfig` of PyTorch's Reduce.cuh gives a block up to 512 threads. A warp has a row to itself until its lanes
would take 256 values each, so that a few rows of 4096 columns take longer than rows of 8192, which a block shares; and
several blocks share a row from 256 values a thread on. The loads of a thread, 16 B each, follow one another.

Kernels of compilers split rows earlier, so that they only need enough values to keep all SMs drawing.

One profile checks that, an H100 trace of TraceLens (@ 171dd74721ca): 3.6 us for one row of 141 values, 15.1 us for 8944
rows of 1024.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.reduction import Reduction
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Values, forward_only
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, FRAMEWORKS, START, stream_times
from perfmodel.prediction.latency.terms import HBM, L2, LAUNCH, WAVES, Term, Terms, smooth_max

SERVES = {"reduction": ("reduction",)}

TRIP = Constant("trip", "s", 0.46e-6, 0.1e-6, 2e-6, 0.2, "a thread's step along its row: a load and its sum")
CONSTANTS = (ETA, START, FEED, FILL, TRIP)
#: idle SMs and waiting threads cost bandwidth here, not arithmetic
IDLE = Term(WAVES, Limiter.HBM, "bandwidth that the threads at work do not draw")

#: values that a block of 512 threads takes at least, 16 for each thread
BLOCK_VALUES = 512.0 * 16.0
#: bytes that one SM draws from memory in a clock at most: 2.5 times its fair share of an A100's or H100's bandwidth
#: (10 to 13 B), so that fewer than SM / 2.5 blocks cannot saturate it there
DRAW_BYTES = 30.0
#: threads of a block and of a warp, bytes of a load, and columns from which on loads have so many (Reduce.cuh)
THREADS, WARP, VECTOR_BYTES, LEAST_VECTORISED = 512.0, 32.0, 16.0, 128.0
#: values of a thread: from the first times its warps on, or from the second on, a block shares a row; from the second
#: on, blocks share it, so that each thread keeps the first at least and the second at most (Reduce.cuh)
LEAST_VALUES, MOST_VALUES = 16.0, 256.0
#: steps that take as long as joining the threads of a block, and the blocks of a row
JOIN, JOIN_BLOCKS = 2.0, 12.0
#: exponent of the smooth maximum of a thread's own steps and of the traffic, which overlap less than in whole streams:
#: a thread has one load under way. 2, 1.5 and 1.25 leave 9, 7 and 7 % of 13 rows of an H100, half of them fitted, and
#: 20, 14 and 11 % of 12 of an H200 in shapes drawn at random (own records, 2026-11-23)
OVERLAP = 1.25


def _power_of_two(number: Number) -> Number:
    """Return the largest power of two up to a number, 512 at most."""
    found: Number = 2.0 ** np.floor(np.log2(np.clip(number, 1.0, THREADS)))
    return found


def shares(rows: Number, cols: Number, vector: float, machine: Machine) -> tuple[Number, Number, Number]:
    """Return how rows are shared out: blocks, threads of each, and values of a thread, which loads ``vector`` at once.

    >>> from perfmodel.hardware_catalog import hardware
    >>> h100 = Machine.of(hardware("h100-sxm5-80gb"), None)
    >>> tuple(map(float, shares(256.0, 4096.0, 4.0, h100)))  # a warp a row
    (16.0, 512.0, 128.0)
    >>> tuple(map(float, shares(256.0, 8192.0, 4.0, h100)))  # a block a row
    (256.0, 512.0, 16.0)
    """
    loads = np.where(cols >= LEAST_VECTORISED, np.floor(cols / vector), cols)
    width = np.minimum(_power_of_two(loads), WARP)
    height = np.minimum(_power_of_two(rows), THREADS / width)
    width = np.minimum(_power_of_two(loads), THREADS / height)
    together = np.ceil(cols / width) >= np.minimum(LEAST_VALUES * height, MOST_VALUES)
    values = np.ceil(cols / (width * np.where(together, height, 1.0)))
    blocks = np.ceil(rows / np.where(together, 1.0, height))
    target = machine.sm_count * np.floor(machine.threads_per_sm / (width * height))
    several = together & (values >= MOST_VALUES) & (blocks <= target)
    wanted = np.minimum(np.ceil(target / blocks), np.ceil(values / LEAST_VALUES))
    parts = np.where(several, np.maximum(wanted, np.ceil(values / MOST_VALUES)), 1.0)
    return blocks * parts, width * height, np.ceil(values / parts)


def block_s(size: float, machine: Machine) -> float:
    """Return the time of one block that takes its least number of values, of so many bytes each [s]."""
    return BLOCK_VALUES * size / (DRAW_BYTES * machine.clock_hz)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + max(hbm + l2, block), of PyTorch launch + ||hbm + l2, steps||_2 [s].

    What blocks or steps add is "wave quantisation".
    """
    work = op.work()
    hbm, l2 = stream_times(work.bytes, work.working_set_bytes, machine, c, conditions)
    if conditions.library in FRAMEWORKS:
        idle = smooth_max(OVERLAP, hbm + l2, _steps_s(op, work.bytes, machine, c)) - (hbm + l2)
    else:
        idle = np.maximum(0.0, block_s(dtype_bytes(op.dtype), machine) - (hbm + l2))
    return Terms({HBM: hbm, L2: l2, IDLE: idle, LAUNCH: c["launch"]}, {HBM: hbm, L2: l2})


def _steps_s(op: Operator, traffic_bytes: Number, machine: Machine, c: Values) -> Number:
    """Return the time of rounds of blocks (join + loads of a thread) trip, at least what the busy SMs need [s]."""
    reduction = cast(Reduction, op)
    rows, cols = np.asarray(reduction.rows, dtype=np.float64), np.asarray(reduction.cols, dtype=np.float64)
    vector = VECTOR_BYTES / dtype_bytes(op.dtype)
    blocks, threads, values = shares(rows, cols, vector, machine)
    several = blocks > rows
    rounds = np.maximum(1.0, blocks * threads / (machine.sm_count * machine.threads_per_sm))
    steps = rounds * c["trip"] * (JOIN + JOIN_BLOCKS * several + np.ceil(values / vector))
    drawn = traffic_bytes / (np.minimum(blocks, machine.sm_count) * DRAW_BYTES * machine.clock_hz)
    slowest: Number = np.maximum(steps, drawn)
    return slowest


FAMILY = Family(
    "reduction",
    CONSTANTS,
    formula,
    (HBM, L2, IDLE, LAUNCH),
    forward_only,
    streams=True,
    for_pytorch=lambda op: not op.backward,
)
FAMILIES = (FAMILY,)
