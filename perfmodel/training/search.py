"""The best ways to train a model on a cluster: every combination of a space, pruned exactly, timed and ranked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.training.checks import check_idle
from perfmodel.training.framework import listed, nearest_framework
from perfmodel.training.memory import training_memory
from perfmodel.training.nearest import check_plan
from perfmodel.training.plan import Recompute, TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.search_job import INDIVISIBLE, NEEDLESS, REPEATED, TOO_LARGE, Job, Timed, run
from perfmodel.training.space import Space, lacking_parts
from perfmodel.training.step import train
from perfmodel.workers.lost import ENDS, Ended
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class SetUp:
    """One set-up of a search.

    Attributes
    ----------
    rank : 1 + the set-ups that are surely faster: whose interval ends before this one's starts. Set-ups of one rank
        cannot be told apart. What an unmeasured machine differs by counts only where machines are compared.
    step : its prediction, with its memory.
    """

    rank: int
    step: TrainingStep

    @property
    def plan(self) -> TrainingPlan:
        """How the model is trained."""
        return self.step.plan


@dataclass(frozen=True)
class Search(Reportable):
    """The set-ups of a search, the fastest first.

    Attributes
    ----------
    model, clusters, best : what was asked for, and the first set-ups.
    considered : combinations that were tried: those of the space, unless the search was interrupted.
    untried : combinations of the space that were not, since something ended the search.
    ended : what did: Ctrl-C, or the loss of the workers.
    left_out : reason -> combinations that were left out.
    fit : set-ups that fit.
    equal_to_best : set-ups that the interval cannot tell from the best one.
    tight : those that fit only without fragmentation; they are not ranked unless all are so.
    fastest_tight : the fastest of these, if it is faster than the best one.
    """

    model: str
    clusters: tuple[Cluster, ...]
    best: tuple[SetUp, ...]
    considered: int
    left_out: Mapping[str, int]
    fit: int
    equal_to_best: int
    tight: int = 0
    fastest_tight: SetUp | None = None
    notes: tuple[str, ...] = field(default=())
    untried: int = 0
    ended: Ended | None = None


def search(
    config: ModelConfig,
    clusters: Sequence[Cluster],
    plan: TrainingPlan,
    space: Space,
    *,
    top: int | None = 10,
    workers: int = 1,
    scheduler: str = "",
    progress: Callable[[int], None] | None = None,
) -> Search:
    """Return the fastest set-ups of a space that fit, by tokens per second.

    Combinations whose sizes do not divide, whose batch is too small or that do not fit in memory are left out by the
    same rules as for a single plan, and those with recomputation that their sizes do not need where the space says so;
    every other one is timed. Those that fit only without fragmentation are not ranked
    unless there are no others. The result does not depend on ``workers``. An interruption (Ctrl-C), or the loss of the
    workers, keeps what is done: the result says how many combinations were not tried, and why.

    Parameters
    ----------
    config : the shapes of the model.
    clusters : machines to choose from; one that is named twice counts once.
    plan : what the space does not change.
    space : the sizes to combine.
    top : set-ups to return; None for all that are ranked.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler; see `perfmodel.workers`.
    progress : is called with the number of combinations that were tried.

    Raises
    ------
    UsageError
        When no combination can run; the message has the reason of most. For an option that none of them uses.
    KeyboardInterrupt, WorkersLostError
        When the search ends before it has found a set-up that fits.
    """
    check_idle(plan, {axis: max(getattr(space, axis)) for axis in ("tp", "cp", "pp", "vp", "ep", "zero")})
    clusters = [cluster for place, cluster in enumerate(clusters) if cluster not in clusters[:place]]
    job = Job(config, tuple(clusters), plan, space)
    found: list[Timed] = []
    left_out = {INDIVISIBLE: 0, TOO_LARGE: 0, REPEATED: 0, NEEDLESS: 0}
    problems: dict[str, int] = {}
    tried, every = 0, space.points * len(clusters)
    ended: Ended | None = None
    try:
        for part in run(job, workers, scheduler):
            found.extend(part.timed)
            left_out[TOO_LARGE] += part.too_large
            left_out[REPEATED] += part.repeated
            left_out[NEEDLESS] += part.needless
            left_out[INDIVISIBLE] += sum(part.problems.values())
            for problem, count in part.problems.items():
                problems[problem] = problems.get(problem, 0) + count
            tried += part.tried
            if progress is not None:
                progress(tried)
    except ENDS as error:
        if not found:
            raise
        ended = error
    if not found:
        first = _first_problem(config, clusters[0], plan, space)
        wider = _to_widen(max(cluster.gpus for cluster in clusters), plan, space)
        raise _nothing(left_out, problems, first, lacking_parts(config, plan, space), wider)
    found.sort(key=lambda timed: (timed.s_per_token, timed.index))
    ranked = [timed for timed in found if not timed.tight] or found
    ranks = _ranks(ranked)

    def set_up(rank: int, timed: Timed) -> SetUp:
        return SetUp(rank, full_step(config, clusters[timed.cluster], plan.changed(**space.at(timed.point))))

    return Search(
        model=config.name or config.model_type,
        clusters=tuple(clusters),
        best=tuple(set_up(rank, timed) for rank, timed in zip(ranks[:top], ranked[:top], strict=True)),
        considered=tried,
        untried=every - tried,
        ended=ended,
        left_out={reason: count for reason, count in left_out.items() if count},
        fit=len(found),
        equal_to_best=sum(rank == 1 for rank in ranks),
        tight=sum(timed.tight for timed in found),
        notes=lacking_parts(config, plan, space),
        fastest_tight=set_up(1, found[0]) if found[0].tight and ranked is not found else None,
    )


def full_step(config: ModelConfig, cluster: Cluster, plan: TrainingPlan, laboratory: str = "") -> TrainingStep:
    """Return a step with its memory; ``laboratory`` as in `train`.

    Raises
    ------
    UsageError
        When the plan cannot run.
    """
    step = train(config, cluster, plan, laboratory=laboratory)
    notes = step.notes
    if config.positions and plan.seq > config.positions:
        notes = (*notes, f"The sequence is longer than the {config.positions} positions that the model was made for.")
    return dataclasses.replace(step, memory=training_memory(config, cluster, plan), notes=notes)


def _ranks(found: Sequence[Timed]) -> list[int]:
    """Return 1 + the set-ups whose interval ends before that of each starts."""
    highs = np.sort([timed.high for timed in found])
    lows = np.array([timed.low for timed in found])
    return [1 + int(count) for count in np.searchsorted(highs, lows, side="left")]


def _first_problem(config: ModelConfig, cluster: Cluster, plan: TrainingPlan, space: Space) -> UsageError | None:
    """Return why the first combination cannot run, with the nearest one that can; None if it can."""
    try:
        check_plan(config, cluster, plan.changed(**space.at(0)))
    except UsageError as problem:
        return problem
    return None


def _to_widen(gpus: int, plan: TrainingPlan, space: Space) -> list[str]:
    """Return the options that take memory off a GPU and of which a space has not all that there is.

    Parameters
    ----------
    gpus : of the largest cluster.
    """
    framework, _ = nearest_framework(plan.framework)
    wider = [f"larger --{name}" for name in ("tp", "pp")
             if name in framework.parallel and max(getattr(space, name)) < gpus]  # fmt: skip
    if max(space.zero) < max(framework.stages(plan.dtype)):
        wider.append("larger --zero")
    if min(space.micro_batch) > 1:
        wider.append("a smaller --micro-batch")
    if Recompute.FULL not in space.recompute and framework.recomputation(Recompute.FULL):
        wider.append("--recompute full")
    return wider


def _nothing(
    left_out: Mapping[str, int],
    problems: Mapping[str, int],
    first: UsageError | None,
    notes: Sequence[str],
    wider: Sequence[str],
) -> UsageError:
    """Build the error about a search without a set-up that can run.

    Parameters
    ----------
    left_out, problems : reason -> combinations that were left out, and those whose sizes do not divide by why.
    first : why the first combination cannot run, if it cannot.
    notes : what the framework lacks.
    wider : options that would take less memory.
    """
    if left_out[TOO_LARGE]:
        remedies = ["more GPUs", *wider, *(["another framework"] if notes else [])]
        return UsageError(
            " ".join([f"no set-up fits in memory: {left_out[TOO_LARGE]} were tried.", *notes]),
            place="search",
            remedy=f"Use {listed(remedies)}.",
        )
    if first is not None:
        return UsageError(f"no combination can run; the first: {first.message}", place="search", remedy=first.remedy)
    most = max(problems, key=lambda problem: problems[problem])
    reason = f"{INDIVISIBLE}." if most == INDIVISIBLE else most
    return UsageError(
        f"no combination can run: {reason}", place="search", remedy="Widen the ranges, or change --batch."
    )
