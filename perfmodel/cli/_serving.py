"""Deployments and loads from the options of `serve` and `search serve`, and their evaluation, in processes if asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perfmodel.cli._progress import counted
from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.operators.parse import parse_sizes
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet, simulate_fleet
from perfmodel.serving.points import CONCURRENCY, QPS, REQUESTS, Point, Workload, point_of, spread_start
from perfmodel.serving.replay import PERCENTILES, Replay
from perfmodel.serving.requests import Requests
from perfmodel.serving.slo import Largest, Slo, largest_concurrency, largest_rate
from perfmodel.serving.speculation import Speculation
from perfmodel.workers import executor, mapped

#: most deployments of one command
_MOST_DEPLOYMENTS = 5000
#: largest whole number of an option
_LARGEST = 1_000_000
#: most clients of the loads that are tried where none is given
_MOST_CLIENTS = 256


@dataclass(frozen=True)
class Spec:
    """A deployment by names, which another process can build; see `perfmodel.serving.deployment.Deployment`.

    ``speculate`` holds the tokens of a draft and the probability that one is kept, ``draft`` its model.
    """

    model: str
    machine: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    engine: str = "vllm"
    engine_version: str = ""
    weights: str = "bf16"
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_tokens: int | None = None
    utilization: float | None = None
    graph: bool | None = None
    sampling: str = "greedy"
    speculate: tuple[int, float] | None = None
    draft: str = ""

    @property
    def name(self) -> str:
        """A short name for messages."""
        return f"{self.machine} tp{self.tp} pp{self.pp} ep{self.ep} dp{self.dp} {self.weights}"

    def deployment(self) -> Deployment:
        """Return the deployment.

        Raises
        ------
        UsageError, InputFileError
            When a name is unknown, a file is wrong, or the deployment is impossible.
        """
        from perfmodel.hardware_catalog import hardware
        from perfmodel.workloads.catalog import find_model

        machine = hardware(self.machine)
        speculation = None
        if self.speculate is not None:
            own = (self.tp, self.pp, 1, self.dp, self.engine, self.engine_version, self.weights, self.kv)
            draft = Deployment(find_model(self.draft), machine, *own) if self.draft else None
            speculation = Speculation(*self.speculate, draft)
        return Deployment(
            find_model(self.model), machine, self.tp, self.pp, self.ep, self.dp, self.engine, self.engine_version,
            self.weights, self.kv, self.max_num_seqs, self.max_batched_tokens, self.kv_tokens, self.utilization,
            self.graph, self.sampling, speculation,
        )  # fmt: skip


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
    only_largest : look only for the largest load that meets the objectives.
    spread_start : the users of a closed loop start one after the other, not all at once.
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
    spread_start: bool = False

    def requests(self, deployment: Deployment, value: float) -> Requests:
        """Return the requests of a load on a deployment."""
        workload = self.workload
        if self.spread_start and self.load == CONCURRENCY:
            workload = spread_start(deployment, workload, value)
        return workload.requests(self.load, value)


@dataclass(frozen=True)
class Outcome:
    """What came of a deployment: its points, the largest load that meets the objectives, or why it is impossible."""

    spec: Spec
    points: tuple[Point, ...] = ()
    largest: Point | None = None
    beyond: tuple[str, ...] = ()
    fault: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether the user ended a simulation."""
        return any(point.replay is not None and point.replay.interrupted for point in self.points)


