"""Elementwise kernels: the time of their traffic, beside arithmetic where a function is expensive."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, anywhere, maximum, minimum
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import KINDS, Elementwise
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import STREAMS_ON_RADEON, Doubt, in_another_pytorch
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ADDRESS_CYCLES,
    CONVERT_CYCLES,
    ETA,
    FEED,
    FILL,
    FRAMEWORKS,
    FUSED,
    ISSUE,
    LEFT,
    START,
    STREAM_TERMS,
    beside_math,
    fitting_share,
    issue_s,
    left_share,
    runs_layers,
    stream_times,
    surviving_share,
)
from perfmodel.prediction.latency.terms import Terms

SERVES = {"elementwise": ("elementwise",)}

CONSTANTS = (
    # What "warm" means is the library's: its own buffers again, or the output of the kernel before. The [sustained]
    # bandwidths of the catalog are at most 93 % of the datasheet's; where a fit asks for more, its rows were in L2.
    *(replace(constant, library=True) for constant in (replace(ETA, high=0.95), START, FEED, replace(FILL, high=0.95))),
    *(ISSUE, LEFT),
    Constant("write", "", 1.0, 0.5, 2.0, 0.05, "cost of a written byte, in read bytes"),
    Constant("pow", "", 60.0, 5.0, 2000.0, 0.6, "cycles of one fp32 lane for one pow"),
    Constant("wrapped", "", 1.17, 1.0, 2.0, 0.05, "dispatch through a layer or with a scalar, over a plain call's"),
)
#: kinds for which serving libraries have kernels of their own, limited by the instructions that they issue
SERVING = ("silu_mul",)
#: elements that some SMs still work on when the others are done: a block has a row, and an SM holds two. The rows of
#: gated layers that 1 to 8 GPUs share have 1,376 to 28,672 elements; set on A100 and H100 together, where SwiGLU of
#: 15 us and more is 8.4 % off with it and 8.9 % without (Vidur @ 7d47513363ec)
ROW = 10_000.0
#: issue slots that the error function of gelu takes an element with its conversions, and lanes of fp32: nvcc 13 makes
#: 27.5 instructions of an element in a vector of bf16 (sm_80, sm_90), of which 13 multiply or add in fp32, and 12.5 run
#: on the lanes of integers beside them. With one instruction for 32 threads from each scheduler in a clock, an H100
#: takes as long as 40 would (bf16: 8 % more than a copy), so that 0.69 of the slots are filled, and of the lanes
ERF_ISSUED, ERF_LANES = 27.5 / 0.69, 13.0 / 0.69
#: instructions in fp64 of one element: those that sm_75, 80, 89 and 90 execute for normal numbers, by the code that
#: nvcc 13.0 makes of CUDA's math library (DFMA, DMUL, DADD, DSETP, and conversions from and to fp64, which share their
#: lanes); slow paths of other numbers aside. A warp takes both branches of tanh, below and above 0.55. Integers and the
#: start of a quotient (MUFU.RCP64H) run on other units. Other kinds take one for each FLOP. OCML, AMD's library, is
#: taken to need as many
IN_DOUBLE = MappingProxyType({
    "div": 8.0, "sqrt": 8.0, "rsqrt": 5.0, "exp": 15.0, "log": 28.0, "tanh": 37.0, "sigmoid": 22.0, "silu": 25.0,
    "silu_mul": 26.0, "gelu": 49.0, "chain4": 76.0, "pow": 85.0,
})  # fmt: skip
#: the same of gradients, by those of what they compute: erf (45) and exp, a quotient, two powers and a logarithm
GRADIENTS_IN_DOUBLE = MappingProxyType({
    "div": 18.0, "sqrt": 9.0, "log": 8.0, "silu": 29.0, "silu_mul": 32.0, "gelu": 67.0, "pow": 204.0,
})  # fmt: skip
#: of fp64 where these instructions take half of the time of the traffic and more, which no row tells of: how far they
#: fill the lanes, and what other libraries need, is assumed
DOUBLE_SHARE, DOUBLE_DEVIATION = 0.5, (0.1, 0.3, 0.3)
#: of kernels that compute the address of each element, at launch, below and above 0.1 ms: the 15 of `ADDRESS_CYCLES`
#: are 11 % off in the mean, which is 0.8 deviations of a normal distribution
ADDRESS_DEVIATION = (0.1, 0.14, 0.14)
#: of kernels that only write, which no row tells of: assumed, with an open trace of a V100 in view, whose long fills
#: take 1.2 times what is predicted (pytorch/kineto @ 624ae15193b7)
WRITE_DEVIATION = (0.1, 0.2, 0.2)
#: dtypes to which PyTorch converts fp32 by vectors
NARROWED = ("fp16", "bf16")
#: kinds that frameworks call through a layer or a function of their own, in front of the operator
LAYERS = ("relu", "gelu", "silu")


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, hbm + l2|| [s].

    Traffic is bytes read + ``write`` times bytes written. In a layer of a serving library `left_share` of it stays in
    L2, from the kernel before and for the one after: additions of 30 to 500 MB save 8 to 15 MB on A100 and H100, SwiGLU
    of 20 to 150 MB on an RTX 4090 as much. Elsewhere the same buffers are used again. A kernel of a serving library
    takes ``issue`` SM cycles an element, fewer where its data lie in L2 (`issue_s`), and the last `ROW` of them alone.

    Where an operand has gaps or is broadcast, PyTorch computes the address of each element: `ADDRESS_CYCLES` beside the
    traffic, whatever the dtype. Compositions of rope in bf16 on an A100 come out 8 % off, at half of the bandwidth, as
    was said before, 9 %; a broadcast product in fp32 on an H100 1 %, at half of the bandwidth 60 % (Liger-Kernel @
    ead96b618e5c; the trace of Qwen1.5).

    An operation takes one cycle of an fp32 lane, which limits no machine; pow takes ``pow`` cycles: 57 (A100) to 80
    (P100) on NVIDIA in the rows of NeuSight (@ 6945927d9afc). A lane has no packed pow: where the fp32 peak counts
    packed instructions, it counts ``machine.packed`` lanes for one (MI210 and MI100 take 197 and 179 cycles so; 394 and
    179 at the packed rate). No special function unit computes fp64: its functions are `IN_DOUBLE` instructions at the
    rate of fp64, half of its peak, which is 1/32 or 1/64 of that of fp32 on many machines.
    """
    op = cast(Elementwise, op)
    work = op.work()
    serving = op.kind in SERVING and conditions.library not in FUSED
    layered = serving or runs_layers(conditions.library)
    traffic = work.bytes_read + c["write"] * work.bytes_written
    held = left_share(traffic, machine, c, conditions) if layered else None
    if op.fresh:
        usual = surviving_share(work.working_set_bytes, machine, c, conditions) if held is None else held
        held = maximum(usual, _fresh_share(op, traffic, machine))
    math = _math_s(op, machine, c, conditions)
    if op.strided:
        math = maximum(math, ADDRESS_CYCLES * op.numel / (machine.sm_count * machine.clock_hz))
    if serving:
        last = issue_s(ROW * machine.sm_count, machine, c)
        math = maximum(math, issue_s(op.numel, machine, c, 0.0 if held is None else held) + last)
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions, held), c)


