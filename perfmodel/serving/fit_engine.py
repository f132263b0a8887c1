"""Fitting the constants of an engine to measured runs: host, gaps between kernels, and the effect of sustained load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.run_table import RunTable
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.errors import InputFileError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import Engine
from perfmodel.serving.published import predicted_step
from perfmodel.serving.published_case import Case, Setup, SkipRun, profile_of
from perfmodel.serving.published_tables import reader_of

Array = NDArray[np.float64]

#: values that are tried: host of a step [s], gap between kernels [s], products under sustained load
HOSTS = np.linspace(0.0, 6e-3, 61)
GAPS = np.linspace(0.0, 3e-6, 16)
HOTS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
#: fewest runs of a fit; a constant is identified if doubling or dropping it adds this share to the error
FEWEST, NOTABLE = 6, 0.02


@dataclass(frozen=True)
class EngineFit(Reportable):
    """Fitted constants of an engine.

    Attributes
    ----------
    before, engine : the profile before and after.
    runs : number of runs.
    error_before, error : mean of |ln(predicted / measured)| of the time of a step.
    identified : constant -> whether the runs tell it: the error grows without it.
    """

    before: Engine
    engine: Engine
    runs: int
    error_before: float
    error: float
    identified: dict[str, bool]


def engine_cases(tables: Sequence[RunTable], engine: Engine) -> list[Case]:
    """Return the runs of an engine in some tables that tell the time of a step.

    Raises
    ------
    InputFileError
        When there are fewer than `FEWEST`.
    """
    found: list[Case] = []
    for table in tables:
        reader = reader_of(table.columns)
        for run in table.runs if reader else ():
            try:
                case = reader(run) if reader else None
                if case and profile_of(case.setup.engine, case.setup.version) == engine.name and case.load == "steady":
                    found.append(case)
            except SkipRun:
                continue
    if len(found) < FEWEST:
        places = ", ".join(table.place for table in tables)
        raise InputFileError(
            f"{len(found)} runs of {engine.name} with a steady load are too few to fit.",
            place=places,
            remedy=f"Give {FEWEST} or more, with concurrency or maximum throughput.",
        )
    return found


def fit_engine(cases: Sequence[Case], engine: Engine, find: Callable[[str], Hardware]) -> EngineFit:
    """Return the engine with the host's time, the gap and the effect of load at which its runs are predicted best.

    The time of a step is linear in host and gap, so that each value of the load's effect needs one prediction.

    Raises
    ------
    InputFileError
        When the runs of too few deployments can be predicted.
    """
    steps = {hot: _Steps.of(cases, _with_hot(replace(engine, host_s=0.0, gap_s=0.0), hot), find) for hot in HOTS}
    if len(steps[HOTS[0]].measured) < FEWEST:
        raise InputFileError("too few of the runs can be predicted.", place=engine.name)
    choices = [(*steps[hot].best(), hot) for hot in HOTS]
    error, host, gap, hot = min(choices)
    fitted = _with_hot(replace(engine, host_s=host, gap_s=gap), hot)
    best = steps[hot]
    worst_hot = max(choice[0] for choice in choices)
    identified = {
        "host": min(best.error(0.0, gap), best.error(2.0 * host + 1e-4, gap)) > error + NOTABLE,
        "gap": min(best.error(host, 0.0), best.error(host, 2.0 * gap + 1e-6)) > error + NOTABLE,
        "hot": worst_hot > error + NOTABLE,
    }
    before = step_error(cases, engine, find)
    fitted = _with_sources(fitted, identified, cases, len(best.measured))
    return EngineFit(engine, fitted, len(best.measured), before, error, identified)


def _with_sources(engine: Engine, identified: dict[str, bool], cases: Sequence[Case], runs: int) -> Engine:
    """Return the engine with these runs as the source of its fitted constants, and what they tell of each."""
    tables = ", ".join(dict.fromkeys(case.run.table for case in cases))
    words = {True: "its runs tell it", False: "not told by its runs"}
    sources = dict.fromkeys(identified, f"perfmodel calibrate on {runs} runs of {tables}")
    errors = {name: words[known] for name, known in identified.items()}
    told_by = {**engine.sources, **sources}, {**engine.errors, **errors}
    return replace(engine, own=True, sources=told_by[0], errors=told_by[1])


def step_error(cases: Sequence[Case], engine: Engine, find: Callable[[str], Hardware]) -> float:
    """Return the mean of |ln(predicted / measured)| of the time of a step of some runs with a profile."""
    return _Steps.of(cases, engine, find).error(0.0, 0.0)


def _with_hot(engine: Engine, hot: float) -> Engine:
    """Return the engine with one effect of load on all machines where it had any."""
    named = dict.fromkeys(engine.hot, hot) or {"default": hot}
    return replace(engine, hot=named)


@dataclass(frozen=True)
class _Steps:
    """Measured and predicted times of steps [s], and the kernels of each."""

    measured: Array
    predicted: Array
    kernels: Array

    @classmethod
    def of(cls, cases: Sequence[Case], engine: Engine, find: Callable[[str], Hardware]) -> _Steps:
        deployments: dict[Setup, Deployment | None] = {}
        rows = []
        for case in cases:
            if case.setup not in deployments:
                deployments[case.setup] = _deployment(case, engine, find)
            deployment = deployments[case.setup]
            if deployment is None:
                continue
            kernels = deployment.table.kernels_per_layer * deployment.part.layers * deployment.pp
            rows += [(measured, value, kernels) for measured, value in predicted_step(deployment, case)]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return cls(*columns)

    def error(self, host: float, gap: float) -> float:
        """Return the mean of |ln(predicted / measured)| with a time of the host and a gap."""
        return float(np.mean(np.abs(np.log((self.predicted + host + gap * self.kernels) / self.measured))))

    def best(self) -> tuple[float, float, float]:
        """Return the least error, with the host's time and the gap that give it."""
        times = self.predicted + HOSTS[:, None, None] + GAPS[None, :, None] * self.kernels
        errors = np.abs(np.log(times / self.measured)).mean(axis=-1)
        host, gap = np.unravel_index(int(np.argmin(errors)), errors.shape)
        return float(errors[host, gap]), float(HOSTS[host]), float(GAPS[gap])


def _deployment(case: Case, engine: Engine, find: Callable[[str], Hardware]) -> Deployment | None:
    try:
        return case.setup.deployment(find, int(case.isl + case.osl) + 1, engine)
    except SkipRun:
        return None
