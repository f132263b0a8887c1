"""Running a benchmark: each kernel of each operator is checked, timed, and made into a row. Nothing stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from perfmodel.accuracy.measured import library_of
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UnavailableError, UsageError, unknown_name
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel, find_kernels, load_kernel
from perfmodel.measure.benchmark.one_kernel import Bench, Job
from perfmodel.measure.benchmark.rows import build_row, implementation_of
from perfmodel.measure.benchmark.settings import Settings
from perfmodel.measure.telemetry.clock_guard import ClockGuard
from perfmodel.measure.telemetry.nvml import NoTelemetry, Telemetry, default_clock_hz
from perfmodel.measure.telemetry.sampler import Sampler
from perfmodel.operators import Operator
from perfmodel.prediction.predict import predict


def plan(
    operators: Sequence[Operator],
    hardware: Hardware,
    kernels: Sequence[str] = (),
    cache: str = "flushed",
) -> list[Job]:
    """Return every kernel to run, in order, with its prediction.

    Parameters
    ----------
    operators : what to run; a range is spread into its points.
    hardware : the machine to predict for.
    kernels : names, shell patterns of names, or "module:function" for a function of the user's; empty runs all but
        those that compile for seconds.
    cache : state of the caches before each sample, as in `Settings`.

    Raises
    ------
    UsageError
        When the machine has no peak for a dtype, a name fits no kernel, a function cannot be loaded, or a range
        spans very many points.
    """
    jobs: list[Job] = []
    names: set[str] = set()
    own = [name for name in kernels if ":" in name]
    patterns = [name for name in kernels if ":" not in name]
    for op in operators:
        known = find_kernels(op.op)
        names |= {kernel.name for kernel in known}
        found = [*(load_kernel(spec, op.op) for spec in own), *_wanted(known, patterns, bool(own))]
        for point in points(op):
            jobs.extend(_job(point, kernel, hardware, cache) for kernel in found if kernel.applies(point))
            if not known and not own:
                jobs.append(_job(point, None, hardware, cache))
    for name in patterns:
        if not any(fnmatchcase(known_name, name) for known_name in names):
            raise unknown_name("kernel", name, names, place="--kernel")
    return jobs


def _wanted(known: Sequence[Kernel], patterns: Sequence[str], own: bool) -> list[Kernel]:
    """Return the kernels that fit a pattern; without any, all but slow compilers, or none beside a user's function."""
    if patterns or own:
        return [kernel for kernel in known if any(fnmatchcase(kernel.name, pattern) for pattern in patterns)]
    return [kernel for kernel in known if not kernel.compiles]


def _job(op: Operator, kernel: Kernel | None, hardware: Hardware, cache: str) -> Job:
    state = {"flushed": "cold"}.get(cache, cache)
    library = library_of(implementation_of(kernel)) if kernel else ""
    return Job(op, kernel, predict(op, hardware, cache=state, library=library))


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


def first_supported(jobs: Sequence[Job], device: Device) -> list[Job]:
    """Return one job of each point, the first that a device can run: the library's call, or else what there is."""
    chosen: dict[int, Job] = {}
    for job in jobs:
        known = chosen.get(id(job.op))
        if known is None or (_refusal(known, device) and not _refusal(job, device)):
            chosen[id(job.op)] = job
    return list(chosen.values())


def _refusal(job: Job, device: Device) -> str:
    """Return why a device cannot run a job, or an empty string."""
    return job.kernel.supports(job.op, device) if job.kernel else "there is no kernel"


def split_supported(jobs: Sequence[Job], device: Device) -> tuple[list[Job], list[str]]:
    """Return the jobs that a device can run, and which kernels it cannot, a sentence for each reason.

    An operator that no kernel can run keeps its jobs: they become rows that say so.
    """
    reasons = [_refusal(job, device) for job in jobs]
    runs = {id(job.op) for job, reason in zip(jobs, reasons, strict=True) if not reason}
    kept = [job for job, reason in zip(jobs, reasons, strict=True) if not reason or id(job.op) not in runs]
    left: dict[str, dict[str, None]] = {}
    for job, reason in zip(jobs, reasons, strict=True):
        if job.kernel and reason and id(job.op) in runs:
            left.setdefault(reason, {})[job.kernel.name] = None
    return kept, [f"left out {', '.join(names)}: {reason}" for reason, names in left.items()]


#: points of one operator's ranges that a benchmark takes
_MOST_POINTS = 10_000


def points(op: Operator) -> list[Operator]:
    """Return an operator with array dimensions as one operator a point, with plain dimensions.

    Raises
    ------
    UsageError
        When there are more than 10,000 points.
    """
    rules, told = op.dimensions(), op.given()
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
    telemetry: Telemetry | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the row of each job as soon as it is done.

    Failures are rows too. Only an interrupt ends it early, and an UnavailableError once a kernel has broken the device.
    """
    telemetry = telemetry or NoTelemetry()
    with Sampler(telemetry) as sampler:
        bench = Bench(device, settings, sampler, ClockGuard(sampler, default_clock_hz(telemetry.facts())))
        for job in jobs:
            outcome = bench.outcome(job)
            yield build_row(
                job.op,
                job.prediction,
                job.kernel,
                outcome,
                hardware,
                settings.cache,
                keep_samples=settings.keep_samples,
            )


def collect(
    rows: Iterator[dict[str, Any]], keep: Callable[[list[dict[str, Any]]], None]
) -> tuple[list[dict[str, Any]], KeyboardInterrupt | UnavailableError | None]:
    """Return all rows, and what cut them short: Ctrl-C, a device that is lost, or None.

    ``keep`` sees the rows so far after each one.
    """
    done: list[dict[str, Any]] = []
    try:
        for row in rows:
            done.append(row)
            keep(done)
    except (KeyboardInterrupt, UnavailableError) as stopped:
        return done, stopped
    return done, None