def _fresh_share(op: Elementwise, traffic: Number, machine: Machine) -> Number:
    """Return the share of the traffic that is an operand which the kernel before wrote, and L2 still has.

    It has it as long as that kernel's input and output fit together: SwiGLU in two calls saves 0.8 to 1.2 of 5 tensors
    up to 45 MB of those two on an H100, with 50 MB of L2, and nothing from 67 MB on (torch 2.11.0, 2026-11-23). A call
    that reads nothing has no operand.
    """
    operand = minimum(op.numel * dtype_bytes(op.dtype), op.work().bytes_read)
    return operand / traffic * fitting_share(2.0 * operand, machine.l2_bytes) if machine.l2_bytes else 0.0 * operand


def _math_s(op: Elementwise, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the time of the arithmetic, or of the conversions of PyTorch's casts [s]."""
    if op.dtype == "fp64":
        return _double_s(op, machine)
    # A fused multiply-add is 2 FLOP in one cycle of a lane.
    lanes = machine.vector_flop_per_s / 2.0 / machine.packed
    if op.kind == "gelu" and not op.backward:
        issued = 32.0 * machine.schedulers_per_sm * machine.sm_count * machine.clock_hz
        return op.numel * max(ERF_ISSUED / max(issued, lanes), ERF_LANES / lanes)
    narrowed = op.dtype == "fp32" and op.out_dtype in NARROWED
    if op.kind == "cast" and conditions.library in FRAMEWORKS and op.out_dtype != op.dtype and not narrowed:
        return CONVERT_CYCLES * op.numel / (machine.sm_count * machine.clock_hz)
    return op.flop() * (c["pow"] if op.kind == "pow" else 1.0) / lanes


def _double_s(op: Elementwise, machine: Machine) -> Number:
    """Return the time of the instructions in fp64 [s]; half of the peak are instructions."""
    counts = GRADIENTS_IN_DOUBLE if op.backward else IN_DOUBLE
    instructions = op.numel * counts[op.kind] if op.kind in counts else op.flop()
    return 2.0 * instructions / machine.peak_flop_per_s if anywhere(instructions > 0.0) else 0.0 * instructions


def call_cost(op: Operator, c: Values) -> Number:
    """Return the dispatch over a plain call's: ``wrapped`` through a layer, or with a scalar made a tensor; else 1."""
    op = cast(Elementwise, op)
    scalar = np.asarray(op.num_inputs) < KINDS[op.kind].inputs
    return np.where(scalar | (op.kind in LAYERS), c["wrapped"], 1.0)


def _by_address(op: Elementwise, machine: Machine, conditions: Conditions) -> Any:
    """Whether a kernel computes the address of each element: few kernels tell how long that takes."""
    return op.strided


def _only_writing(op: Elementwise, machine: Machine, conditions: Conditions) -> Any:
    """Whether a kernel reads nothing, as no row of a table does: ``write`` is told by kernels that also read."""
    return op.kind == "fill"


def _in_double(op: Elementwise, machine: Machine, conditions: Conditions) -> Any:
    """Whether the instructions of fp64 set the time, or may: ``op.flop`` counts a function as one."""
    if op.dtype != "fp64":
        return False
    return _double_s(op, machine) > DOUBLE_SHARE * op.work().bytes / machine.bandwidth_bytes_per_s


#: what libraries differ by in elements of four bytes and more, which fill the loads of a warp one by one: the middle
#: 80 % of 87 published calls of 21 sources take 0.96 to 1.15 times as long as predicted above 0.1 ms, of eight above
#: 10 us 0.99 to 1.2 (`examples/published`, in view). Shorter ones wait for their launch, as all do
OTHERS_WIDE = (0.3, 0.15, 0.10)
#: what PyTorch's kernels differ by in other installations and releases: nine published calls above 0.1 ms of four
#: sources lie within 2 %, where tables of one laboratory say 1.5, and seven shorter ones within 8 % (in view)
ELSEWHERE = Doubt(ErrorSource.INSTALLATION, in_another_pytorch, (0.05, 0.05, 0.02), part_of=ErrorSource.LIBRARY)
FAMILY = Family(
    "elementwise", CONSTANTS, formula, STREAM_TERMS, streams=True, call_cost=call_cost,
    doubts=(
        Doubt(ErrorSource.EXTRAPOLATION, _by_address, ADDRESS_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _only_writing, WRITE_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _in_double, DOUBLE_DEVIATION),
        ELSEWHERE,
        STREAMS_ON_RADEON,
    ),
    wide_library=OTHERS_WIDE,
)  # fmt: skip
FAMILIES = (FAMILY,)
