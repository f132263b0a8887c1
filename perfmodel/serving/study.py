"""What becomes of a deployment under loads, and which is the largest that meets objectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.largest import Array, Largest, Likely, largest_concurrency, largest_rate
from perfmodel.serving.load import Fleet, simulate_fleet, with_interval
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.points import CONCURRENCY, QPS, REQUESTS, Point, Workload, point_of, spread_start
from perfmodel.serving.replay import PERCENTILES, Replay
from perfmodel.serving.requests import Requests
from perfmodel.serving.simulate import EnoughError, whole
from perfmodel.serving.slo import Misses, Slo
from perfmodel.serving.stability import LONG, burst_of, is_near_capacity
from perfmodel.serving.steady import steady
from perfmodel.serving.support import objections
from perfmodel.workers.lost import Ended

#: what ends the loads that meet the objectives, beside these
CAPACITY = "the capacity"
#: share by which a simulation may have more tokens a second than the steady state, by the lengths that are drawn; its
#: start and its end take some off. The largest loads of 202 deployments of Qwen3-30B-A3B on H100, H200, A100 and L40S
#: had 0.58 to 1.04 times as many, 0.95 in the median
BEYOND_STEADY = 0.08
#: requests of a load with which the largest rate is looked for, before more of them say where it is
_FEW = 2000
#: most clients of the loads in a table where none is given
_MOST_CLIENTS = 256


class Spec(Protocol):
    """What makes a deployment; another process can make it, too."""

    @property
    def name(self) -> str:
        """A short name for messages."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def parallel(self) -> Parallel:
        """How the GPUs share the model."""

    def deployment(self) -> Deployment:
        """Return the deployment; a `PerfModelError` says why it is impossible."""


@dataclass(frozen=True)
class Study:
    """Loads on each deployment, and what is asked of them.

    Attributes
    ----------
    workload, fleet : the requests, and how many deployments serve them by which rules.
    load, values : kind of load, and clients or rates; no values: those that fit.
    slo : objectives, or None.
    percentiles, price_per_gpu_hour : see `perfmodel.serving.points.point_of`.
    interval : also simulate the ends of the steps' interval.
    steady : use the steady state, without a simulation.
    only_largest, only_loads : look only for the largest load that meets the objectives, or not for it.
    spread_start : the users of a closed loop start one after the other, not all at once.
    runnable : deployments that nobody can run are impossible, see `perfmodel.serving.support.objections`.
    least_per_s : tokens of answers a second below which the largest load is not looked for, where users start one after
        the other: such a deployment is `Outcome.aside`.
    """

    workload: Workload
    fleet: Fleet
    load: str
    values: tuple[float, ...] = ()
    slo: Slo | None = None
    percentiles: tuple[float, ...] = PERCENTILES
    price_per_gpu_hour: float = math.nan
    interval: bool = True
    steady: bool = False
    only_largest: bool = False
    only_loads: bool = False
    spread_start: bool = False
    runnable: bool = False
    least_per_s: float = 0.0

    def requests(self, deployment: Deployment, value: float) -> Requests:
        """Return the requests of a load on a deployment."""
        workload = self.workload
        if self.spread_start and self.load == CONCURRENCY:
            workload = spread_start(deployment, workload, max(1.0, value / self.fleet.replicas))
        return workload.requests(self.load, value)


