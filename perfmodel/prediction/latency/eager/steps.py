"""Steps of optimizers as torch.optim runs them, by kernels that each take a list of tensors.

A kernel has a block for each chunk of a tensor, which walks through it step by step (MultiTensorApply.cuh). A tensor of
few chunks keeps few SMs busy: 150,661 weights are 3 blocks, and each of the 8 passes of AdamW takes 17 us.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.work import Number
from perfmodel.operators.optimizer import Optimizer
from perfmodel.prediction.latency.eager.images import WAIT
from perfmodel.prediction.latency.eager.passes import Kernels, Pass, Since, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine

#: elements of a block, blocks of a kernel, elements of a block's step: 512 threads of 4 (MultiTensorApply.cuh)
CHUNK, BLOCKS, STEP = 65536.0, 320.0, 2048.0
#: tensors of a kernel with one, two, three and four lists of them (depth_to_max_tensors)
MOST_TENSORS = (110.0, 64.0, 48.0, 36.0)
#: lists of a pass beside those that it reads: a root goes to new memory
WRITTEN = {"sqrt": 1}
#: start of a kernel whose arguments are the addresses of all tensors (4 kB), beyond that of a plain one [s]: what three
#: steps of 1, 16 and 128 tensors leave on an H200 (own record, torch 2.11.0, 2026-11-27; all were in view)
ARGUMENTS = Constant("arguments", "s", 0.7e-6, 0.05e-6, 5e-6, 0.5, "start of a kernel by the addresses of many tensors")
#: cycles that an SM spends on a step of a fused kernel beyond waiting for its loads, and before the first. Its rates
#: and decays are doubles (fused_adam_utils.cuh, FusedSgdKernel.cu): each weight is converted to fp64 and back, and each
#: block of AdamW takes both decays to the power of the count, which is assumed to be what takes them. Three steps of
#: 123,726 to 1,948,474 weights on an H200 take 28, 49 and 51 us, one of SGD 21 (own record, torch 2.11.0, 2026-11-27;
#: all were in view)
IN_DOUBLE = {"adamw": (1700.0, 3000.0), "sgd": (230.0, 0.0)}
#: instructions in fp64 of an element, conversions from and to it among them, before release 2.11, where an SM has fewer
#: lanes for it than `MANY_LANES`: those that the statements of both files ask for (github.com/pytorch/pytorch/issues/
#: 153649). AdamW's decays are in fp32 since (pull/173224); what else is in fp64 then, on such machines, nobody told. Of
#: four fused steps of SGD on an RTX 3070 with two lanes (pull/129350, in view) those with momentum take 2.3 and 2.5
#: times as long, without 1.8 and 2.1 (4.2, 3.6, 2.2 and 2.4 without this), and its foreach steps 1.6 to 1.8 times,
#: which no fp64 explains. On an A40 a fused AdamW was slower than eight passes (issues/121857)
INSTRUCTIONS = {("adamw", False): 16.0, ("adamw", True): 16.0, ("sgd", False): 4.0, ("sgd", True): 9.0}
MANY_LANES, IN_FLOAT = 16.0, (2, 11)


def _step(op: Optimizer, size: float, c: Values, machine: Machine, lanes: float = np.inf) -> list[Pass]:
    """Return the passes over the weights; a fused AdamW also counts its steps on the device, in a kernel before."""
    tensors = np.asarray(1.0 * op.num_tensors)
    each = op.parameters / tensors
    chunks = tensors * np.ceil(each / CHUNK)
    steps = np.ceil(np.minimum(each, CHUNK) / STEP)
    plain = 1.0 + c["arguments"] / c["launch"]

    def one_pass(moved: float, at_once: Number, in_double: float = 0.0, before: float = 0.0) -> Pass:
        """Return a pass that reads and writes the weights ``moved`` times, ``at_once`` tensors in a kernel.

        A block spends cycles on each of its steps, and on what comes before, beside waiting for loads.
        """
        kernels = np.ceil(np.maximum(tensors / at_once, chunks / BLOCKS))
        if op.algorithm == "loop":
            return Pass(tensors, moved * op.parameters * size)
        waited = kernels * (before + steps * (c["wait"] + in_double)) / machine.clock_hz
        cycles = chunks * (before + steps * in_double)
        return Pass(kernels * plain, moved * op.parameters * size, cycles=cycles, waited_s=waited)

    if op.algorithm == "fused":
        in_double, before = IN_DOUBLE[op.kind]
        in_double = max(in_double, STEP * INSTRUCTIONS[op.kind, op.momentum] / lanes)
        lists = {"adamw": 4, "sgd": 3 if op.momentum else 2}[op.kind]
        counted = [Pass(np.ceil(tensors / MOST_TENSORS[0]) * plain)] if op.kind == "adamw" else []
        return [*counted, one_pass(2.0 * lists - 1.0, MOST_TENSORS[lists - 1], in_double, before)]
    return [
        one_pass(reads + 1.0, MOST_TENSORS[lists - 1])
        for name, reads in op.passes
        for lists in (reads + WRITTEN.get(name, 0),)
    ]


def _step_before(op: Optimizer, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the passes as a release before `IN_FLOAT` runs them, where few lanes for fp64 take their time."""
    return _step(op, size, c, machine, _lanes(machine))


def _lanes(machine: Machine) -> float:
    """Return the lanes of an SM for fp64, infinite where they are many; half of the peak are instructions."""
    peak = machine.hardware.find_peak("fp64", "vector") if machine.hardware else None
    lanes = peak.flop_per_s / 2.0 / (machine.sm_count * machine.clock_hz) if peak else np.inf
    return lanes if lanes < MANY_LANES else np.inf


def _applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether torch has the step: none of 8-bit moments, or of master weights beside others."""
    return is_eager(op, machine, library) and op.kind != "adam8bit" and not op.master


KERNELS: dict[str, Kernels] = {"optimizer": _step_before, "optimizer_adamw": _step_before}
SINCE: dict[str, tuple[Since, ...]] = dict.fromkeys(KERNELS, ((IN_FLOAT, _step),))
FAMILY = eager_family("eager_step", (WAIT, ARGUMENTS), KERNELS, _applies, replaced=SINCE)
