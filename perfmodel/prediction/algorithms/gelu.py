"""GELU by the error function, by tanh, and by a table.

All read and write once. Their arithmetic shows only where an element takes more cycles of a lane than its bytes take:
4 B 128 SM f / (eta W) in 16 bits, 40 on H100, 44 on A100, 244 on L40S.
"""

from __future__ import annotations

from dataclasses import replace

from perfmodel.core.hardware import Hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, predicted
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.usual_figures import completed

#: cycles of one lane for an element: estimates of the instructions of erff and of tanhf; a table is one load from
#: shared memory, where 32 of 128 lanes load in a clock. Not measured
CYCLES = {"erf": 25.0, "tanh": 12.0, "table": 4.0}
#: lanes of fp32 of an SM
LANES = 128.0
#: time of one fp32 element on one core of a CPU [s], beside the stream of its bytes, of torch's kernels with AVX-512:
#: 0.46 ms (erf) and 2.55 ms (tanh) for 2^20 elements in the caches of a Xeon of 2.1 GHz; `bench --algorithms` has both
CPU_S = {"erf": 0.44e-9, "tanh": 2.4e-9}


def costs(op: Elementwise, hardware: Hardware) -> list[Cost]:
    """Return what each way to compute GELU takes."""
    whole = predicted("erf", op, hardware)
    rates, work = Rates.for_op(op, hardware), op.work()
    moved, elements = float(work.bytes), float(op.numel)
    if hardware.kind == "cpu":
        known = [counted(name, rates.start_s + max(moved / rates.bytes_per_s, elements * time_s), flop=whole.flop,
                         moved_bytes=moved, kernels=1.0, basis="torch's kernels on one CPU")
                 for name, time_s in CPU_S.items()]  # fmt: skip
        return [*known, Cost("table", why_not="no library has it on a CPU")]
    machine = Machine.of(hardware, resolve_peak(op, completed(hardware)))
    lanes = LANES * machine.sm_count * machine.clock_hz
    return [_cost(name, cycles * elements / lanes, whole) for name, cycles in CYCLES.items()]


def _cost(name: str, arithmetic_s: float, stream: Cost) -> Cost:
    """Return the predicted time of the stream, or that of the arithmetic where it is longer."""
    times = [max(arithmetic_s, time) for time in (stream.time_s, stream.time_low_s, stream.time_high_s)]
    return replace(stream, algorithm=name, time_s=times[0], time_low_s=times[1], time_high_s=times[2])


PROBLEM = Problem(
    "gelu",
    op="elementwise",
    size="numel",
    sizes=(1024.0, 2.0**30),
    costs=costs,
    defaults={"kind": "gelu", "numel": 2**24, "dtype": "bf16"},
    states=lambda op: op.kind == "gelu",
)
