"""Operators that pass over their data several times: sorts, selections, scans and sampling.

Nothing is fitted: no table has rows of them. Two published rates check sorts: onesweep sorts 29.4 billion 32-bit keys a
second on an A100, and a sort of 3 instead of 2 accesses a pass 1.5 times fewer (Adinets and Merrill 2022, arXiv
2206.01784, abstract).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, anywhere, ceil, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.sampling import Sampling
from perfmodel.operators.scan import Scan
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import BY_HAND
from perfmodel.prediction.latency.eager.selections import shared_kernels, shares_rows
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.reduction import DRAW_BYTES, IDLE
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START, stream_times
from perfmodel.prediction.latency.terms import HBM, L2, LAUNCH, MATH, Terms

SERVES = {"sort": ("sort",), "selection": ("topk", "sampling"), "scan": ("scan",)}

#: share of a stream's bandwidth that passes reach which scatter what they write; set on the 29.4 Gkey/s above, taking
#: the A100 for one of 40 GB: 36 B a key at 0.78 x 0.87 x 1555 GB/s
SCATTERED = Constant("scattered", "", 0.78, 0.3, 1.0, 0.2, "bandwidth of scattered passes over that of a stream")
#: start of a kernel in a sequence over that of a lone one: each waits for the one before to drain (assumed)
STARTS = 1.5
#: SM clocks of a key in a pass of a radix sort, which ranks it among those of its block: those of the 29.4 Gkey/s. On a
#: B200 2^28 keys take 1.42 clocks in one pass (8 bits) and 1.66 in each of four (32 bits), where memory would take
#: a third of that (NVIDIA/cccl pull requests 9247 and 3655, in view)
RANK_CLOCKS = 1.29
#: libraries whose radix sorts are CUB's, and keys of 4 B and less that a block ranks in them: 384 threads with 21 each,
#: and fewer wider ones (AgentRadixSortOnesweepPolicy of cub/device/dispatch/tuning/tuning_radix_sort.cuh,
#: github.com/NVIDIA/cccl). Nobody's tiles are known for other calls, which are taken to be even
OF_CUB, RANKED_TILE, RANKED_BYTES = ("cub", "thrust", "cupy"), 8064.0, 4.0
#: SM clocks of an element in CUB's scan by look-back, which adds it up in its thread, warp and block: 2^28 of 8 bits
#: take 0.52 on an A100 and 0.51 on a B200, of fp32 0.57 there, whatever their bytes (NVIDIA/cccl pull requests 302,
#: 6639 and 3559, in view). Its look-ahead, of 2026, takes 0.22
LOOK_BACK_CLOCKS = 0.52
#: FlagGems scans rows of up to so many elements in a block each, and of longer ones adds up parts before, in kernels of
#: their own (`reduce_then_scan_row` of src/flag_gems/ops/cumsum.py, github.com/flagos-ai/FlagGems, since pull request
#: 993). That its scan issues as many instructions as CUB's is assumed
FLAGGEMS, FLAGGEMS_ROW = "flaggems", 16384.0
#: algorithms of which one block has a row to itself
ONE_BLOCK = ("radix_select", "heap", "top_k", "top_p_pivot", "gumbel_fused")
#: bits of a digit of a selection that one block does alone (PyTorch, SortingRadixSelect.cuh, RADIX_BITS), so that it
#: reads a row of fp32 17 times, all but the first from a cache
BLOCK_DIGIT_BITS = 2.0
_STREAM = (ETA, replace(START, library=True), FEED, FILL)


def scattered(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = kernels 1.5 launch + max(bytes / (scattered eta W), 1.29 passes n / (SMs f)) [s].

    The second is a radix sort's, whose blocks rank their keys: in CUB whole tiles, so that the SM with most of them
    takes longest.
    """
    op = cast(Sort, op)
    ranked_s: Number = 0.0
    if op.algorithm == "radix":
        keys: Number = op.rows * op.cols / machine.sm_count
        if conditions.caller in OF_CUB:
            widest = max(map(dtype_bytes, (op.dtype, op.value_dtype or op.dtype)))
            tile = RANKED_TILE * min(1.0, RANKED_BYTES / widest)
            keys = minimum(op.cols, tile) * ceil(op.rows * ceil(op.cols / tile) / machine.sm_count)
        ranked_s = RANK_CLOCKS * op.passes() * keys / machine.clock_hz
    return _issued(_terms(op, op.kernels(), 1.0 / c["scattered"], ranked_s, machine, c, conditions), ranked_s)


