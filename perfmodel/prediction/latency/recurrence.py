"""Linear attention and the gated delta rule: chunks whose states follow one another, or tokens one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, maximum, minimum
from perfmodel.operators.base import Operator
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.operators.linear_attention import LinearAttention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START, STREAM_TERMS, beside_math, stream_times
from perfmodel.prediction.latency.terms import LAUNCH, Term, Terms

SERVES = {"recurrence": ("gated_delta", "linear_attention")}

CHAIN = Term("chain", Limiter.COMPUTE, "states that are passed on from chunk to chunk, one after another")
#: streams reach what fused kernels do (`perfmodel.prediction.latency.stream`)
CONSTANTS = (replace(ETA, default=0.88), replace(START, library=True), FEED, FILL)
#: libraries with one kernel for all of it, whose intermediate results stay on the chip
ON_CHIP = ("flashinfer", "flashqla")


class Pace(NamedTuple):
    """How fast the chunks of a rule are computed, forward and backward.

    Attributes
    ----------
    rate : FLOP that an SM computes in a clock.
    step : SM cycles from the state of a chunk to that of the next.
    """

    rate: tuple[float, float]
    step: tuple[float, float]


#: flash-linear-attention's kernels in Triton, whose products are as small as 64 x 64 x 64; the tensor cores of a Hopper
#: do 4096 FLOP in a clock. The delta rule's are read off 42 published calls on an H200 and a GB200, forward, and 16
#: backward, with 128 columns: rates by long sequences of many heads, steps by few heads (0.9 to 1.4 us, and 3.5 us)
#: (QwenLM/FlashQLA @ 6e5d2ea1 and 5f6aa530, benchmark_results_H200.txt and _GB200.txt, in view). Chunks of linear
#: attention add one product to the state: a GB200 takes 632 us for 256 chunks of 64 heads and 1129 us for those of 128
#: (inclusionAI/cuLA @ 0b252e7e, BENCHMARK_GB200.md, Lightning Attention, in view). Its gradients take as long a token
#: as the delta rule's, with half the FLOP; on an A100 longer still, 184 FLOP a clock (flash-linear-attention's README,
#: retention of 8 x 32 heads and 128 columns, in view)
PACES = {
    "gated_delta": Pace((575.0, 575.0), (2300.0, 7000.0)),
    "linear_attention": Pace((575.0, 290.0), (1000.0, 7000.0)),
}
#: columns of values below which products reach less of these rates, as the root of their share: the five kernels of
#: Mamba-2's chunks, with 64, take an H100 1.4 times as long as they would with 128 (vllm-project/vllm, pull request
#: 27299, in view)
FULL_COLUMNS = 128.0
#: one kernel of the delta rule that keeps its states on the chip, forward: the same tables (0.4 us a step)
ON_CHIP_PACE = Pace((1700.0, 1700.0), (830.0, 7000.0))
#: the most of a matrix engine's peak that either reaches, which the small ones of GeForce cards would limit: assumed
SHARE = 0.5
#: SM cycles from one token to the next, which wait for the loads of its key and value: assumed
NEXT_TOKEN = 500.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = kernels launch + chain + ||math, hbm + l2|| [s].

    math is the FLOP at a rate that an SM has, and no more than half of the engine's peak; the traffic holds the
    intermediate results, unless one kernel keeps them on the chip. chain is the sequence's chunks, or its tokens, one
    after another: all sequences and heads run beside one another, so that it counts once.
    """
    op = cast(GatedDelta | LinearAttention, op)
    work = op.work()
    on_chip = op.op == "gated_delta" and conditions.library in ON_CHIP
    pace = ON_CHIP_PACE if on_chip else PACES[op.op]
    traffic = work.least_bytes if on_chip else work.bytes
    share = 1.0 if on_chip else minimum(op.value_dim / FULL_COLUMNS, 1.0) ** 0.5
    rate = share * pace.rate[op.backward] * machine.sm_count * machine.clock_hz
    math = work.flop / _least(rate, SHARE * machine.peak_flop_per_s)
    terms = beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)
    kernels = 1.0 if on_chip and not op.backward else op.kernels()
    chain = _chain_cycles(op, pace) / machine.clock_hz
    return Terms({**terms.adds, LAUNCH: c["launch"] * kernels, CHAIN: chain}, terms.alone)


def _least(rate: Number, share: float) -> Number:
    return minimum(rate, share) if share > 0 else rate


def _chain_cycles(op: GatedDelta | LinearAttention, pace: Pace) -> Number:
    """Return the cycles of what follows one another; a single token or chunk follows nothing."""
    if op.algorithm == "recurrent":
        return NEXT_TOKEN * maximum(op.seq - 1.0, 0.0)
    return pace.step[op.backward] * maximum(op.chunks - 1.0, 0.0)


FAMILIES = (Family("recurrence", CONSTANTS, formula, (*STREAM_TERMS, CHAIN), streams=True, by_dtype=False),)
