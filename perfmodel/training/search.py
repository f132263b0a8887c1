"""The best ways to train a model on a cluster: every combination of a space, pruned exactly, timed and ranked."""

from __future__ import annotations

import dataclasses
import functools
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import Reportable
from perfmodel.errors import PerfModelError, UsageError
from perfmodel.training.checks import check_idle, check_plan, check_sizes
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.space import Space, divides, lacking_stages
from perfmodel.training.step import train
from perfmodel.workers import executor, mapped
from perfmodel.workloads.model_config import ModelConfig

#: set-ups that one worker gets at a time: small enough to share them out, large enough to keep what it has computed
_CHUNK = 1024
#: reasons for which a combination is left out
INDIVISIBLE, TOO_LARGE = "sizes do not divide", "memory"


@dataclass(frozen=True)
class SetUp:
    """One set-up of a search.

    Attributes
    ----------
    rank : 1 + the set-ups that are surely faster: whose interval ends before this one's starts. Set-ups of one rank
        cannot be told apart.
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
    considered : combinations of the space.
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


def search(
    config: ModelConfig,
    clusters: Sequence[Cluster],
    plan: TrainingPlan,
    space: Space,
    *,
    top: int = 10,
    workers: int = 1,
    scheduler: str = "",
) -> Search:
    """Return the fastest set-ups of a space that fit, by tokens per second.

    Combinations whose sizes do not divide, whose batch is too small or that do not fit in memory are left out by the
    same rules as for a single plan; every other one is timed. Those that fit only without fragmentation are not ranked
    unless there are no others. The result does not depend on ``workers``.

    Parameters
    ----------
    config : the shapes of the model.
    clusters : machines to choose from.
    plan : what the space does not change.
    space : the sizes to combine.
    top : set-ups to return.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler; see `perfmodel.workers`.

    Raises
    ------
    UsageError
        When no combination can run; the message has the reason of most. For an option that none of them uses.
    """
    check_idle(plan, {axis: max(getattr(space, axis)) for axis in ("tp", "cp", "pp", "vp", "ep", "zero")})
    tasks = _chunks(len(clusters), space.points)
    found: list[_Timed] = []
    left_out = {INDIVISIBLE: 0, TOO_LARGE: 0}
    problems: dict[str, int] = {}
    for part in _run(_Job(config, tuple(clusters), plan, space), tasks, workers, scheduler):
        found.extend(part.timed)
        left_out[TOO_LARGE] += part.too_large
        left_out[INDIVISIBLE] += sum(part.problems.values())
        for problem, count in part.problems.items():
            problems[problem] = problems.get(problem, 0) + count
    if not found:
        raise _nothing(left_out, problems, _first_problem(config, clusters[0], plan, space))
    found.sort(key=lambda timed: (timed.s_per_token, timed.index))
    ranked = [timed for timed in found if not timed.tight] or found
    ranks = _ranks(ranked)

    def set_up(rank: int, timed: _Timed) -> SetUp:
        return SetUp(rank, full_step(config, clusters[timed.cluster], plan.changed(**space.at(timed.point))))

    return Search(
        model=config.name or config.model_type,
        clusters=tuple(clusters),
        best=tuple(set_up(rank, timed) for rank, timed in zip(ranks[:top], ranked[:top], strict=True)),
        considered=space.points * len(clusters),
        left_out={reason: count for reason, count in left_out.items() if count},
        fit=len(found),
        equal_to_best=sum(rank == 1 for rank in ranks),
        tight=sum(timed.tight for timed in found),
        notes=lacking_stages(plan, space),
        fastest_tight=set_up(1, found[0]) if found[0].tight and ranked is not found else None,
    )


def full_step(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> TrainingStep:
    """Return a step with its memory.

    Raises
    ------
    UsageError
        When the plan cannot run.
    """
    step = train(config, cluster, plan)
    notes = step.notes
    if config.positions and plan.seq > config.positions:
        notes = (*notes, f"The sequence is longer than the {config.positions} positions that the model was made for.")
    return dataclasses.replace(step, memory=training_memory(config, cluster, plan), notes=notes)


@dataclass(frozen=True)
class _Timed:
    """A set-up that fits: its place in the space and its time a token."""

    cluster: int
    point: int
    s_per_token: float
    low: float
    high: float
    tight: bool

    @property
    def index(self) -> tuple[int, int]:
        return self.cluster, self.point


@dataclass
class _Part:
    """What one chunk of combinations gave."""

    timed: list[_Timed]
    problems: dict[str, int]
    too_large: int = 0


@dataclass(frozen=True)
class _Job:
    """What every worker knows."""

    config: ModelConfig
    clusters: tuple[Cluster, ...]
    plan: TrainingPlan
    space: Space

    def part(self, task: tuple[int, int, int]) -> _Part:
        """Try the combinations from ``start`` to ``stop`` on one cluster."""
        index, start, stop = task
        cluster, part = self.clusters[index], _Part([], {})
        for point in range(start, stop):
            sizes = self.space.at(point)
            if not divides(self.config, cluster.gpus, sizes):
                part.problems[INDIVISIBLE] = part.problems.get(INDIVISIBLE, 0) + 1
                continue
            try:
                plan = self.plan.changed(**sizes)
                check_sizes(self.config, cluster, plan)
            except PerfModelError as error:
                part.problems[str(error)] = part.problems.get(str(error), 0) + 1
                continue
            self._try(part, index, point, plan)
        return part

    def _try(self, part: _Part, index: int, point: int, plan: TrainingPlan) -> None:
        cluster = self.clusters[index]
        memory = training_memory(self.config, cluster, plan)
        if not memory.fits:
            part.too_large += 1
            return
        step = train(self.config, cluster, plan, checked=False)
        time, low, high = (seconds / step.tokens for seconds in (step.time_s, step.low_s, step.high_s))
        part.timed.append(_Timed(index, point, time, low, high, memory.tight))


class _Pickler(pickle.Pickler):
    """Sends read-only mappings, as machines have them, to another process."""

    def reducer_override(self, obj: object) -> Any:
        return (_read_only, (dict(obj),)) if isinstance(obj, MappingProxyType) else NotImplemented


def _read_only(items: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(items)


def _packed(job: _Job) -> bytes:
    """Return a job as bytes, without what its machines have computed so far."""
    clusters = tuple(
        dataclasses.replace(cluster, hardware=dataclasses.replace(cluster.hardware)) for cluster in job.clusters
    )
    stream = io.BytesIO()
    _Pickler(stream).dump(dataclasses.replace(job, clusters=clusters))
    return stream.getvalue()


@functools.lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> _Job:
    job: _Job = pickle.loads(packed)  # noqa: S301 -- made by the process that asks for the work
    return job


def _work(item: tuple[bytes, tuple[int, int, int]]) -> _Part:
    packed, task = item
    return _unpacked(packed).part(task)


def _run(job: _Job, tasks: Sequence[tuple[int, int, int]], workers: int, scheduler: str) -> Iterator[_Part]:
    """Yield what each task gave, in the order of the tasks."""
    with executor(min(workers, len(tasks)) if workers > 1 else workers, scheduler) as pool:
        if pool is None:
            yield from map(job.part, tasks)
            return
        packed = _packed(job)
        yield from mapped(_work, ((packed, task) for task in tasks), pool)


def _chunks(clusters: int, points: int) -> list[tuple[int, int, int]]:
    starts = range(0, points, _CHUNK)
    return [(cluster, start, min(start + _CHUNK, points)) for cluster in range(clusters) for start in starts]


def _ranks(found: Sequence[_Timed]) -> list[int]:
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


def _nothing(left_out: Mapping[str, int], problems: Mapping[str, int], first: UsageError | None) -> UsageError:
    """Build the error about a search without a set-up that can run."""
    if left_out[TOO_LARGE]:
        return UsageError(
            f"no set-up fits in memory: {left_out[TOO_LARGE]} were tried.",
            place="search",
            remedy="Use more GPUs, --recompute full, or larger --tp, --pp and --zero.",
        )
    if first is not None:
        return UsageError(f"no combination can run; the first: {first.message}", place="search", remedy=first.remedy)
    most = max(problems, key=lambda problem: problems[problem])
    reason = f"{INDIVISIBLE}." if most == INDIVISIBLE else most
    return UsageError(
        f"no combination can run: {reason}", place="search", remedy="Widen the ranges, or change --batch."
    )
