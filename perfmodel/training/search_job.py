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
from perfmodel.training.memory import fitting_memory
from perfmodel.training.plan import Recompute, TrainingPlan
from perfmodel.training.setup import attention_kernel, idle_selective, setup_of
from perfmodel.training.space import Space, worth_trying
from perfmodel.training.step import compared_step
from perfmodel.workers import ahead, executor, streamed, usable
from perfmodel.workers.common import common, opened
from perfmodel.workers.slots import Slot
from perfmodel.workloads.model_config import ModelConfig

#: set-ups of a task, which take some hundredths of a second; tasks that the process that asks may be ahead of another
#: one that has a long one; tasks that each other process has before it meanwhile
_CHUNK, _OWN, _EACH = 64, 256, 32
#: combinations that are looked at together, at most
_BLOCK = 2**16
#: reasons for which a combination is left out
INDIVISIBLE, TOO_LARGE, REPEATED = "sizes do not divide", "memory", "zero or etp on a single rank"
NEEDLESS = "recomputation that they do not need"


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
    needless: int = 0

    @property
    def tried(self) -> int:
        """Combinations of the chunk."""
        return len(self.timed) + sum(self.problems.values()) + self.too_large + self.repeated + self.needless


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

    @functools.cached_property
    def idle(self) -> frozenset[str]:
        """Ways of recomputation that change nothing: selective, where attention keeps no scores."""
        framework, _ = nearest_framework(self.plan.framework)
        same = Recompute.NONE in self.space.recompute and idle_selective(
            self.config, attention_kernel(self.config, self.plan, framework)
        )
        return frozenset({Recompute.SELECTIVE} if same else ())

    def worth_trying(self, task: tuple[int, int, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return what `perfmodel.training.space.worth_trying` does of the combinations of a task."""
        index, start, stop = task
        framework, _ = nearest_framework(self.plan.framework)
        sizes = self.space.between(start, stop)
        return worth_trying(self.config, self.clusters[index].gpus, sizes, self.space, framework)

    def tasks(self) -> list[tuple[int, int, int]]:
        """Return the tasks of a search: cluster, first combination and the one after the last.

        Each has as many combinations that are worth trying as others, since those that are not take no time, and all
        ways of recomputing of its sizes.
        """
        tasks, ways = [], len(self.space.recompute)
        block = _BLOCK // ways * ways
        for index, start in itertools.product(range(len(self.clusters)), range(0, self.space.points, block)):
            stop = min(start + block, self.space.points)
            even, again = self.worth_trying((index, start, stop))
            last = start + np.flatnonzero(even & ~again)[_CHUNK - 1 :: _CHUNK]
            ends = ((last // ways + 1) * ways).tolist()
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
        ways = len(self.space.recompute)
        fits: tuple[int, str] = (-1, "")  # the last sizes that fit without fragmentation, and what they recompute
        for point in (start + np.flatnonzero(even & ~again)).tolist():
            how = self.space.recompute[point % ways]
            needless = self.space.least_recompute and point // ways == fits[0] and _more(how, fits[1])
            if needless or how in self.idle:
                part.needless += 1
                continue
            try:
                plan = self.plan.changed(**self.space.at(point))
                check_sizes(self.config, cluster, plan)
            except PerfModelError as error:
                part.problems[str(error)] = part.problems.get(str(error), 0) + 1
                continue
            if self._try(part, index, point, plan):
                fits = (point // ways, how)
        return part

    def _try(self, part: Part, index: int, point: int, plan: TrainingPlan) -> bool:
        """Time a plan if it fits, and return whether it does with what fragmentation adds."""
        setup = setup_of(self.config, self.clusters[index], plan)
        memory = fitting_memory(setup)
        if memory is None:
            part.too_large += 1
            return False
        step = compared_step(setup)
        interval = step.own_interval_s if self.alike else step.laboratory_interval_s
        time, low, high = (seconds / step.tokens for seconds in (step.time_s, *interval))
        part.timed.append(Timed(index, point, time, low, high, memory.tight))
        return not memory.tight


def _more(how: str, than: str) -> bool:
    """Return whether one way of recomputing computes all that another one does, and more."""
    return how != than and (than == Recompute.NONE or how == Recompute.FULL)


def _work(item: tuple[bytes | Slot, tuple[int, int, int]]) -> Part:
    shared, task = item
    job: Job = opened(shared)
    return job.part(task)


def run(job: Job, workers: int, scheduler: str) -> Iterator[Part]:
    """Yield what each task of a search gave, in the order of the tasks."""
    tasks = job.tasks()
    workers = workers if scheduler else usable(workers, len(tasks))
    with executor(workers, scheduler, here=True) as pool:
        if pool is None:
            yield from map(job.part, tasks)
            return
        # The processes of a cluster are others; this one works beside those of its own machine.
        here = None if scheduler else lambda item: job.part(item[1])
        with common(pool, job) as shared:
            items = ((shared, task) for task in tasks)
            yield from streamed(_work, items, pool, ahead(workers, scheduler, _OWN, _EACH), here, _OWN)
