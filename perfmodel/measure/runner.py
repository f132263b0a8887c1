"""Running a benchmark: each kernel of each operator is checked, timed, and made into a row. Nothing stops it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from perfmodel.analysis.predict import predict
from perfmodel.core.hardware import Hardware
from perfmodel.core.results import Prediction
from perfmodel.core.units import format_binary
from perfmodel.errors import UsageError, unknown_name
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel, find_kernels
from perfmodel.measure.nvtx_range import nvtx_range
from perfmodel.measure.rows import FAILED, OK, OUT_OF_MEMORY, SKIPPED, WRONG, Outcome, build_row
from perfmodel.measure.stopping import StandardErrorRule, StoppingRule
from perfmodel.measure.telemetry import NoTelemetry, NvmlTelemetry
from perfmodel.measure.timer import CACHE_MODES, time_call
from perfmodel.operators import Operator

#: of the free memory, the share that one kernel may plan to use: the check and the allocator need the rest
_USABLE = 0.8


@dataclass(frozen=True)
class Job:
    """One kernel to run; ``kernel`` is None for an operator that has none."""

    op: Operator
    kernel: Kernel | None
    prediction: Prediction


@dataclass(frozen=True)
class Settings:
    """How every kernel of a run is measured.

    Attributes
    ----------
    cache : "flushed" or "warm".
    seed : of the random inputs.
    rule : when there are samples enough.
    """

    cache: str = "flushed"
    seed: int = 0
    rule: StoppingRule = field(default_factory=StandardErrorRule)

    def __post_init__(self) -> None:
        if self.cache not in CACHE_MODES:
            raise unknown_name("cache mode", self.cache, CACHE_MODES, place="--cache")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"{self.seed} is no seed.", place="--seed", remedy="Give 0 to 2^63 - 1.")


def plan(
    operators: Sequence[Operator], hardware: Hardware, kernels: Sequence[str] = (), cache: str = "flushed"
) -> list[Job]:
    """Return every kernel to run, in order, with its prediction.

    Parameters
    ----------
    operators : what to run; a range is spread into its points.
    hardware : the machine to predict for.
    kernels : names, or shell patterns of names; empty runs all.
    cache : state of the caches before each sample, as in `Settings`.

    Raises
    ------
    UsageError
        When the machine has no peak for a dtype, a name fits no kernel, or a range spans very many points.
    """
    jobs: list[Job] = []
    names: set[str] = set()
    for op in operators:
        found = find_kernels(op.op)
        names |= {kernel.name for kernel in found}
        for point in points(op):
            prediction = predict(point, hardware, cache="warm" if cache == "warm" else "cold")
            wanted = [kernel for kernel in found if kernel.applies(point) and _is_wanted(kernel, kernels)]
            jobs.extend(Job(point, kernel, prediction) for kernel in wanted)
            if not found:
                jobs.append(Job(point, None, prediction))
    for name in kernels:
        if not any(fnmatchcase(known, name) for known in names):
            raise unknown_name("kernel", name, names, place="--kernel")
    return jobs


def split_by_peak(operators: Sequence[Operator], hardware: Hardware) -> tuple[list[Operator], list[str]]:
    """Return the operators that a machine has a peak for, and why it cannot run the others, each reason once."""
    kept, reasons = [], dict[str, None]()
    for op in operators:
        try:
            predict(op, hardware)
        except UsageError as error:
            reasons[str(error)] = None
        else:
            kept.append(op)
    return kept, list(reasons)


def _is_wanted(kernel: Kernel, names: Sequence[str]) -> bool:
    return not names or any(fnmatchcase(kernel.name, name) for name in names)


#: points of one operator's ranges that a benchmark takes
_MOST_POINTS = 10_000


def points(op: Operator) -> list[Operator]:
    """Return an operator with array dimensions as one operator a point, with plain dimensions.

    Raises
    ------
    UsageError
        When there are more than 10,000 points.
    """
    rules, told = op.dimensions(), op.told()
    given = {name: getattr(op, name) for name, rule in rules.items() if not rule.get("optional") or name in told} | {
        "name": op.name,
        "dtype": op.dtype,
    }
    shape = np.broadcast_shapes(*(np.shape(value) for value in given.values()))
    if shape == ():
        return [op]
    count = int(np.prod(shape))
    if count > _MOST_POINTS:
        raise UsageError(f"{count} points are too many to run; at most {_MOST_POINTS}.", place=op.op)
    flat = {name: np.broadcast_to(value, shape).ravel().tolist() for name, value in given.items() if np.ndim(value) > 0}
    return [type(op)(**(given | {name: values[i] for name, values in flat.items()})) for i in range(count)]


def run(
    jobs: Sequence[Job],
    device: Device,
    hardware: Hardware,
    settings: Settings,
    telemetry: NoTelemetry | NvmlTelemetry | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the row of each job as soon as it is done. Failures are rows too; only an interrupt ends it early."""
    telemetry = telemetry or NoTelemetry()
    shared = _Inputs(device, settings.seed)
    for job in jobs:
        outcome = _outcome(job, device, settings, telemetry, shared)
        yield build_row(job.op, job.prediction, job.kernel, outcome, hardware, settings.cache)


