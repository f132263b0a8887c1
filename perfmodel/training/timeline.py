"""When each GPU of a pipeline runs each micro batch, and how much memory it holds then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UsageError
from perfmodel.training.orders import BACKWARD, FORWARD, SPLIT, WEIGHTS, Key, input_of, order_of
from perfmodel.training.plan import Schedule, TrainingPlan

#: most passes that are placed one by one
MOST_PASSES = 200_000


@dataclass(frozen=True)
class Pass:
    """One pass of a micro batch through one part of the model on one GPU of the pipeline.

    Attributes
    ----------
    gpu, part : place in the pipeline, and which of its virtual stages, from 0.
    micro_batch : from 0.
    backward : forward otherwise.
    frees : it is the last that needs the activations; a zero-bubble schedule computes the gradients of weights later
        than those of activations.
    start_s, end_s : from the start of the step [s].
    """

    gpu: int
    part: int
    micro_batch: int
    backward: bool
    start_s: float
    end_s: float
    frees: bool = False


def count_passes(plan: TrainingPlan, micro_batches: int) -> int:
    """Return the passes of a step over all GPUs of the pipeline."""
    return (3 if plan.schedule in SPLIT else 2) * plan.pp * plan.vp * micro_batches


def pipeline_timeline(
    plan: TrainingPlan,
    micro_batches: int,
    forward_s: Iterable[float],
    backward_s: Iterable[float],
    weights_s: Iterable[float] = (),
) -> tuple[Pass, ...]:
    """Return every pass of a step in the order of its schedule, each as soon as its GPU and its input are free.

    Sends and the exchanges of gradients are left out: the last pass ends after m (F + B) + (p - 1) (F + B) / v for
    equal stages, as the step's ``bubble`` has it. A zero-bubble schedule (Qi et al. 2023, ZB-H1) puts the gradients of
    weights off by as many micro batches as a GPU has before it, and waits (p - 1) (F + B - 2 W). DualPipe, whose GPUs
    have two stages that half of the micro batches pass each, waits (p / 2 - 1) (F + 2 B - 3 W).

    Parameters
    ----------
    plan : its pipeline.
    micro_batches : of a GPU in the step.
    forward_s, backward_s : of one micro batch through all parts of each GPU, under DualPipe through one of both [s].
    weights_s : of it, the gradients of weights, for schedules that put them off; by default half of backward [s].

    Raises
    ------
    UsageError
        When there are more than `MOST_PASSES` passes.
    """
    split, count = plan.schedule in SPLIT, count_passes(plan, micro_batches)
    if count > MOST_PASSES:
        raise UsageError(f"the time line has {count} passes; at most {MOST_PASSES} are placed.", place="time line")
    orders = [order_of(plan, micro_batches, gpu) for gpu in range(plan.pp)]
    times = _times(list(forward_s), list(backward_s), list(weights_s), split)
    ends: dict[tuple[int, Key], float] = {}
    free, position = [0.0] * plan.pp, [0] * plan.pp
    placed: list[Pass] = []
    while len(placed) < count:
        before = len(placed)
        for gpu, order in enumerate(orders):
            while position[gpu] < len(order):
                item = order[position[gpu]]
                sources = {input_of(plan, gpu, key) for key in item} - {None, *((gpu, key) for key in item)}
                if not sources <= ends.keys():
                    break
                free[gpu] = max(free[gpu], *(ends[source] for source in sources if source), 0.0)
                for part, micro_batch, kind in item:
                    start = free[gpu]
                    free[gpu] += times[gpu][kind] / plan.vp
                    frees = kind == (WEIGHTS if split else BACKWARD)
                    placed.append(Pass(gpu, part, micro_batch, kind != FORWARD, start, free[gpu], frees))
                ends |= dict.fromkeys(((gpu, key) for key in item), free[gpu])
                position[gpu] += 1
        if len(placed) == before:
            raise UsageError("the schedule waits for itself.", place="time line")
    return tuple(placed)


def _times(
    forward_s: list[float], backward_s: list[float], weights_s: list[float], split: bool
) -> list[tuple[float, float, float]]:
    """Return the times of a forward and a backward pass, and of the gradients of weights where these stand apart."""
    weights = [min(one, all_) for one, all_ in zip(weights_s, backward_s, strict=True)] if weights_s else None
    weights = weights or [0.5 * one for one in backward_s]
    later = weights if split else [0.0] * len(backward_s)
    return [(one, both - own, own) for one, both, own in zip(forward_s, backward_s, later, strict=True)]


def alive(passes: Iterable[Pass], gpu: int) -> list[tuple[float, int]]:
    """Return (time [s], parts of micro batches whose activations a GPU holds from then on), by time."""
    changes = sorted(
        (one.end_s if one.backward else one.start_s, -1 if one.backward else 1)
        for one in passes
        if one.gpu == gpu and (one.frees or not one.backward)
    )
    held, steps = 0, [(0.0, 0)]
    for time, change in changes:
        held += change
        steps.append((time, held))
    return steps


def held_over_time(
    parts: Mapping[str, float], gpu: int, passes: Sequence[Pass], end_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times and what a GPU holds from each on [s, B].

    That is its state, the activations of the micro batches that wait, and in backward passes what these need beside.

    Parameters
    ----------
    parts : part of its memory at the peak -> bytes.
    gpu : its place in the pipeline.
    passes : of all GPUs.
    end_s : end of the step [s].
    """
    fixed = sum(
        parts.get(name, 0.0)
        for name in ("weights", "gradients", "optimizer", "copies", "gathered", "communication", "pools")
    )
    steps = alive(passes, gpu)
    most = max(held for _, held in steps)
    unit = parts.get("activations", 0.0) / most if most else 0.0
    beside = max(parts.get("logits", 0.0), parts.get("temporary", 0.0))
    split = any(one.backward and not one.frees for one in passes)
    own = [one for one in passes if one.gpu == gpu and one.backward and one.frees != split]
    changes = [(time, unit * (held - before)) for (time, held), (_, before) in zip(steps[1:], steps, strict=False)]
    changes += [(one.start_s, beside) for one in own] + [(one.end_s, -beside) for one in own]
    at: dict[float, float] = {}  # what is freed and taken at the same time is one change
    for time, change in sorted(changes):
        at[time] = at.get(time, 0.0) + change
    times = np.array([0.0, *at, end_s])
    held = fixed + np.concatenate(([0.0], np.cumsum(list(at.values())), [0.0]))
    held[-1] = held[-2]
    return times, held


