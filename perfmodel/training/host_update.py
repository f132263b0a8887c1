"""How long the CPUs of a host take to update a GPU's parameters: passes over memory, threads, and what hides them.

A fused update (DeepSpeed's CPUAdam, ``fused=True`` of torch.optim) reads and writes the state of a parameter once. What
torch.optim runs on CPU tensors unless it is told is a loop over tensors (``_default_to_fused_or_foreach`` takes tensors
on CPUs for neither), one operation after the other: AdamW scales the weight (8 B in fp32), moves the first moment
towards the gradient (12), scales the second (8) and adds to it (12), takes its root (8), divides it (8), adds to it (8)
and adds the quotient to the weight (16), 80 B in place of 28, and two of them into new memory, whose pages the kernel
hands out first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from perfmodel.training.host_rates import host_rates
from perfmodel.training.setup import Setup
from perfmodel.training.state_bytes import (
    host_gradient_bytes,
    host_pass_bytes,
    host_update_bytes,
    updated_gradient_bytes,
    weight_bytes,
)

#: optimizer -> time of its loop over that of its fused update. Adam, the geometric mean of four: 5.1 on 56 cores of a
#: Xeon of 2023 (pytorch/pytorch pull request 123074, 10 tensors of 10^6), 5 to 7 (DeepSpeed's CPUAdam over torch.optim,
#: deepspeed/ops/adam/cpu_adam.py), 5.1 in a step of Qwen3-4B (22.3 s less 1.6 of passes over 4.1,
#: PrimeIntellect-ai/prime-rl pull request 3210), 9.2 on an EPYC of 2024 (ours, below). SGD with momentum: 32 B counted
#: over 20, without new memory
#:
#: Ours: AdamW of 8 tensors of 17 x 10^6, one thread of a virtual machine with two cores of an EPYC of 2024 (Zen 5),
#: PyTorch 2.13.0 for CPUs, medians of 5: in fp32 fused 0.51 ns a parameter, loop 4.66 (as by default), foreach 6.80; in
#: bf16, which nobody else measured, 1.59, 7.45 and 5.45
LOOP = {"adam": 6.1, "adam-bf16": 4.7, "sgd": 1.6}
#: what one thread reads and writes in a fused update in fp32 [B/s], and the deviation of its ln. Geometric mean of
#: three: 55 x 10^9 of ours (0.51 ns a parameter, 28 B), 28 for all of Qwen3-4B's update beside an RTX PRO
#: 6000, 4.02 x 10^9 in 4.1 s (prime-rl pull requests 3210, and 3248: it was single-threaded), 20 for half of
#: Qwen3-0.6B's beside an H100, 0.30 x 10^9 of 30 B in 0.44 s (NVIDIA-NeMo/RL pull request 3628; Ray gives a worker one)
THREAD, THREAD_DEVIATION = 31e9, 0.5
#: the same where weights, gradients and moments are in 16 bits, over that in fp32: 14 B took 2.3 to 3.1 times as long
#: as 28, since they are converted (ours, as above)
THREAD_HALF = 0.18


class StepEnd(NamedTuple):
    """What the update on the host takes after the last micro batch, and what it runs beside.

    Attributes
    ----------
    leave_s, return_s : copies of gradients, and of new weights [s].
    update_s : the CPU's work [s].
    overlap : ``cpu_overlap`` of a plan.
    beside_s : passes of the next step, which hide all of it with "passes" [s].
    """

    leave_s: float = 0.0
    return_s: float = 0.0
    update_s: float = 0.0
    overlap: str = "none"
    beside_s: float = 0.0

    def exposed_s(self, copying: float = 1.0, updating: float = 1.0) -> tuple[float, float]:
        """Return what copies and the update add to a step, where each takes some times as long [s].

        none : copies, update, copies. copies : parameter by parameter, so that the longest of the three is left, since
        both directions of a link work at once. passes : what the passes of the next step do not hide of all three.
        """
        leave, back, update = copying * self.leave_s, copying * self.return_s, updating * self.update_s
        if self.overlap == "copies":
            return max(0.0, max(leave, back) - update), update
        if self.overlap == "passes":
            left = max(0.0, leave + back + update - self.beside_s)
            return max(0.0, left - update), min(left, update)
        return leave + back, update

    @property
    def time_s(self) -> float:
        """What it adds to a step [s]."""
        return sum(self.exposed_s())


def loop_factor(setup: Setup) -> float:
    """Return the time of the update over that of a fused one."""
    way = setup.plan.cpu_optimizer or setup.framework.host.update
    return LOOP[setup.plan.optimizer] if way == "for-loop" else 1.0


def threads(setup: Setup) -> int:
    """Return the threads of a rank that update its parameters; 0 for its share of all cores.

    Launchers set one where a host has several ranks; a rank that is alone on its host has all of its cores.
    """
    if setup.plan.cpu_threads:
        return setup.plan.cpu_threads
    stated = not math.isnan(setup.cluster.host_bytes_per_s)  # what the CPUs reach, with however many threads
    alone = setup.cluster.sharing_host == 1
    return 0 if stated or alone or setup.framework.host.threads == "all" else 1


def update_rate(setup: Setup) -> tuple[float, float]:
    """Return the rate at which a rank's CPUs read and write memory [B/s], and the deviation of ln of its times.

    min(share of what the host reaches, threads x one's)
    """
    rates, number = host_rates(setup.cluster), threads(setup)
    narrow = setup.plan.optimizer == "adam-bf16"
    limit = number * THREAD * (THREAD_HALF if narrow else 1.0) if number else math.inf
    if limit < rates.update:
        return limit, THREAD_DEVIATION
    return rates.update, rates.update_deviation


def cpu_overlap(setup: Setup) -> str:
    """Return what runs beside the update: as the plan or else the framework has it."""
    return setup.plan.cpu_overlap or setup.framework.host.overlaps[0]


def gradients_leave(setup: Setup) -> bool:
    """Return whether gradients go to the host in every micro batch, as they are reduced: where they are shared out."""
    return setup.plan.on_host("optimizer") and setup.plan.zero >= 2


def gradient_trips(setup: Setup) -> tuple[float, float]:
    """Return what leaves of a parameter's gradient, and comes back, in a micro batch, in the mean of a step's [B].

    Where gradients add up on the host by way of the GPU (``async_accumulate_grad_in_cpu_via_gpu`` in DeepSpeed's
    stage_1_and_2.py, ``partition_grads`` in its stage3.py), they leave in 16 bits, and in fp32 in the last micro batch.
    Stages 1 and 2 leave 16 bits out there, and the way back in the first; stage 3 does neither.
    """
    if not gradients_leave(setup):
        return 0.0, 0.0
    each, last, count = updated_gradient_bytes(setup), host_gradient_bytes(setup), setup.micro_batches
    if not setup.framework.host.accumulates:
        return each, 0.0
    if setup.sharded:
        return each + last / count, each
    return each + (last - each) / count, each * (1.0 - 1.0 / count)


def host_buffer_bytes(setup: Setup) -> float:
    """Return what buffers on the host hold of a parameter's gradient [B].

    They hold what the CPU takes, twice where the update runs beside passes that give the next ones, and what adds up
    there over micro batches.
    """
    taken = host_gradient_bytes(setup) * (2.0 if cpu_overlap(setup) == "passes" else 1.0)
    adds = setup.framework.host.accumulates and gradient_trips(setup)[1] > 0
    return taken + updated_gradient_bytes(setup) * adds


def step_end(setup: Setup, updated: float, passes_s: float) -> StepEnd:
    """Return what the update of some parameters of a GPU on its host takes after its last micro batch.

    Parameters
    ----------
    updated : parameters that the GPU updates, on the host and beside it.
    passes_s : what all passes of a step take on the GPU [s].
    """
    plan = setup.plan
    rates, moved = host_rates(setup.cluster), plan.offload_fraction * updated
    back = rates.from_pageable if setup.framework.host.casts_weights else rates.from_host
    bytes_ = host_update_bytes(setup) * loop_factor(setup) + host_pass_bytes(setup)
    return StepEnd(
        leave_s=0.0 if gradients_leave(setup) else moved * host_gradient_bytes(setup) / rates.to_host,
        return_s=0.0 if plan.on_host("parameters") else moved * weight_bytes(setup) / back,
        update_s=moved * bytes_ / update_rate(setup)[0],
        overlap=cpu_overlap(setup),
        beside_s=passes_s,
    )