def collect(
    rows: Iterator[dict[str, Any]], keep: Callable[[list[dict[str, Any]]], None]
) -> tuple[list[dict[str, Any]], bool]:
    """Return all rows, and whether Ctrl-C cut them short; ``keep`` sees the rows so far after each one."""
    done: list[dict[str, Any]] = []
    try:
        for row in rows:
            done.append(row)
            keep(done)
    except KeyboardInterrupt:
        return done, True
    return done, False


class _Inputs:
    """The inputs of one operator at a time, shared by its kernels."""

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._seed = seed
        self._op: Operator | None = None
        self._made: Mapping[str, Any] = {}

    def of(self, op: Operator) -> Mapping[str, Any]:
        """Return the inputs of an operator; those of the one before are dropped first."""
        if op is not self._op:
            from perfmodel.kernels.inputs import make_inputs

            self.drop()
            self._made = make_inputs(op, self._device.kind, self._seed)
            self._op = op
        return self._made

    def drop(self) -> None:
        """Forget the inputs, so that their memory is free."""
        self._op, self._made = None, {}


def _outcome(
    job: Job, device: Device, settings: Settings, telemetry: NoTelemetry | NvmlTelemetry, shared: _Inputs
) -> Outcome:
    """Run one kernel; whatever goes wrong becomes a status."""
    if job.kernel is None:
        return Outcome(SKIPPED, f"there is no kernel for {job.op.op} yet")
    reason = job.kernel.supports(job.op, device)
    if reason:
        return Outcome(SKIPPED, reason)
    shortage = _shortage(job.op, job.kernel, device)
    if shortage:
        return Outcome(OUT_OF_MEMORY, shortage)
    try:
        with nvtx_range(f"{job.op.op} {job.kernel.name}"):
            return _measure(job.op, job.kernel, device, settings, telemetry, shared.of(job.op))
    except Exception as error:  # noqa: BLE001 -- a kernel may raise anything, and the others are to run
        shared.drop()
        device.release_memory()
        message = next(iter(str(error).splitlines()), "")
        if device.is_out_of_memory(error):
            return Outcome(OUT_OF_MEMORY, message)
        return Outcome(FAILED, f"{type(error).__name__}: {message}")


def _shortage(op: Operator, kernel: Kernel, device: Device) -> str:
    """Return why a kernel does not fit the memory that is free, or an empty string.

    Asked first, because a system that overcommits memory kills the process instead of refusing.
    """
    needed = float(op.work().working_set_bytes) + kernel.workspace_bytes(op)
    free = device.free_memory_bytes()
    if needed <= _USABLE * free:
        return ""
    return f"it needs {format_binary(needed)}, and {format_binary(free)} are free"


def _measure(
    op: Operator,
    kernel: Kernel,
    device: Device,
    settings: Settings,
    telemetry: NoTelemetry | NvmlTelemetry,
    inputs: Mapping[str, Any],
) -> Outcome:
    """Check a kernel, then time it."""
    from perfmodel.kernels.check import check

    with device.precision(op.dtype):
        call = kernel.prepare(op, inputs)
        verdict = check(op, inputs, call(), settings.seed)
        if not verdict.correct:
            return Outcome(
                WRONG, verdict.message, None, False, verdict.max_relative_error, verdict.checked, telemetry.read()
            )
        timing = time_call(call, device, settings.rule, cache=settings.cache)
    return Outcome(OK, "", timing, True, verdict.max_relative_error, verdict.checked, telemetry.read())


def with_time_limit(rule: StandardErrorRule, time_limit_s: float) -> StandardErrorRule:
    """Return the rule with another time limit.

    Raises
    ------
    UsageError
        When the limit is not a positive, finite number of seconds.
    """
    if not 0 < time_limit_s < float("inf"):
        raise UsageError(f"a time limit of {time_limit_s} s is not positive.", place="--time-limit")
    return dataclasses.replace(rule, time_limit_s=time_limit_s)