def pipeline_facts(
    plan: TrainingPlan,
    micro_batches: int,
    forward_s: Iterable[float],
    backward_s: Iterable[float],
    weights_s: Iterable[float] = (),
) -> dict[str, Any]:
    """Return what the passes of a step follow from, for JSON; `passes_of` reads it.

    Parameters
    ----------
    plan, micro_batches, forward_s, backward_s, weights_s : as of `pipeline_timeline`.
    """
    return {
        "schedule": str(plan.schedule),
        "pp": plan.pp,
        "vp": plan.vp,
        "micro_batches": micro_batches,
        "forward_s": list(forward_s),
        "backward_s": list(backward_s),
        "weights_s": list(weights_s),
    }


def passes_of(facts: Mapping[str, Any], most: int = MOST_PASSES) -> tuple[Pass, ...]:
    """Return the passes of a step from its facts; none where there are more than ``most``, or facts are missing.

    Parameters
    ----------
    facts : of `pipeline_facts`, perhaps from a file.
    """
    try:
        pp, vp, micro_batches = (int(facts[key]) for key in ("pp", "vp", "micro_batches"))
        forward_s, backward_s = ([float(time) for time in facts[key]] for key in ("forward_s", "backward_s"))
        weights_s = [float(time) for time in facts.get("weights_s", ())]
        schedule = Schedule(str(facts["schedule"]))
        if min(pp, vp, micro_batches) < 1 or not len(forward_s) == len(backward_s) == pp:
            return ()
        plan = TrainingPlan(batch=micro_batches, seq=1, pp=pp, vp=vp, schedule=schedule)
        if count_passes(plan, micro_batches) > most:
            return ()
        return pipeline_timeline(plan, micro_batches, forward_s, backward_s, weights_s)
    except (KeyError, TypeError, ValueError, UsageError):
        return ()
