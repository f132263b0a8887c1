"""Kernels that run one after another: what each moves, computes and waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, maximum
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import PYTORCH_1, ROWS_ELSEWHERE, Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.reduction import IDLE
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START, stream_times
from perfmodel.prediction.latency.terms import CONTENTION, HBM, L2, LAUNCH, MATH, Term, Terms, overlapped

TERMS = (MATH, HBM, L2, IDLE, CONTENTION, LAUNCH)
#: constants of what all of these kernels stream
STREAM = (replace(ETA, default=0.88), replace(START, default=2.0e-6), FEED, FILL)
#: exponent of the smooth maximum of a kernel's memory, cache, instructions and waiting: scattered reads, of which
#: half hit L2, take a sixth longer than the slower of both (gather and index_select by Zipf's law, H100, torch 2.11)
POWER = 4.0


@dataclass(frozen=True)
class Pass:
    """One kernel, or some that work alike; all figures are those of the call.

    Attributes
    ----------
    kernels : how many kernels start.
    moved : bytes that cross device memory [B].
    slower : time of these bytes over that of a plain stream.
    cached : bytes that cross L2 in sectors, where those are more than the bytes moved [B].
    cycles : cycles of SMs, shared by all of them: instructions, and blocks that start.
    waited_s : the time of the threads that wait the longest, one load after another [s].
    """

    kernels: Number = 1.0
    moved: Number = 0.0
    slower: Number = 1.0
    cached: Number = 0.0
    cycles: Number = 0.0
    waited_s: Number = 0.0


def time_of(
    passes: Iterable[Pass], footprint_bytes: Number, machine: Machine, c: Values, conditions: Conditions
) -> Terms:
    """Return the terms of t = sum over passes of kernels launch + ||cycles / (SM f), hbm, l2, waited||_3 [s].

    Bytes go at eta W, those in L2 at ``feed`` of its rate; with warm caches all go at that rate as far as the footprint
    still lies in L2.
    """
    adds: dict[Term, Any] = dict.fromkeys(TERMS, 0.0)
    for one in passes:
        hbm, held = stream_times(one.moved * one.slower, footprint_bytes, machine, c, conditions)
        # What lies in L2 with warm caches is among the bytes that cross it.
        l2 = maximum(held, one.cached / (c["feed"] * 64.0 * machine.sm_count * machine.clock_hz))
        math = one.cycles / (machine.sm_count * machine.clock_hz)
        parts = overlapped(POWER, {HBM: hbm, MATH: math, L2: l2, IDLE: one.waited_s})
        for name, time in parts.adds.items():
            adds[name] = adds[name] + time
        adds[LAUNCH] = adds[LAUNCH] + c["launch"] * one.kernels
    return Terms(adds)


def among(mask: Any, one: Pass) -> Pass:
    """Return a pass that runs where a mask holds, and takes nothing elsewhere."""
    share = np.asarray(mask, dtype=np.float64)
    return Pass(one.kernels * share, one.moved * share, one.slower, one.cached * share, one.cycles * share,
                one.waited_s * share)  # fmt: skip


def is_eager(op: Any, machine: Machine, library: str) -> bool:
    """Whether PyTorch's kernels run."""
    return library == "torch"


#: (operator, bytes of an element, constants, machine) -> the kernels of a call
Kernels = Callable[[Any, float, Values, Machine], Sequence[Pass]]
#: a release of PyTorch, and what lists the kernels of a call from it on
Since = tuple[tuple[int, ...], Kernels]


def eager_family(
    name: str,
    own: Sequence[Constant],
    kernels: Mapping[str, Kernels],
    applies: Callable[[Any, Machine, str], Any] = is_eager,
    doubts: Sequence[Doubt] = (),
    replaced: Mapping[str, Sequence[Since]] = MappingProxyType({}),
) -> Family:
    """Return a family of PyTorch's kernels.

    Parameters
    ----------
    name : of the family.
    own : its constants beside those of `STREAM`.
    kernels : operator's name -> what lists the kernels of a call.
    applies : as in `Family`.
    doubts : of its own calls, beside those of all of PyTorch's kernels.
    replaced : operator's name -> the releases that replaced its kernels, the first one first, each with the new ones.
    """

    def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
        """Return the terms of the passes of a call."""
        listed = kernels[op.op]
        for release, since in replaced.get(op.op, ()):
            listed = listed if conditions.is_before(*release) else since
        passes = listed(op, dtype_bytes(op.dtype), c, machine)
        return time_of(passes, op.work().working_set_bytes, machine, c, conditions)

    return Family(
        name,
        (*STREAM, *own),
        formula,
        TERMS,
        applies,
        streams=True,
        by_dtype=False,
        doubts=(*doubts, ROWS_ELSEWHERE, PYTORCH_1),
    )
