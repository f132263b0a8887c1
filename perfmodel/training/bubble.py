"""How long the GPU that sets the pace waits for its pipeline to fill and to empty, by schedule."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.training.alike import gathers_once
from perfmodel.training.plan import Schedule, TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.training.timeline import pipeline_timeline
from perfmodel.training.update import StageGpu

#: micro batches for each stage after which each more takes as long as the slowest GPU: time lines of random stages that
#: differ by up to 40 % are then longer by 0.2 % at most. And passes at most, which long pipelines have earlier
_SETTLED, _MOST_PASSES = 4, 20_000


def bubble_s(setup: Setup, gpus: Sequence[StageGpu], slowest: StageGpu) -> float:
    """Return the time that the slowest GPU waits for the pipeline to fill and to empty [s].

    While the others run their first and their last micro batch it has none: the sum over the other GPUs of t / v, with
    t = F + B of a micro batch through all of its v stages; (p - 1) t / v of equal ones. Where 1F1B has its slowest GPU
    early, the micro batches under way hide some of it: it is the most that a step waits. A zero-bubble schedule fills
    it with the products of the weights' gradients (`_late_weights_s`). DualPipe waits
    (p / 2 - 1) (P + B - 3 W) of equal ones, where P is a forward and a backward pass as a pair (DeepSeek-AI 2024, table
    2): the sum over the other GPUs of one half of the pipeline, which hold the same stages as those of the other half.
    What all GPUs exchange once a step at the same time, weights that stay gathered, delays none of them more than the
    others.
    """
    plan = setup.plan
    if plan.pp == 1:
        return 0.0
    if plan.schedule == Schedule.DUALPIPE:

        def waiting(gpu: StageGpu) -> float:
            pair = max(gpu.time_s - gpu.hidden_s, gpu.waits.dispatch_s)
            return max(0.0, pair + float(gpu.backward.sum()) - 3.0 * gpu.weights_s)

        return max(0.0, 0.5 * sum(map(waiting, gpus)) - waiting(slowest))
    once = gathers_once(setup)

    def passing(gpu: StageGpu) -> float:
        # passes that fill and drain stand alone, and without the exchange the host may take longer than the GPU
        busy, host_s = gpu.alone_s - gpu.waits.at(1.0), gpu.waits.dispatch_s
        both = max(max(busy, host_s) - gpu.alone_sharding_s, host_s) if once else max(busy, host_s)
        return both / plan.vp

    if plan.schedule == Schedule.ZERO_BUBBLE:
        return _late_weights_s(setup, gpus, slowest, [passing(gpu) for gpu in gpus])
    return max(0.0, sum(map(passing, gpus)) - passing(slowest))


def _late_weights_s(setup: Setup, gpus: Sequence[StageGpu], slowest: StageGpu, both_s: Sequence[float]) -> float:
    """Return what a zero-bubble schedule waits (Qi et al. 2023, ZB-H1), by its time line [s].

    Of p equal stages with weights' gradients W <= F, B - W it is (p - 1) (F + B) - (p - 2 + n) W with n = min(m, p) of
    m micro batches: (p - 1) (F + B - 2 W) once they fill the pipeline, and (p - 1) (F + B - W) of a single one, whose
    weights' gradients fill nothing but the end of the others. Other stages have no such formula: passes are placed.

    Parameters
    ----------
    both_s : both passes of a micro batch on each GPU, as they fill and drain the pipeline [s].
    """
    number, stages = int(setup.micro_batches), len(gpus)
    placed = min(number, max(1, min(_SETTLED * stages, _MOST_PASSES // (3 * stages))))
    forward = [float(gpu.forward.sum()) for gpu in gpus]
    backward = [max(0.0, both - one) for both, one in zip(both_s, forward, strict=True)]
    plan = TrainingPlan(batch=placed, seq=1, pp=stages, schedule=Schedule.ZERO_BUBBLE)
    passes = pipeline_timeline(plan, placed, forward, backward, [gpu.weights_s for gpu in gpus])
    own = both_s[next(index for index, gpu in enumerate(gpus) if gpu is slowest)]
    end_s = max(one.end_s for one in passes) + (number - placed) * max(both_s)
    return max(0.0, end_s - number * own)
