"""What becomes of many deployments under loads: one after another, or by workers that share them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from perfmodel.errors import PerfModelError, UsageError
from perfmodel.serving.points import REQUESTS
from perfmodel.serving.reasons import reasons_of
from perfmodel.serving.study import Outcome, Spec, Study, clients_that_fit, evaluate
from perfmodel.workers import executor, mapped
from perfmodel.workers.lost import ENDS, Ended

#: a bar of progress for a number of pieces of work: yields what is called with the number of those that are done
Bar = Callable[[int], AbstractContextManager[Callable[[int], None]]]
#: reasons that an error lists, where no deployment is possible
_REASONS = 3


@contextlib.contextmanager
def no_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows no progress."""
    del total
    yield lambda done: None


def evaluate_all(
    specs: Sequence[Spec], study: Study, workers: int = 1, scheduler: str = "", bar: Bar = no_bar
) -> list[Outcome]:
    """Return the outcomes of deployments in their order; several processes give the same results.

    An interruption, and the loss of the workers, keep the outcomes so far; the other deployments are `Outcome.ended`.

    Parameters
    ----------
    specs, study : the deployments, and what to do with each.
    workers, scheduler : see `perfmodel.workers.executor`.
    bar : shows how many deployments, loads or requests are done.

    Raises
    ------
    UsageError
        When the number of processes is impossible, or no deployment is possible.
    KeyboardInterrupt, WorkersLostError
        When nothing was known before the interruption, or the loss of the workers.
    """
    parts = [[study]] * len(specs)
    results: dict[int, Outcome] = {}
    ended: Ended = KeyboardInterrupt()
    try:
        with executor(workers, scheduler) as pool:
            if pool is not None:
                parts = [_parts(spec, study) for spec in specs]
            tasks = [(spec, part) for spec, of_spec in zip(specs, parts, strict=True) for part in of_spec]
            if pool is None or len(tasks) == 1:
                _keep(_in_turn(specs, study, bar), results)
            else:
                with bar(len(tasks)) as advance:
                    _keep(mapped(_evaluate_part, tasks, pool, advance, results), results)
    except ENDS as error:
        ended = error
    places = itertools.count()
    outcomes = [
        _joined(spec, [results.get(next(places)) for _ in of_spec], ended)
        for spec, of_spec in zip(specs, parts, strict=True)
    ]
    known = any(outcome.points or outcome.largest for outcome in outcomes)
    if not known and any(outcome.ended for outcome in outcomes):
        raise ended
    check_possible(outcomes)
    return outcomes


def _keep(outcomes: Iterable[Outcome], results: dict[int, Outcome]) -> None:
    """Put outcomes into ``results`` one by one, so that those before an interruption stay."""
    for place, outcome in enumerate(outcomes):
        results[place] = outcome  # noqa: PERF403 -- as above


def _parts(spec: Spec, study: Study) -> list[Study]:
    """Return the independent parts of a study of a deployment: each load, and the search for the largest one."""
    if study.steady or study.only_largest or study.load == REQUESTS:
        return [study]
    try:
        values = study.values or clients_that_fit(spec.deployment(), study.workload)
    except PerfModelError:
        return [study]  # which fails as well, where it is reported
    parts = [replace(study, values=(value,), only_loads=True) for value in values]
    return parts if study.slo is None else [*parts, replace(study, only_largest=True)]


def _evaluate_part(task: tuple[Spec, Study]) -> Outcome:
    """Return what comes of a part of a study; a function of a worker process."""
    return evaluate(*task)


def end_of(outcomes: Iterable[Outcome]) -> Ended | None:
    """Return what ended work, or a simulation, before all outcomes were known."""
    return next((outcome.ended or KeyboardInterrupt() for outcome in outcomes if outcome.interrupted), None)


def _joined(spec: Spec, parts: Sequence[Outcome | None], ended: Ended) -> Outcome:
    """Return what came of a deployment from what came of its parts; None for those that ``ended`` left unknown."""
    known = [part for part in parts if part is not None]
    fault = next((part.fault for part in known if part.fault), "")
    if fault:
        return Outcome(spec, fault=fault)
    points = tuple(point for part in known for point in part.points)
    best = next((part for part in known if part.largest), Outcome(spec))
    of_part = next((part.ended for part in known if part.ended), None)
    return Outcome(spec, points, best.largest, best.beyond, ended=ended if len(known) < len(parts) else of_part)


def check_possible(outcomes: Sequence[Outcome]) -> None:
    """Raise a UsageError where no deployment is possible."""
    faults = [outcome for outcome in outcomes if outcome.fault]
    if len(faults) < len(outcomes):
        return
    reasons = reasons_of(faults)
    if len({outcome.fault for outcome in faults}) == 1:
        raise UsageError(faults[0].fault)
    none = f"none of the {len(faults)} deployments is possible"
    if len(reasons) == 1:
        raise UsageError(f"{none}; {reasons[0].of_one}: {reasons[0].text}")
    counted = (
        f"({reason.count}{f'; {reason.of_one}' if reason.of_one else ''}) {reason.text}"
        for reason in reasons[:_REASONS]
    )
    raise UsageError(f"{none}. {' '.join(counted)}")


def _in_turn(specs: Sequence[Spec], study: Study, bar: Bar) -> Iterator[Outcome]:
    loads = 1 if study.only_largest else max(1, len(study.values))
    single = len(specs) * loads == 1
    total = len(study.workload.requests(study.load, study.values[0] if study.values else 1)) if single else len(specs)
    with bar(total) as advance:
        for done, spec in enumerate(specs, start=1):
            outcome = evaluate(spec, study, advance if single else None)
            yield outcome
            if outcome.interrupted:
                break
            advance(total if single else done)
