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
from perfmodel.prediction.latency.eager.passes import Kernels, Pass, eager_family, is_eager
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
#: all were in view). Few lanes for fp64 would take longer; no such GPU was measured
IN_DOUBLE = {"adamw": (1700.0, 3000.0), "sgd": (230.0, 0.0)}


def _step(op: Optimizer, size: float, c: Values, machine: Machine) -> list[Pass]:
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
        lists = {"adamw": 4, "sgd": 3 if op.momentum else 2}[op.kind]
        counted = [Pass(np.ceil(tensors / MOST_TENSORS[0]) * plain)] if op.kind == "adamw" else []
        return [*counted, one_pass(2.0 * lists - 1.0, MOST_TENSORS[lists - 1], *IN_DOUBLE[op.kind])]
    return [
        one_pass(reads + 1.0, MOST_TENSORS[lists - 1])
        for name, reads in op.passes
        for lists in (reads + WRITTEN.get(name, 0),)
    ]


def _applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether torch has the step: none of 8-bit moments, or of master weights beside others."""
    return is_eager(op, machine, library) and op.kind != "adam8bit" and not op.master


KERNELS: dict[str, Kernels] = {"optimizer": _step, "optimizer_adamw": _step}
FAMILY = eager_family("eager_step", (WAIT, ARGUMENTS), KERNELS, _applies)
