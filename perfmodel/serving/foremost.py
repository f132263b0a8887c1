"""The deployments that serve most within objectives, without the largest load of those that cannot be among them.

The largest load of a deployment has fewer tokens a second than the steady state of more users. With as many users as
would bring it among the first ones it either meets the objectives, and its largest load is looked for, or it misses
them, and is set aside: latencies grow with the load, as every search for a largest load takes them to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from perfmodel.serving.evaluations import Bar, check_possible, no_bar
from perfmodel.serving.points import Point
from perfmodel.serving.study import Means, Outcome, Spec, Study, evaluate, finished, promise
from perfmodel.workers import executor, mapped
from perfmodel.workers.lost import ENDS, Ended

if TYPE_CHECKING:
    from concurrent.futures import Executor

#: what deployments are ranked by, the smaller the better
Rank = tuple[float, ...]
#: deployments whose largest loads are looked for at least before the first ones are known better
_ROUND = 8
#: tokens a second between which those are looked for that have a rank, and halvings of the range of their logarithm
_RANGE_PER_S, _HALVINGS = (1e-6, 1e12), 40


class Goal(Protocol):
    """The deployments that are looked for."""

    @property
    def count(self) -> int:
        """How many."""

    def rank(self, place: int, point: Point) -> Rank:
        """Return the rank of a deployment's largest load, by its place among the deployments."""

    def best_rank(self, place: int, output_tokens_per_s: float) -> Rank:
        """Return a rank that a load of a deployment with so many tokens of answers a second is not before."""


def evaluate_foremost(
    specs: Sequence[Spec], study: Study, goal: Goal, workers: int = 1, scheduler: str = "", bar: Bar = no_bar
) -> list[Outcome]:
    """Return the outcomes of deployments in their order; those that cannot be among the best are `Outcome.aside`.

    The best ones are those that `perfmodel.serving.evaluations.evaluate_all` finds, with any number of processes. An
    interruption, and the loss of the workers, keep the outcomes so far, without the interval of their largest loads.

    Parameters
    ----------
    specs, workers, scheduler, bar : as in `evaluate_all`.
    study : looks only for the largest load of users who start one after the other.
    goal : the deployments that are looked for.

    Raises
    ------
    UsageError
        When the number of processes is impossible, or no deployment is possible.
    KeyboardInterrupt, WorkersLostError
        When nothing was known before the interruption, or the loss of the workers.
    """
    search = _Search(specs, replace(study, interval=False), goal, bar)
    ended: Ended | None = None
    try:
        with executor(workers, scheduler) as pool:
            search.run(pool)
    except ENDS as error:
        ended = error
    outcomes = [search.outcomes.get(place, Outcome(spec, ended=ended)) for place, spec in enumerate(specs)]
    if ended is not None:
        if not any(outcome.largest for outcome in outcomes):
            raise ended
        return outcomes
    check_possible(outcomes)
    return outcomes


class _Search:
    """What is known of deployments, by their places."""

    def __init__(self, specs: Sequence[Spec], study: Study, goal: Goal, bar: Bar) -> None:
        self._specs, self._study, self._goal, self._bar = specs, study, goal, bar
        self.outcomes: dict[int, Outcome] = {}

    def run(self, pool: Executor | None) -> None:
        """Look for the largest loads of the deployments that promise most, and then of those that may be before them.

        A round has the same deployments with any number of processes, and so the same ones are set aside.
        """
        means = self._means(pool)
        order = sorted(means, key=lambda place: self._goal.best_rank(place, means[place].best_per_s))
        with self._bar(len(means)) as advance:
            while order:
                least = {place: self._least_per_s(place) for place in order}
                aside = {place for place in order if means[place].users_for(least[place]) > means[place].most}
                self.outcomes |= {place: Outcome(self._specs[place], aside=True) for place in aside}
                order = [place for place in order if place not in aside]
                size = self._goal.count if not self._ranks() else max(_ROUND, self._goal.count)
                now, order = order[:size], order[size:]
                tasks = [(self._specs[place], replace(self._study, least_per_s=least[place])) for place in now]
                before = len(means) - len(order) - len(now)
                self._work(_evaluate_task, now, tasks, pool, functools.partial(_further, advance, before))
        self._finish(pool)

    def _means(self, pool: Executor | None) -> dict[int, Means]:
        """Return the steady states of the deployments that are possible."""
        with self._bar(len(self._specs)) as advance:
            promises = list(mapped(_promise_task, [(spec, self._study) for spec in self._specs], pool, advance))
        self.outcomes = {place: found for place, found in enumerate(promises) if isinstance(found, Outcome)}
        return {place: found for place, found in enumerate(promises) if isinstance(found, Means)}

    def _finish(self, pool: Executor | None) -> None:
        """Give the largest loads of the best deployments their intervals."""
        places = [place for _, place in self._ranks()[: self._goal.count]]
        tasks = [(self.outcomes[place], self._study) for place in places]
        try:
            with self._bar(len(places)) as advance:
                self._work(_finish_task, places, tasks, pool, advance)
        except ENDS as error:
            for place, (before, _) in zip(places, tasks, strict=True):
                if self.outcomes[place] is before:
                    self.outcomes[place] = replace(before, ended=error)
            raise

    def _work(
        self,
        function: Callable[[Any], Outcome],
        places: Sequence[int],
        tasks: Sequence[Any],
        pool: Executor | None,
        advance: Callable[[int], None],
    ) -> None:
        """Do pieces of work, and keep what comes of them, also of those before an interruption."""
        kept: dict[int, Outcome] = {}
        try:
            for outcome in mapped(function, tasks, pool, advance, kept):
                if outcome.interrupted:
                    raise outcome.ended or KeyboardInterrupt
        finally:
            self.outcomes |= {places[index]: outcome for index, outcome in kept.items()}

    def _ranks(self) -> list[tuple[Rank, int]]:
        """Return the ranks of the largest loads that are known, and the places of their deployments, in this order."""
        found = ((place, outcome.largest) for place, outcome in self.outcomes.items())
        return sorted((self._goal.rank(place, point), place) for place, point in found if point is not None)

    def _least_per_s(self, place: int) -> float:
        """Return the tokens of answers a second with fewer of which a deployment is not among the best so far."""
        ranks, goal = self._ranks(), self._goal
        if len(ranks) < goal.count:
            return 0.0
        last, _ = ranks[goal.count - 1]
        low, high = _RANGE_PER_S
        if goal.best_rank(place, high) > last:
            return math.inf
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if goal.best_rank(place, middle) > last else (low, middle)
        return low


def _further(advance: Callable[[int], None], before: int, done: int) -> None:
    advance(before + done)


def _promise_task(task: tuple[Spec, Study]) -> Means | Outcome:
    """Return the steady state of a deployment; a function of a worker process, as the others below."""
    return promise(*task)


def _evaluate_task(task: tuple[Spec, Study]) -> Outcome:
    return evaluate(*task)


def _finish_task(task: tuple[Outcome, Study]) -> Outcome:
    return finished(*task)
