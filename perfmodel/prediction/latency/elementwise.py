"""Elementwise kernels: the time that the traffic takes, and the arithmetic where a function is expensive.

Also what every kernel that streams shares: bytes that come from device memory or from L2, beside arithmetic.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import KINDS, Elementwise
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Terms, Values, overlapped
from perfmodel.prediction.latency.machine import Machine

ETA = Constant("eta", "", 0.84, 0.3, 1.0, 0.1, "share of the datasheet bandwidth that a long stream reaches")
LAUNCH = Constant("launch", "s", 1.8e-6, 0.3e-6, 20e-6, 0.2, "start and drain of one kernel")
FEED = Constant("feed", "", 0.3, 0.03, 1.0, 0.4, "share of 64 B a clock and SM at which data in L2 stream")
FILL = Constant("fill", "", 0.9, 0.2, 1.0, 0.25, "share of L2 up to which data that are used again all stay in it")
WRITE = Constant("write", "", 1.0, 0.5, 2.0, 0.12, "cost of a written byte, in read bytes")
POW = Constant("pow", "", 60.0, 5.0, 2000.0, 0.6, "cycles of one fp32 lane for one pow")
WRAPPED = Constant(
    "wrapped", "", 1.17, 1.0, 2.0, 0.05, "dispatch through a layer or with a scalar, over a plain call's"
)
CONSTANTS = (ETA, LAUNCH, FEED, FILL, WRITE, POW, WRAPPED)

#: share of L2 from which on nothing stays: a cyclic scan of more than the capacity evicts what it needs next
END = 1.1
#: exponent of the smooth maximum of memory and arithmetic; 3 to 20 fit the measured rows about as well
POWER = 6.0
#: generations whose fp32 peak counts packed instructions, of two results each; pow has none (MI210 and MI100 take 197
#: and 179 cycles so; 394 and 179 with the packed rate)
PACKED = {"cdna-2": 2.0, "cdna-3": 2.0}
#: kinds that frameworks call through a layer or a function of their own, in front of the operator
LAYERS = ("relu", "gelu", "silu")


def held_share(footprint_bytes: Number, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the share of a kernel's data that still lies in L2 from the call before: 0 unless the conditions is warm.

    All of it up to ``fill`` of the capacity, none of it from `END` on, linear between. Where L2 has two halves that
    copy each other's lines (A100, H100), the copies take room: there ``fill`` is about a half.
    """
    if conditions.cache != "warm" or not machine.l2_bytes:
        return 0.0 * footprint_bytes
    held: Number = np.clip((END - footprint_bytes / machine.l2_bytes) / (END - c["fill"]), 0.0, 1.0)
    return held


def stream_times(
    traffic_bytes: Number, footprint_bytes: Number, machine: Machine, c: Values, conditions: Conditions
) -> tuple[Number, Number]:
    """Return the times of streamed bytes [s]: of those from device memory, and of those from L2.

    dram = bytes (1 - h) / (eta W), l2 = bytes h / (feed 64 B SM f), h as `held_share` has it. L2 is not slower than
    device memory.
    """
    device = c["eta"] * machine.bandwidth_bytes_per_s
    cache = max(device, c["feed"] * 64.0 * machine.sm_count * machine.clock_hz)
    held = held_share(footprint_bytes, machine, c, conditions)
    return traffic_bytes * (1.0 - held) / device, traffic_bytes * held / cache


def beside_math(math_s: Number, dram_s: Number, l2_s: Number, c: Values) -> Terms:
    """Return t = launch + ||math, dram + l2||: arithmetic overlaps with the stream, the parts of the stream do not."""
    memory = dram_s + l2_s
    made = overlapped(POWER, math=math_s, memory=memory)
    shown = made.adds["memory"] > 0.0
    adds = {
        "math": made.adds["math"],
        "dram": np.where(shown, dram_s, 0.0),
        "l2": np.where(shown, l2_s, 0.0),
        "contention": made.adds["contention"],
        "launch": c["launch"],
    }
    return Terms(adds, {"math": math_s, "dram": dram_s, "l2": l2_s})


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||math, dram + l2|| [s].

    Traffic is bytes read + ``write`` times bytes written. An operation takes one cycle of an fp32 lane, which no
    machine shows, pow takes ``pow``: on the rows of NeuSight (@ 6945927d9afc) 57 (A100) to 80 (P100) on NVIDIA.
    """
    op = cast(Elementwise, op)
    work = op.work()
    # A fused multiply-add is 2 FLOP in one cycle of a lane.
    lanes = machine.vector_flop_per_s / 2.0 / PACKED.get(machine.generation, 1.0)
    math = op.flop() * (c["pow"] if op.kind == "pow" else 1.0) / lanes
    traffic = work.bytes_read + c["write"] * work.bytes_written
    return beside_math(math, *stream_times(traffic, work.working_set_bytes, machine, c, conditions), c)


def calls(op: Operator, c: Values) -> Number:
    """Return the dispatch over a plain call's: ``wrapped`` through a layer, or with a scalar made a tensor; else 1."""
    op = cast(Elementwise, op)
    scalar = np.asarray(op.num_inputs) < KINDS[op.kind].inputs
    return np.where(scalar | (op.kind in LAYERS), c["wrapped"], 1.0)


FAMILY = Family("elementwise", CONSTANTS, terms, calls=calls)
