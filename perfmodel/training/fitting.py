"""What makes a plan fit that does not: single changes, the one that costs least time first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import PerfModelError
from perfmodel.training.checks import check_sizes
from perfmodel.training.choices import offloaded, parse_offload
from perfmodel.training.framework import nearest_framework
from perfmodel.training.memory import cannot_fit, training_memory
from perfmodel.training.plan import Recompute, TrainingPlan, divisors
from perfmodel.training.search import search
from perfmodel.training.space import AXES, default_space
from perfmodel.training.step import train
from perfmodel.workloads.model_config import ModelConfig

#: sequences of a micro batch in whole plans
_FEW = (1, 2, 4)
_RECOMPUTE = (Recompute.NONE, Recompute.SELECTIVE, Recompute.SELECTIVE_OP, Recompute.SELECTIVE_LAYER, Recompute.FULL)


@dataclass(frozen=True)
class Change:
    """One change of a plan after which it fits.

    Attributes
    ----------
    text : the option that makes it: "--recompute full".
    plan : the changed plan.
    time_s : its expected time of a step [s].
    total_bytes : what lives on the fullest GPU [B].
    tight : whether it fits only if memory does not fragment.
    """

    text: str
    plan: TrainingPlan
    time_s: float
    total_bytes: float
    tight: bool = False


def changes_that_fit(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> tuple[Change, ...]:
    """Return the single changes of a plan after which it fits, the fastest step first.

    Tried are, as far as the framework has them: sequence parallelism, more sharing out (zero), more recomputation, a
    smaller micro batch, twice to eight times the tensor, pipeline, context and expert parallel ranks on the same GPUs,
    8-bit moments of Adam, and the optimizer or what forward keeps on the host. Where none of these is enough, the
    fastest plan that fits on the same GPUs, or on twice to 64 times as many. It is one of `default_space`, but without
    interleaved stages and with at most four sequences in a micro batch: to try all takes up to a minute.

    Parameters
    ----------
    config : the shapes of the model.
    cluster : the GPUs.
    plan : a plan that does not fit.
    """
    found = [change for text, other in _same_gpus(config, plan) if (change := _tried(text, config, cluster, other))]
    if not found:
        found = _other_plans(config, cluster, plan)
    return tuple(sorted(found, key=lambda change: change.time_s))


def _tried(text: str, config: ModelConfig, cluster: Cluster, plan: TrainingPlan | None) -> Change | None:
    """Return a change if its plan can run and fits."""
    if plan is None:
        return None
    try:
        check_sizes(config, cluster, plan)
        memory = training_memory(config, cluster, plan)
        if not memory.fits:
            return None
        return Change(text, plan, train(config, cluster, plan, checked=False).time_s, memory.total_bytes, memory.tight)
    except PerfModelError:
        return None


def _same_gpus(config: ModelConfig, plan: TrainingPlan) -> Iterator[tuple[str, TrainingPlan | None]]:
    """Yield the changes that need no more GPUs."""
    if plan.tp > 1 and plan.sp is not True:
        yield "--sequence-parallel", _changed(plan, sp=True)
    framework, _ = nearest_framework(plan.framework)
    stages = framework.stages(plan.dtype)
    yield from ((f"--zero {zero}", _changed(plan, zero=zero)) for zero in stages if zero > plan.zero)
    more = filter(framework.recomputation, _RECOMPUTE[_RECOMPUTE.index(Recompute(plan.recompute)) + 1 :])
    yield from ((f"--recompute {how.value.replace('_', '-')}", _changed(plan, recompute=how)) for how in more)
    smaller = [size for size in divisors(plan.micro_batch) if size < plan.micro_batch]
    yield from ((f"--micro-batch {size}", _changed(plan, micro_batch=size)) for size in smaller[-1:])
    axes = ("tp", "pp", "cp", *(("ep",) if config.experts else ()))
    for name in (name for name in axes if name in framework.parallel):
        for factor in (2, 4, 8):
            size = getattr(plan, name) * factor
            yield f"--{name} {size}", _changed(plan, **{name: size})
    if plan.optimizer == "adam":
        yield "--optimizer adam-8bit", _changed(plan, optimizer="adam-8bit")
    several = ["pp"] if plan.pp > 1 else []
    for part in ("optimizer", "activations"):
        if not plan.on_host(part) and not framework.lacking_parts(several, (), plan.cp_algorithm, [part]):
            parts = parse_offload(",".join((*offloaded(plan.offload), part)), "offload")
            yield f"--offload {parts}", _changed(plan, offload=parts)


def _changed(plan: TrainingPlan, **values: object) -> TrainingPlan | None:
    """Return a changed plan, or None where the change makes it impossible."""
    try:
        return plan.changed(**values)
    except PerfModelError:
        return None


def _other_plans(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> list[Change]:
    """Return the fastest plan that fits on the same GPUs, or on the smallest multiple of them that has one."""
    base = plan.changed(cp=1)
    for power in range(7):
        try:
            larger = cluster.resized(cluster.gpus * 2**power)
            if cannot_fit(config, larger, base):
                continue
            space = default_space(
                config, larger, base, batch=(max(plan.batch, larger.gpus),), micro_batch=_FEW, vp=(1,), etp=(plan.etp,)
            )
            found = search(config, [larger], base, space, top=1)
        except PerfModelError:
            continue
        best = found.best[0].step
        assert best.memory is not None
        text = _difference(plan, best.plan)
        words = f"--gpus {larger.gpus} {text}" if power else text
        return [Change(words.strip(), best.plan, best.time_s, best.memory.total_bytes, best.memory.tight)]
    return []


def _difference(plan: TrainingPlan, other: TrainingPlan) -> str:
    """Return the options in which a plan differs from another."""
    return " ".join(
        f"--{name.replace('_', '-')} {str(getattr(other, name)).replace('_', '-')}"
        for name in AXES
        if getattr(plan, name) != getattr(other, name)
    )