def specs_of(
    model: str, machines: Sequence[str], engine: str, sizes: dict[str, str | None], formats: dict[str, str], **same: Any
) -> list[Spec]:
    """Return the deployments of all combinations of machines, numbers of GPUs and formats.

    Parameters
    ----------
    model, machines, engine : names; one text of machines may list several by commas.
    sizes : option -> range or list of whole numbers, or None for the default.
    formats : option -> formats, divided by a slash.
    same : values of `Spec` that all share.

    Raises
    ------
    UsageError
        When there is no machine, a number is no whole number above 0, or there are too many combinations.
    """
    names = [name.strip() for text in machines for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--on is missing.", remedy="Add --on h100; `perfmodel hardware list` shows the names.")
    axes: dict[str, list[Any]] = {"machine": list(dict.fromkeys(names))}
    for key, text in sizes.items():
        axes[key] = [None] if text is None else whole_numbers(text, f"--{key.replace('_', '-')}")
    for key, text in formats.items():
        axes[key] = [word.strip() for word in text.split("/") if word.strip()] or [""]
    total = math.prod(map(len, axes.values()))
    if total > _MOST_DEPLOYMENTS:
        raise UsageError(f"{total} deployments are too many; at most {_MOST_DEPLOYMENTS}.", remedy="Shorten a range.")
    return [
        Spec(model, engine=engine, **dict(zip(axes, values, strict=True)), **same)
        for values in itertools.product(*axes.values())
    ]


def whole_numbers(text: str, place: str) -> list[int]:
    """Return the whole numbers above 0 of a text.

    Raises
    ------
    UsageError
        When one is none.
    """
    values = parse_sizes(text, place=place)
    for value in values:
        if not 1 <= value <= _LARGEST or value != int(value):
            raise UsageError(
                f"{value:g} is no whole number from 1 to {_LARGEST}.", place=place, remedy="Write 1, 1/2/4 or 1..8."
            )
    return [int(value) for value in values]


def rates(text: str) -> tuple[float, ...]:
    """Return the rates of ``--qps``, which may be infinite.

    Raises
    ------
    UsageError
        When one is not above 0.
    """
    values = [math.inf] if text.strip() == "inf" else parse_sizes(text, place="--qps")
    for value in values:
        if not value > 0:
            raise UsageError(
                f"a rate of {value:g} requests a second never sends one.", place="--qps", remedy="Give rates above 0."
            )
    return tuple(map(float, values))


def speculation_of(text: str | None, draft: str) -> tuple[int, float] | None:
    """Return tokens and acceptance of a text as "4:0.7".

    Raises
    ------
    UsageError
        When it is none, or a draft model has no such text.
    """
    if text is None:
        if draft:
            raise UsageError("--draft needs --speculate.", remedy="Add --speculate 4:0.7: tokens and acceptance.")
        return None
    tokens, _, acceptance = text.partition(":")
    try:
        return int(tokens), float(acceptance)
    except ValueError:
        raise UsageError(
            f"{text!r} is no number of tokens with an acceptance.", place="--speculate", remedy="Write 4:0.7."
        ) from None


def percentiles_of(text: str) -> tuple[float, ...]:
    """Return the percentiles of a text as "50,95,99".

    Raises
    ------
    UsageError
        When one is no number from 0 to 100.
    """
    values = []
    for word in text.split(","):
        try:
            value = float(word.strip().removeprefix("p"))
        except ValueError:
            value = math.nan
        if not 0 < value <= 100:
            raise UsageError(f"{word!r} is no percentile.", place="--percentiles", remedy="Write 50,95,99.")
        values.append(value)
    return tuple(values)


def evaluate(spec: Spec, study: Study, progress: Callable[[int], None] | None = None) -> Outcome:
    """Return what comes of a deployment; one that is impossible is a result with its reason."""
    try:
        deployment = spec.deployment()
        deployment.memory()
        return _evaluated(spec, deployment, study, progress)
    except InputFileError:
        raise
    except PerfModelError as error:
        return Outcome(spec, fault=str(error))


def _evaluated(spec: Spec, deployment: Deployment, study: Study, progress: Callable[[int], None] | None) -> Outcome:
    values = study.values or (() if study.load == REQUESTS else clients_that_fit(deployment, study.workload))
    points: list[Point] = []
    if study.steady:
        from perfmodel.serving.steady_points import steady_points

        price = study.price_per_gpu_hour
        points = steady_points(deployment, study.workload, values, slo=study.slo, price_per_gpu_hour=price)
    elif not study.only_largest:
        for value in values or (math.nan,):
            points.append(_point(deployment, study, value, progress))
            replay = points[-1].replay
            if replay is not None and replay.interrupted:
                return Outcome(spec, tuple(points))
    if study.slo is None or study.steady or study.load == REQUESTS:
        return Outcome(spec, tuple(points))
    largest = _largest(deployment, study)
    if largest is None:
        return Outcome(spec, tuple(points))
    point = _figures(deployment, study, _with_interval(deployment, study, largest), largest.load)
    return Outcome(spec, tuple(points), point, tuple(map(str, largest.missed)))


def _point(deployment: Deployment, study: Study, value: float, progress: Callable[[int], None] | None) -> Point:
    replay = simulate_fleet(
        deployment, study.requests(deployment, value), study.fleet, interval=study.interval, progress=progress
    )  # fmt: skip
    return _figures(deployment, study, replay, value)


def _figures(deployment: Deployment, study: Study, replay: Replay, value: float) -> Point:
    return point_of(
        deployment, study.fleet, replay, study.load, value, slo=study.slo, percentiles=study.percentiles,
        price_per_gpu_hour=study.price_per_gpu_hour,
    )  # fmt: skip


def _with_interval(deployment: Deployment, study: Study, largest: Largest) -> Replay:
    if not study.interval:
        return largest.replay
    return simulate_fleet(deployment, study.requests(deployment, largest.load), study.fleet, interval=True)


def _largest(deployment: Deployment, study: Study) -> Largest | None:
    assert study.slo is not None

    def replay(value: float) -> Replay:
        return simulate_fleet(deployment, study.requests(deployment, value), study.fleet, interval=False)

    if study.load == QPS:
        return largest_rate(replay, study.slo, study.values[0] if study.values else 1.0)
    most = max(study.values) if study.values else max(clients_that_fit(deployment, study.workload))
    return largest_concurrency(replay, study.slo, int(most))


def clients_that_fit(deployment: Deployment, workload: Workload) -> tuple[float, ...]:
    """Return 1, 2, 4, ... clients up to those that the cache holds, at most 256.

    Raises
    ------
    UsageError
        When not even one fits.
    """
    memory = deployment.memory()
    most = min(memory.max_batch(int(workload.isl), int(workload.osl)), deployment.sequence_limit, _MOST_CLIENTS)
    if most < 1:
        raise UsageError(
            f"not one request of {workload.isl:g} + {workload.osl:g} tokens fits: the KV cache holds "
            f"{memory.kv_tokens} tokens.",
            remedy="Use more GPUs, a smaller kv or weights format, or shorter requests.",
        )
    return (*(2.0**power for power in range(int(math.log2(most)) + 1)),)


def evaluate_all(specs: Sequence[Spec], study: Study, workers: int, scheduler: str = "") -> list[Outcome]:
    """Return the outcomes of deployments in their order; several processes give the same results.

    An interruption of this process keeps the outcomes so far.

    Parameters
    ----------
    specs, study : the deployments, and what to do with each.
    workers, scheduler : see `perfmodel.workers.executor`.

    Raises
    ------
    UsageError
        When the number of processes is impossible, or no deployment is possible.
    """
    with executor(workers, scheduler) as pool:
        if pool is None or len(specs) == 1:
            outcomes = _in_turn(specs, study)
        else:
            with counted(len(specs)) as advance:
                outcomes = list(mapped(partial(evaluate, study=study), specs, pool, advance))
    faults = [outcome for outcome in outcomes if outcome.fault]
    if len(faults) == len(outcomes):
        if len(faults) == 1:
            raise UsageError(faults[0].fault)
        raise UsageError(
            f"none of the {len(faults)} deployments is possible; the first: {faults[0].spec.name}: {faults[0].fault}"
        )
    return outcomes


def _in_turn(specs: Sequence[Spec], study: Study) -> list[Outcome]:
    outcomes: list[Outcome] = []
    loads = 1 if study.only_largest else max(1, len(study.values))
    single = len(specs) * loads == 1
    total = len(study.workload.requests(study.load, study.values[0] if study.values else 1)) if single else len(specs)
    with counted(total) as advance:
        for spec in specs:
            outcomes.append(evaluate(spec, study, advance if single else None))
            if outcomes[-1].interrupted:
                break
            advance(total if single else len(outcomes))
    return outcomes


def workload_of(workload: Workload, requests: Path | None, load: str) -> tuple[Workload, tuple[str, ...]]:
    """Return the workload with the requests of a file, if one is given, and what its reader noted.

    Raises
    ------
    InputFileError
        When the file is wrong, or has no arrivals and the load has none either.
    """
    if requests is None:
        return workload, ()
    from perfmodel.serving.arrivals import read_requests

    read = read_requests(requests, need_times=load == REQUESTS)
    isl, osl = (float(lengths.mean()) for lengths in (read.requests.prompt, read.requests.output))
    return replace(workload, trace=read.requests, isl=isl, osl=osl), read.notes


def load_of(concurrency: str | None, qps: str | None, requests: Path | None) -> tuple[str, tuple[float, ...]]:
    """Return the kind of load and its values from the options; clients if none is given.

    Raises
    ------
    UsageError
        When two kinds are given, or a value is impossible.
    """
    if concurrency is not None and qps is not None:
        raise UsageError("--concurrency and --qps are two loads.", remedy="Give one of them.")
    if qps is not None:
        return QPS, rates(qps)
    if concurrency is not None:
        return CONCURRENCY, tuple(map(float, whole_numbers(concurrency, "--concurrency")))
    return (REQUESTS, ()) if requests is not None else (CONCURRENCY, ())