@dataclass(frozen=True)
class Outcome:
    """What came of a deployment: its points, the largest load that meets the objectives, or why it is impossible.

    ``beyond`` is what a larger load misses: objectives, or `CAPACITY` where requests pile up before one is missed;
    empty where no larger load was tried.
    ``aside`` tells that its largest load has fewer tokens a second than `Study.least_per_s`, and was not looked for.
    ``ended`` is what ended it before all of it was known: Ctrl-C, or the loss of the workers.
    """

    spec: Spec
    points: tuple[Point, ...] = ()
    largest: Point | None = None
    beyond: tuple[str, ...] = ()
    fault: str = ""
    aside: bool = False
    ended: Ended | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a simulation was ended before its time."""
        known = (*self.points, self.largest)
        replays = (point.replay for point in known if point is not None)
        return self.ended is not None or any(replay is not None and replay.interrupted for replay in replays)


def evaluate(spec: Spec, study: Study, progress: Callable[[int], None] | None = None) -> Outcome:
    """Return what comes of a deployment; one that is impossible is a result with its reason."""
    try:
        return _evaluated(spec, _possible(spec, study), study, progress)
    except InputFileError:
        raise
    except PerfModelError as error:
        return Outcome(spec, fault=str(error))


def promise(spec: Spec, study: Study) -> Means | Outcome:
    """Return the steady state of a deployment up to the most users of a study, or why it is impossible."""
    try:
        deployment = _possible(spec, study)
        return means_of(deployment, study, _most_users(deployment, study))
    except InputFileError:
        raise
    except PerfModelError as error:
        return Outcome(spec, fault=str(error))


def finished(outcome: Outcome, study: Study) -> Outcome:
    """Return an outcome whose largest load has its interval."""
    point = outcome.largest
    if point is None or point.replay is None:
        return outcome
    deployment = outcome.spec.deployment()
    replay = with_interval(deployment, point.replay, study.fleet)
    return replace(outcome, largest=_figures(deployment, study, replay, point.value))


def _possible(spec: Spec, study: Study) -> Deployment:
    """Return a deployment; an error says why it is impossible."""
    deployment = spec.deployment()
    against = objections(deployment) if study.runnable else ()
    if against:
        raise UsageError(against[0])
    deployment.memory()
    return deployment


def _evaluated(spec: Spec, deployment: Deployment, study: Study, progress: Callable[[int], None] | None) -> Outcome:
    values = study.values or (() if study.load == REQUESTS else clients_that_fit(deployment, study.workload))
    points: list[Point] = []
    loads = Loads(deployment, study)
    if study.steady:
        from perfmodel.serving.steady_points import steady_points

        price = study.price_per_gpu_hour
        points = steady_points(deployment, study.workload, values, slo=study.slo, price_per_gpu_hour=price)
    elif not study.only_largest:
        for value in values or (math.nan,):
            points.append(_point(deployment, study, loads, value, progress))
            replay = points[-1].replay
            if replay is not None and replay.interrupted:
                return Outcome(spec, tuple(points))
    if study.slo is None or study.steady or study.load == REQUESTS or study.only_loads:
        return Outcome(spec, tuple(points))
    try:
        largest = largest_load(deployment, study, loads)
    except EnoughError:
        return Outcome(spec, tuple(points), aside=True)
    except KeyboardInterrupt as error:
        return Outcome(spec, tuple(points), ended=error)
    if largest is None:
        return Outcome(spec, tuple(points))
    replay = with_interval(deployment, largest.replay, study.fleet) if study.interval else largest.replay
    point = _figures(deployment, study, replay, largest.load)
    beyond = (CAPACITY,) if largest.grows else tuple(map(str, largest.missed))
    return Outcome(spec, tuple(points), point, beyond)


class Loads:
    """The requests of loads on a deployment: of one near the capacity more, where nobody says how many."""

    def __init__(self, deployment: Deployment, study: Study) -> None:
        self._deployment, self._study = deployment, study

    def at(self, value: float) -> Requests:
        """Return the requests of a load."""
        return self._at(value, LONG)

    def few(self, value: float) -> Requests:
        """Return the requests of a load, or the first of them, which are enough for a first look."""
        return self._at(value, _FEW).first(_FEW)

    def _at(self, value: float, near_capacity: int) -> Requests:
        deployment, study = self._deployment, self._study
        requests = study.requests(deployment, value)
        if study.load != QPS or math.isinf(value) or study.workload.count:
            return requests
        if not is_near_capacity(requests, self._burst_per_s):
            return requests
        return replace(study, workload=replace(study.workload, count=near_capacity)).requests(deployment, value)

    @cached_property
    def _burst_per_s(self) -> float:
        """Requests that end a second when many are there at once; their arrivals, and so their rate, do not matter."""
        burst = burst_of(self._study.requests(self._deployment, 1.0))
        return whole(simulate_fleet(self._deployment, burst, self._study.fleet, interval=False)).requests_per_s


def _point(
    deployment: Deployment, study: Study, loads: Loads, value: float, progress: Callable[[int], None] | None
) -> Point:
    requests = loads.at(value)
    scale = len(study.requests(deployment, value)) / len(requests)  # a bar of progress counts those of the study
    advance = None if progress is None else lambda done: progress(int(scale * done))
    replay = simulate_fleet(deployment, requests, study.fleet, interval=study.interval, progress=advance)
    return _figures(deployment, study, replay, value)


def _figures(deployment: Deployment, study: Study, replay: Replay, value: float) -> Point:
    return point_of(
        deployment, study.fleet, replay, study.load, value, slo=study.slo, percentiles=study.percentiles,
        price_per_gpu_hour=study.price_per_gpu_hour,
    )  # fmt: skip


def largest_load(deployment: Deployment, study: Study, loads: Loads) -> Largest | None:
    """Return the largest load that meets the objectives, up to the users that are given, or that have a place.

    Raises
    ------
    EnoughError
        When it has fewer tokens a second than `Study.least_per_s`.
    KeyboardInterrupt
        When a simulation was interrupted: what it says of the objectives is not known.
    """
    slo = study.slo
    assert slo is not None

    def simulated(requests: Requests, judged: Callable[[Replay], bool], misses: Misses | None = None) -> Replay:
        return whole(simulate_fleet(deployment, requests, study.fleet, interval=False, judged=judged,
                                    enough=None if misses is None else misses.certain))  # fmt: skip

    def replay(value: float) -> Replay:
        # a load that misses an objective is too large, whether or not its requests pile up
        return simulated(loads.at(value), lambda replay: not slo.missed(replay))

    def few(value: float) -> Replay:
        return simulated(loads.few(value), lambda replay: False)

    if study.load == QPS:
        return largest_rate(replay, slo, _likely_rate(deployment, study), few)
    most = _most_users(deployment, study)
    if not study.spread_start:  # users who start all at once wait for each other, which the steady state does not have
        return largest_concurrency(replay, slo, most)
    means, known = means_of(deployment, study, most), {}
    if study.least_per_s > 0.0:
        least = means.users_for(study.least_per_s)
        if least > most:
            raise EnoughError
        # latencies grow with the load: where the objectives are missed with these users, fewer are the most
        requests = loads.at(least)
        known[least] = simulated(requests, lambda replay: False, Misses(slo, requests))
        if not slo.met(known[least]):
            raise EnoughError
    return largest_concurrency(replay, slo, most, means.likely, known)


def _most_users(deployment: Deployment, study: Study) -> int:
    """Return the most users of a closed loop: those that are given, or that have a place."""
    values = study.values
    return int(max(values) if values else study.fleet.replicas * _places(deployment, study.workload))


@dataclass(frozen=True)
class Means:
    """The steady state of a deployment at some numbers of clients in ascending order.

    Attributes
    ----------
    likely : the clients, and how far means are from the limits of a study's objectives.
    output_tokens_per_s : of all replicas [1/s].
    """

    likely: Likely
    output_tokens_per_s: Array

    @property
    def most(self) -> int:
        """Most clients."""
        return int(self.likely.users[-1])

    @property
    def best_per_s(self) -> float:
        """Most tokens of answers a second at which the means are within the limits [1/s]; with one client at least."""
        within = self.likely.excess <= 0.0
        return float(max(self.output_tokens_per_s[within], default=self.output_tokens_per_s[0]))

    def users_for(self, tokens_per_s: float) -> int:
        """Return clients with fewer of whom a simulation gives fewer tokens of answers a second than these.

        More than the last of ``likely.users`` where no number of them does.
        """
        within_reach = np.maximum.accumulate(self.output_tokens_per_s) * (1.0 + BEYOND_STEADY)
        index = int(np.searchsorted(within_reach, tokens_per_s))
        users = self.likely.users
        if index in (0, len(users)):
            return 1 if index == 0 else self.most + 1
        near, far = within_reach[index - 1 : index + 1]
        return int(users[index - 1] + (users[index] - users[index - 1]) * (tokens_per_s - near) / (far - near))


def means_of(deployment: Deployment, study: Study, most: float, points: int = 40) -> Means:
    """Return the steady state of a study's load with up to ``most`` clients of all replicas."""
    assert study.slo is not None
    workload, replicas = study.workload, study.fleet.replicas
    users = np.unique(np.geomspace(1.0, most, points).round())
    lengths = {"prefix": float(workload.cached), "spread": workload.spread}
    mean = steady(deployment, workload.isl, workload.osl, concurrency=np.maximum(1.0, users / replicas), **lengths)
    first, later = np.asarray(mean.ttft_s), np.asarray(mean.tpot_s)
    times = {"ttft_s": first, "tpot_s": later, "itl_s": later, "latency_s": first + (workload.osl - 1.0) * later}
    with np.errstate(divide="ignore"):
        excess = np.log(np.max([times[item.quantity] / item.limit_s for item in study.slo.objectives], axis=0))
    return Means(Likely(users, excess), np.asarray(mean.output_tokens_per_s) * np.minimum(users, replicas))


