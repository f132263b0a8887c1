"""Which plan runs, and has sizes nearest to those of one that a model cannot run on a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.training.checks import (
    check_dispatch,
    check_dualpipe,
    check_idle,
    check_pipelined_zero,
    check_sizes,
    equal_stages,
    uneven,
)
from perfmodel.training.framework import nearest_framework
from perfmodel.training.plan import TrainingPlan, divisors, nearest_divisor
from perfmodel.workloads.model_config import ModelConfig

#: sizes that the nearest plan may change
_SIZES = ("tp", "cp", "pp", "vp", "ep", "micro_batch", "batch")


def check_plan(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> None:
    """Raise for a plan that this model cannot run on this cluster; the message names the nearest one that it can.

    Raises
    ------
    UsageError
        As `check_sizes`, and for an option that nothing uses.
    """
    check_idle(plan)
    check_pipelined_zero(plan)
    check_dualpipe(config, plan)
    check_dispatch(config, plan)
    try:
        check_sizes(config, cluster, plan)
    except UsageError as problem:
        near = nearest_plan(config, cluster, plan)
        if near is None or (plan.stages and _runs(config, cluster, plan.changed(stages=()))):
            raise
        changed = [f"{name}={getattr(near, name)}" for name in _SIZES if getattr(near, name) != getattr(plan, name)]
        raise UsageError(problem.message, place=problem.place, remedy=f"Nearest: {' '.join(changed)}.") from None


def nearest_plan(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> TrainingPlan | None:
    """Return the plan that runs and whose sizes are nearest in the sum of |log2|; None if other sizes do not help."""

    def distance(sizes: dict[str, int]) -> float:
        return sum(abs(math.log2(size / getattr(plan, name))) for name, size in sizes.items())

    for sizes in sorted(_other_sizes(config, cluster.gpus, plan), key=distance):
        changed: dict[str, object] = {name: size for name, size in sizes.items() if size != getattr(plan, name)}
        if changed.keys() & {"pp", "vp"}:
            changed["stages"] = ()
        try:
            near = plan.changed(**changed)
        except UsageError:
            continue
        if _runs(config, cluster, near):
            return near
    return None


def _other_sizes(config: ModelConfig, gpus: int, plan: TrainingPlan) -> Iterator[dict[str, int]]:
    """Yield sizes whose ranks divide the GPUs, each with the nearest batch that divides by its data parallel ranks."""
    framework, _ = nearest_framework(plan.framework)

    def has(name: str, size: int) -> bool:
        return name in framework.parallel or size in (1, getattr(plan, name))

    experts = divisors(config.experts) if config.experts else [1]
    for tp in (size for size in divisors(gpus) if config.heads % size == 0 and has("tp", size)):
        for cp in (size for size in divisors(gpus // tp) if plan.seq % size == 0 and has("cp", size)):
            for pp in (size for size in divisors(gpus // tp // cp) if size <= config.layers and has("pp", size)):
                ranks = gpus // tp // cp // pp
                equal = [
                    vp
                    for vp in divisors(config.layers)
                    if pp > 1 and equal_stages(config.layers, pp * vp) and has("vp", vp)
                ]
                for vp in {1, *equal}:
                    for micro, batch in _other_batches(plan, ranks, pp if vp > 1 else 1):
                        sizes = {"tp": tp, "cp": cp, "pp": pp, "vp": vp, "micro_batch": micro, "batch": batch}
                        yield from ({**sizes, "ep": ep} for ep in experts)


def _other_batches(plan: TrainingPlan, ranks: int, together: int) -> set[tuple[int, int]]:
    """Return micro batches, each with the nearest batch that some of them on each rank make: the plan's or near it."""
    share = max(1, plan.batch // ranks)
    micros = {min(plan.micro_batch, share), nearest_divisor(share, plan.micro_batch)}
    units = {micro: ranks * micro * together for micro in micros}
    pairs = {(micro, max(1, round(plan.batch / unit)) * unit) for micro, unit in units.items()}
    if uneven(plan) and together == 1:
        pairs.add((min(plan.micro_batch, share), max(1, round(plan.batch / ranks)) * ranks))
    return pairs


def _runs(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> bool:
    """Return whether the sizes of a plan are right."""
    try:
        check_sizes(config, cluster, plan)
    except UsageError:
        return False
    return True
