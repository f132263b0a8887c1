"""Trying the combinations of a search, in one process or shared out over several."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import PerfModelError
from perfmodel.training.checks import check_sizes
from perfmodel.training.framework import nearest_framework
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.space import Space, worth_trying
from perfmodel.training.step import train
from perfmodel.workers import ahead, executor, streamed
from perfmodel.workers.common import common, opened
from perfmodel.workers.slots import Slot
from perfmodel.workloads.model_config import ModelConfig

#: set-ups of a task, which take some hundredths of a second; tasks that the process that asks may be ahead of another
#: one that has a long one; tasks that each other process has before it meanwhile
_CHUNK, _OWN, _EACH = 64, 256, 32
#: combinations that are looked at together, at most
_BLOCK = 2**16
#: reasons for which a combination is left out
INDIVISIBLE, TOO_LARGE, REPEATED = "sizes do not divide", "memory", "zero on a single rank"


@dataclass(frozen=True)
class Timed:
    """A set-up that fits: its place in the space and its time a token."""

    cluster: int
    point: int
    s_per_token: float
    low: float
    high: float
    tight: bool

    @property
    def index(self) -> tuple[int, int]:
        """Cluster and place, which order set-ups of one time."""
        return self.cluster, self.point


@dataclass
class Part:
    """What one chunk of combinations gave."""

    timed: list[Timed]
    problems: dict[str, int]
    too_large: int = 0
    repeated: int = 0

    @property
    def tried(self) -> int:
        """Combinations of the chunk."""
        return len(self.timed) + sum(self.problems.values()) + self.too_large + self.repeated


@dataclass(frozen=True)
class Job:
    """What every worker knows."""

    config: ModelConfig
    clusters: tuple[Cluster, ...]
    plan: TrainingPlan
    space: Space

    @functools.cached_property
    def alike(self) -> bool:
        """Whether all clusters have the same machine, whose error all set-ups share."""
        return len({cluster.hardware.name for cluster in self.clusters}) == 1

    def worth_trying(self, task: tuple[int, int, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return what `perfmodel.training.space.worth_trying` does of the combinations of a task."""
        index, start, stop = task
        framework, _ = nearest_framework(self.plan.framework)
        sizes, uneven = self.space.between(start, stop), framework.uneven_micro_batches
        return worth_trying(self.config, self.clusters[index].gpus, sizes, self.space, uneven=uneven)

    def tasks(self) -> list[tuple[int, int, int]]:
        """Return the tasks of a search: cluster, first combination and the one after the last.

        Each has as many combinations that are worth trying as others, since those that are not take no time.
        """
        tasks = []
        for index, start in itertools.product(range(len(self.clusters)), range(0, self.space.points, _BLOCK)):
            stop = min(start + _BLOCK, self.space.points)
            even, again = self.worth_trying((index, start, stop))
            ends = (start + 1 + np.flatnonzero(even & ~again)[_CHUNK - 1 :: _CHUNK]).tolist()
            bounds = list(dict.fromkeys([start, *ends, stop]))
            tasks += [(index, *pair) for pair in itertools.pairwise(bounds)]
        return tasks

    def part(self, task: tuple[int, int, int]) -> Part:
        """Try the combinations of a task."""
        index, start, _ = task
        cluster, part = self.clusters[index], Part([], {})
        even, again = self.worth_trying(task)
        if not even.all():
            part.problems[INDIVISIBLE] = int(np.count_nonzero(~even))
        part.repeated = int(np.count_nonzero(again))
        for point in (start + np.flatnonzero(even & ~again)).tolist():
            try:
                plan = self.plan.changed(**self.space.at(point))
                check_sizes(self.config, cluster, plan)
            except PerfModelError as error:
                part.problems[str(error)] = part.problems.get(str(error), 0) + 1
                continue
            self._try(part, index, point, plan)
        return part

    def _try(self, part: Part, index: int, point: int, plan: TrainingPlan) -> None:
        cluster = self.clusters[index]
        memory = training_memory(self.config, cluster, plan)
        if not memory.fits:
            part.too_large += 1
            return
        step = train(self.config, cluster, plan, checked=False)
        interval = step.own_interval_s if self.alike else step.laboratory_interval_s
        time, low, high = (seconds / step.tokens for seconds in (step.time_s, *interval))
        part.timed.append(Timed(index, point, time, low, high, memory.tight))


def _work(item: tuple[bytes | Slot, tuple[int, int, int]]) -> Part:
    shared, task = item
    job: Job = opened(shared)
    return job.part(task)


def run(job: Job, workers: int, scheduler: str) -> Iterator[Part]:
    """Yield what each task of a search gave, in the order of the tasks."""
    tasks = job.tasks()
    workers = min(workers, len(tasks)) if workers > 1 else workers
    with executor(workers, scheduler, here=True) as pool:
        if pool is None:
            yield from map(job.part, tasks)
            return
        # The processes of a cluster are others; this one works beside those of its own machine.
        here = None if scheduler else lambda item: job.part(item[1])
        with common(pool, job) as shared:
            items = ((shared, task) for task in tasks)
            yield from streamed(_work, items, pool, ahead(workers, scheduler, _OWN, _EACH), here, _OWN)
