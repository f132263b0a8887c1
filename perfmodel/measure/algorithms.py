"""Measuring the algorithms of a problem against each other, beside what is predicted for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.kernels.algorithms.base import Contest
from perfmodel.kernels.device import Device
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.timing.timer import TimedCall, time_call
from perfmodel.operators.base import Operator
from perfmodel.prediction.algorithms import find_problem
from perfmodel.prediction.algorithms.base import Cost, Problem
from perfmodel.prediction.algorithms.choice import Choice, choose_for

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One algorithm at one size.

    Attributes
    ----------
    problem, algorithm, size : what ran.
    op : the operator that states the problem at this size.
    timed : its samples, None where it did not run.
    message : why it did not run, or what is wrong with its output; "" for a correct one.
    predicted : what is predicted for it, None where nothing is.
    """

    problem: str
    algorithm: str
    size: float
    op: Operator
    timed: TimedCall | None
    message: str
    predicted: Cost | None

    @property
    def least_s(self) -> float:
        """The fastest sample, which a busy machine disturbed least [s]; NaN without a correct one."""
        return min(self.timed.samples_s) if self.timed and not self.message else math.nan


@dataclass(frozen=True)
class Pair:
    """Two algorithms of a problem: from which size on the other one is faster, measured and predicted.

    Attributes
    ----------
    problem, dimension : the problem and its size.
    first, second : the algorithms.
    measured_size, predicted_size : the crossover; None where one of them is faster at all sizes.
    measured_ratio, predicted_ratio : time of the first over that of the second, at the largest size that was measured.
    largest : that size.
    """

    problem: str
    dimension: str
    first: str
    second: str
    measured_size: float | None
    predicted_size: float | None
    measured_ratio: float
    predicted_ratio: float
    largest: float


@dataclass(frozen=True)
class Contests(Reportable):
    """Measured algorithms: runs, pairs, and the choices that predict them."""

    runs: tuple[Run, ...]
    pairs: tuple[Pair, ...]
    choices: tuple[Choice, ...]
    machine: Hardware


def run_contests(
    contests: Iterable[Contest],
    device: Device,
    machine: Hardware,
    settings: BenchSettings,
    *,
    long: bool = False,
    progress: Progress = lambda text: None,
) -> Contests:
    """Measure every kernel of some contests at every size.

    Parameters
    ----------
    contests : the problems and their kernels.
    device, machine : where they run, and the machine of the predictions.
    settings : how each kernel is timed.
    long : also the larger sizes.
    progress : is told what runs next.
    """
    runs: list[Run] = []
    pairs: list[Pair] = []
    choices: list[Choice] = []
    for contest in contests:
        problem = find_problem(contest.problem)
        sizes = (*contest.sizes, *(contest.more_sizes if long or device.kind != "cpu" else ()))
        here = [
            run
            for size in sizes
            for run in _at(contest, problem, contest.operator(size), size, device, machine, settings, progress)
        ]
        choice = choose_for(problem, contest.operator(sizes[-1]), machine)
        runs += here
        choices.append(choice)
        pairs += _pairs(choice, here)
    return Contests(tuple(runs), tuple(pairs), tuple(choices), machine)


def _at(
    contest: Contest,
    problem: Problem,
    op: Operator,
    size: float,
    device: Device,
    machine: Hardware,
    settings: BenchSettings,
    progress: Progress,
) -> list[Run]:
    """Measure all kernels of a contest at one size."""
    predicted = {cost.algorithm: cost for cost in problem.costs(op, machine)}
    runs = []
    with device.precision(op.dtype):
        inputs = contest.inputs(op, device.kind, settings.seed)
        for name, prepare in contest.kernels.items():
            timed, message = None, ""
            if name in contest.cpu_only and device.kind != "cpu":
                message = "runs on the host"
            else:
                progress(f"{contest.problem} {name} at {size:.12g}")
                call = prepare(inputs, op)
                message = contest.check(op, inputs, call(), name)
                timed = None if message else time_call(
                    call, device, settings.rule, cache=settings.cache, timing=settings.timing
                )  # fmt: skip
            runs.append(Run(contest.problem, name, size, op, timed, message, predicted.get(name)))
    device.release_memory()
    return runs


def _pairs(choice: Choice, runs: Sequence[Run]) -> list[Pair]:
    """Return each pair of algorithms that both ran."""
    times: dict[str, dict[float, float]] = {}
    for run in runs:
        if math.isfinite(run.least_s):
            times.setdefault(run.algorithm, {})[run.size] = run.least_s
    return [_pair(choice, (first, times[first]), (second, times[second]))
            for first, second in itertools.combinations(times, 2)]  # fmt: skip


def _pair(choice: Choice, one: tuple[str, Mapping[float, float]], other: tuple[str, Mapping[float, float]]) -> Pair:
    (first, first_s), (second, second_s) = one, other
    sizes = sorted(set(first_s) & set(second_s))
    ratios = [first_s[size] / second_s[size] for size in sizes]
    here = {cost.algorithm: cost.time_s for cost in choice.at(sizes[-1])}
    return Pair(
        problem=choice.problem.name,
        dimension=choice.problem.size,
        first=first,
        second=second,
        measured_size=interpolated(sizes, ratios),
        predicted_size=choice.crossover(first, second),
        measured_ratio=ratios[-1],
        predicted_ratio=here.get(first, math.nan) / here.get(second, math.nan),
        largest=sizes[-1],
    )


def interpolated(sizes: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Return the size at which a ratio passes 1, on straight lines in the logarithms; None where it never does.

    >>> interpolated([1.0, 100.0], [0.5, 2.0]), interpolated([1.0, 2.0], [2.0, 3.0])
    (10.0, None)
    """
    for (low, before), (high, after) in itertools.pairwise(zip(sizes, ratios, strict=True)):
        if (before < 1.0) != (after < 1.0):
            share = math.log(before) / (math.log(before) - math.log(after))
            return round(float(low * (high / low) ** share), 9)
    return None


def time_statistics(run: Run) -> Mapping[str, Any] | None:
    """Return the statistics of a run's samples [s], None where it did not run."""
    return run.timed.statistics() if run.timed else None