def rowwise(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = kernels 1.5 launch + max(bytes / (eta W), a row's bytes / (30 B f)) [s].

    One block has a row to itself where a single kernel does all, so that few long rows leave SMs idle. Of a selection
    several blocks share them, as in PyTorch, where the kernels between its digits take less than that.
    """
    op = cast(Topk | Sampling, op)
    one = _terms(op, op.kernels(), 1.0, alone_s(op, machine), machine, c, conditions)
    shared = _shared(op)
    if not anywhere(shared):
        return one
    many = _terms(op, shared_kernels(dtype_bytes(op.dtype)), 1.0, 0.0, machine, c, conditions)
    here = shared & (many.time_s < one.time_s)
    return Terms({name: where(here, many.adds[name], one.adds[name]) for name in TERMS}, one.alone)


def streamed(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = kernels 1.5 launch + max(bytes / (eta W), 0.52 n / (SMs f)) [s].

    The second is a scan by look-back, whose flags a kernel before it resets. In FlagGems two kernels are before that of
    long rows, the first of which reads them, and none before others.
    """
    op = cast(Scan, op)
    if op.algorithm != "look_back":
        return _terms(op, op.kernels(), 1.0, 0.0, machine, c, conditions)
    added_s = LOOK_BACK_CLOCKS * op.rows * op.cols / (machine.sm_count * machine.clock_hz)
    if conditions.caller != FLAGGEMS:
        return _issued(_terms(op, op.kernels() + 1.0, 1.0, added_s, machine, c, conditions), added_s)
    several = where(op.cols > FLAGGEMS_ROW, 1.0, 0.0)
    found = _issued(_terms(op, op.kernels() + 2.0 * several, 1.0, added_s, machine, c, conditions), added_s)
    read = several * op.tensors()[0].size_bytes
    hbm, l2 = stream_times(read, op.work().working_set_bytes, machine, c, conditions)
    adds = {**found.adds, HBM: found.adds[HBM] + hbm, L2: found.adds[L2] + l2}
    return Terms(adds, {**found.alone, HBM: found.alone[HBM] + hbm, L2: found.alone[L2] + l2})


def _issued(found: Terms, issued_s: Number) -> Terms:
    """Return terms in which what keeps memory idle is the instructions that the kernels issue."""
    adds = {MATH if name is IDLE else name: value for name, value in found.adds.items()}
    return Terms(adds, {**found.alone, MATH: issued_s})


def alone_s(op: Topk | Sampling, machine: Machine) -> Number:
    """Return the time that one block takes to read its row as often as it does, at 30 B a clock [s]."""
    return _row_bytes(op) / (DRAW_BYTES * machine.clock_hz) if op.algorithm in ONE_BLOCK else 0.0


def _shared(op: Topk | Sampling) -> Any:
    """Return where several blocks may share a row: those of a selection, by the sizes at which PyTorch's do."""
    return isinstance(op, Topk) and op.algorithm == "radix_select" and shares_rows(op.rows, op.cols)


def _of_blocks(op: Any, machine: Machine) -> tuple[bool, str]:
    """Say that several blocks may share a row, which the name of the algorithm leaves open."""
    return False, "radix_select_multi, several blocks a row, where one takes longer" if anywhere(_shared(op)) else ""


def _row_bytes(op: Topk | Sampling) -> Number:
    """Return the bytes of the largest input that one row reads, all reads of it together [B]."""
    first: Tensor = op.tensors()[0]
    reads = first.reads
    if op.algorithm in ("radix_select", "top_k"):
        reads = 8.0 * dtype_bytes(op.dtype) / BLOCK_DIGIT_BITS + 1.0
    return first.size_bytes * reads / op.rows


def _terms(
    op: Operator, kernels: Number, slower: float, least_s: Number, machine: Machine, c: Values, conditions: Conditions
) -> Terms:
    work = op.work()
    hbm, l2 = stream_times(work.bytes * slower, work.working_set_bytes, machine, c, conditions)
    idle = np.maximum(0.0, least_s - (hbm + l2))
    starts = c["launch"] * np.where(np.greater(kernels, 1.0), STARTS * np.asarray(kernels), 1.0)
    return Terms({HBM: hbm, L2: l2, IDLE: idle, LAUNCH: starts}, {HBM: hbm, L2: l2})


TERMS = (HBM, L2, IDLE, LAUNCH)
FAMILIES = (
    Family("sort", (*_STREAM, SCATTERED), scattered, (HBM, L2, MATH, LAUNCH), streams=True, doubts=(BY_HAND,)),
    Family("selection", _STREAM, rowwise, TERMS, streams=True, beyond=_of_blocks),
    Family("scan", _STREAM, streamed, (HBM, L2, MATH, IDLE, LAUNCH), streams=True, doubts=(BY_HAND,)),
)
