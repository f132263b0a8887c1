"""Kernels of serving libraries that load element by element: embedding look-up, and rotary position embedding.

Rows of the embedding's table are copied from places at random; queries and keys are rotated in place. Both are limited
by the instructions that each element takes, more than by their bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, ceil, clipped, floor, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.rope import Rope
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import TUNED, Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values, forward_only
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ADDRESS_CYCLES,
    ETA,
    FEED,
    FILL,
    FRAMEWORKS,
    ISSUE,
    LEFT,
    START,
    STREAM_TERMS,
    beside_math,
    issue_s,
    left_share,
    stream_times,
)
from perfmodel.prediction.latency.terms import Terms

SERVES = {"embedding": ("embedding",), "rope": ("rope",)}

#: elements whose instructions take as long as the fixed part of a token's block; set on A100 and H100 together, where
#: 1152 elements of a token take 6.3 ps each and 16,384 take 4.6, as RMSNorm's `ROW`
BLOCK = 400.0
#: up to so many indices PyTorch looks up in one pass over them (indexSelectSmallIndex, aten/native/cuda/Indexing.cu)
FEW = 16.0
#: the tables of A100 and H100 have no rows below 15 us, which do not tell a start: it stays within what short kernels
#: take on other machines. A look-up is a kernel of PyTorch's, whose elementwise kernels take 2.4 us on NVIDIA
_ROPE_START = replace(START, low=1.5e-6, high=2.0e-6, spread=0.1, library=True)
_LOOK_UP_START = replace(START, low=1.5e-6, high=2.6e-6, spread=0.1, library=True, unmeasured=2.4e-6)
#: queries and keys are the last that the product before wrote, and are rotated in place: more of L2 than elementwise
#: kernels find; of 0.33 and 0.5 the one that predicts machines that are left out better
_ROPE_LEFT = replace(LEFT, default=0.5)
#: all of their data come from device memory; the mean of elementwise kernels on other machines
_FEED = replace(FEED, default=0.24, spread=0.2)
#: the release since which PyTorch gathers rows by vectors of 16 B (`vectorized_gather_kernel`, IndexKernelUtils.h);
#: the tables of serving engines are older
GATHER_SINCE = (2, 7)
#: bytes that rows must be whole multiples of for that, and SM cycles of one element of others, each of which finds its
#: own address (`_scatter_gather_elementwise_kernel`): those of elementwise kernels that do so, since no row of a
#: look-up tells them
GATHER_BYTES, GATHER_ISSUE = 16.0, ADDRESS_CYCLES
#: bytes that a block of it copies at most, 16 by each of up to 256 threads, blocks that an SM holds, and the latency of
#: a block [s]: it reads its index, then the row, beside as many others as an SM holds. It is set on four look-ups of
#: rows of 528 to 3280 B on an H200 (torch 2.11.0, 2026-11-23), which come out within 10 % (2.2 to 2.6 us by themselves)
BLOCK_BYTES, THREAD_BYTES, MOST_BLOCKS, BLOCK_S = 4096.0, 16.0, 32.0, 2.3e-6
#: its start: 2.9 us for 256 rows of 2 KiB, of which the stream takes 0.4 (H100, torch 2.11). The kernel before it takes
#: it, too: no fit tells a start of it, and 141 rows of 1 KiB took 3.1 to 3.4 us in a trace of an H100
FRAMEWORK_START_S = 2.4e-6
#: lanes of a warp
LANES = 32.0
INDEX = Constant(
    "index", "s", 0.2e-6, 0.01e-6, 2e-6, 0.3, "latency of each of up to 16 indices, looked up one after another"
)


#: what rotations differ by that their authors wrote, by themselves or in Triton, beside what libraries do: those of two
#: take 1.5 to 3.3 times the predicted time, ln 0.45 and 1.1 in the root mean square (`sglang-28783` of
#: `examples/published`, niehen6174/gpu-kernel-cookbook @ d7dd39f75763; six rows, in view)
AUTHORS_DIFFER = (0.7, 0.7, 0.7)


def _by_an_author(op: Operator, machine: Machine, conditions: Conditions) -> bool:
    """Whether a kernel is of no library that many use."""
    return conditions.library == "triton" or conditions.caller not in TUNED


def rotation(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||issue waves SM (dim + fixed) / (SM f), hbm + l2|| [s].

    A block turns the heads of one token, which takes it a fixed time besides; an SM that has one block more than the
    others ends last, so that blocks count in whole rounds of all SMs. Of the traffic `left_share` stays in L2.
    """
    op = cast(Rope, op)
    work = op.work()
    rounds = np.ceil(op.tokens / machine.sm_count) * machine.sm_count
    held = left_share(work.bytes, machine, c, conditions)
    issued = issue_s(rounds * (op.dim + BLOCK), machine, c, held)
    return beside_math(issued, *stream_times(work.bytes, work.bytes, machine, c, conditions, held), c)


def look_up(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||issue tokens dim / (SM f) + index tokens, hbm + l2|| [s].

    The latency of ``index`` counts up to `FEW` tokens, whose kernel walks through the indices. PyTorch gathers more of
    them by vectors, hbm + l2 alone, where rows are whole vectors, else with `GATHER_ISSUE`.
    """
    op = cast(Embedding, op)
    work = op.work()
    walked = where(op.tokens <= FEW, c["index"] * op.tokens, 0.0)
    if conditions.library in FRAMEWORKS and not conditions.is_before(*GATHER_SINCE):
        row_bytes = op.dim * dtype_bytes(op.dtype)
        single = issue_s(op.tokens * op.dim, machine, {**c, "issue": GATHER_ISSUE})
        vectors = rounds_of_blocks(op.tokens, row_bytes, machine) * BLOCK_S
        issued = where(row_bytes % GATHER_BYTES == 0, vectors, single) + walked
        times = stream_times(work.bytes, work.working_set_bytes, machine, c, conditions)
        return beside_math(issued, *times, {**c, "launch": FRAMEWORK_START_S})
    if conditions.library in FRAMEWORKS:
        c = {**c, "launch": FRAMEWORK_START_S}
    issued = issue_s(op.tokens * op.dim, machine, c) + walked
    return beside_math(issued, *stream_times(work.bytes, work.working_set_bytes, machine, c, conditions), c)


def rounds_of_blocks(tokens: Number, row_bytes: Number, machine: Machine) -> Number:
    """Return how often the SMs are filled with blocks, each of which copies up to `BLOCK_BYTES` of one row."""
    threads = clipped(ceil(row_bytes / THREAD_BYTES / LANES) * LANES, LANES, BLOCK_BYTES / THREAD_BYTES)
    resident = minimum(MOST_BLOCKS, floor(machine.threads_per_sm / threads))
    rounds: Number = tokens * ceil(row_bytes / BLOCK_BYTES) / (machine.sm_count * resident)
    return rounds


FAMILIES = (
    Family(
        "embedding",
        (ETA, _LOOK_UP_START, _FEED, FILL, replace(ISSUE, default=1.8), INDEX),
        look_up,
        STREAM_TERMS,
        forward_only,
        by_library=True,
        of_framework=True,
        since=dict.fromkeys(FRAMEWORKS, GATHER_SINCE),
    ),
    Family(
        "rope",
        (replace(ETA, high=0.93), _ROPE_START, _FEED, _ROPE_LEFT, replace(ISSUE, default=0.6)),
        rotation,
        STREAM_TERMS,
        forward_only,
        by_library=True,
        doubts=(Doubt(ErrorSource.EXTRAPOLATION, _by_an_author, AUTHORS_DIFFER, lasting=True),),
    ),
)