def _likely_rate(deployment: Deployment, study: Study) -> float:
    """Return the rate to look at first: the highest at which means of the steady state are within the limits [1/s]."""
    most = study.fleet.replicas * _places(deployment, study.workload)
    return means_of(deployment, study, most, 16).best_per_s / study.workload.osl


def clients_that_fit(deployment: Deployment, workload: Workload) -> tuple[float, ...]:
    """Return 1, 2, 4, ... clients up to those that the cache holds, at most 256.

    Raises
    ------
    UsageError
        When not even one fits.
    """
    most = min(_places(deployment, workload), _MOST_CLIENTS)
    return (*(2.0**power for power in range(int(math.log2(most)) + 1)),)


def _places(deployment: Deployment, workload: Workload) -> int:
    """Return how many requests have a place at once in the cache and in a step of a deployment.

    Raises
    ------
    UsageError
        When not even one has.
    """
    memory = deployment.memory()
    fitting = memory.max_batch(int(workload.isl), int(workload.osl), workload.cached)
    most = min(fitting, deployment.sequence_limit)
    if most < 1:
        raise UsageError(
            f"not one request of {workload.isl:.12g} + {workload.osl:.12g} tokens fits: {memory.room()}.",
            remedy="Use more GPUs, a smaller kv or weights format, or shorter requests.",
        )
    return most
