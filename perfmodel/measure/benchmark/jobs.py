"""What a benchmark runs: every kernel of every point of its operators, with the prediction for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState
from perfmodel.errors import UsageError, unknown_name
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel, find_kernels, load_kernel
from perfmodel.operators import Operator
from perfmodel.prediction.implementations import library_of, named
from perfmodel.prediction.predict import predict
from perfmodel.prediction.result import Prediction

#: most points that one operator's ranges may span in a benchmark
_MOST_POINTS = 10_000

JobKey = tuple[str, str, str, str]


@dataclass(frozen=True)
class Job:
    """One kernel to run; ``kernel`` is None for an operator that has none."""

    op: Operator
    kernel: Kernel | None
    prediction: Prediction

    @property
    def key(self) -> JobKey:
        """What distinguishes the job from others: operator, dimensions, kernel and backend; see `key_of_row`."""
        row = {**self.prediction.rows()[0], "name": self.op.name or self.op.op}
        row |= {"kernel": self.kernel.name, "backend": self.kernel.backend} if self.kernel else {}
        return key_of_row(row)


def key_of_row(row: Mapping[str, Any]) -> JobKey:
    """Return the key of the job that a row of a record came from."""
    shape = json.dumps([row["name"], row["dtype"], row["count"], row["params"]], sort_keys=True)
    return row["op"], shape, row.get("kernel") or "", row.get("backend") or ""


def implementation_of(kernel: Kernel, release: str = "") -> str:
    """Return a kernel's name in tables of measurements: "torch-2.11.0-torch.matmul"; the backend is the "library".

    Parameters
    ----------
    release : of the backend; "" where it is not known.
    """
    return f"{named(kernel.backend, release)}-{kernel.name}"


def plan(
    operators: Sequence[Operator],
    hardware: Hardware,
    kernels: Sequence[str] = (),
    cache: CacheState = CacheState.COLD,
    releases: Mapping[str, str] = MappingProxyType({}),
) -> list[Job]:
    """Return every kernel to run, in order, with its prediction.

    Parameters
    ----------
    operators : what to run; a range is expanded into its points.
    hardware : the machine to predict for.
    kernels : names, shell patterns of names, or "module:function" for a function of the user's; empty runs all but
        those that compile for seconds.
    cache : what the caches hold before each sample.
    releases : backend of kernels -> the release of it that runs, whose kernels are predicted; without one those of
        today.

    Raises
    ------
    UsageError
        When the machine has no peak for a dtype, a name fits no kernel, a function cannot be loaded, or a range
        spans too many points.
    """
    check_kernels(operators, kernels)
    jobs: list[Job] = []
    own = [name for name in kernels if ":" in name]
    patterns = [name for name in kernels if ":" not in name]
    for op in operators:
        known = find_kernels(op.op)
        chosen = [*(load_kernel(spec, op.op) for spec in own), *_chosen(known, patterns, bool(own))]
        for point in points(op):
            jobs.extend(_job(point, kernel, hardware, cache, releases) for kernel in chosen if kernel.computes(point))
            if not own and not any(kernel.computes(point) for kernel in known):
                jobs.append(Job(point, None, predict(point, hardware, cache=cache)))
    return jobs


def check_kernels(operators: Sequence[Operator], kernels: Sequence[str]) -> None:
    """Check that each name of ``kernels`` stands for a kernel of one of the operators, or for a function; see `plan`.

    Raises
    ------
    UsageError
        When a name fits no kernel, or a function cannot be loaded.
    """
    names = {kernel.name for op in operators for kernel in find_kernels(op.op)}
    for name in kernels:
        if ":" in name:
            for op in operators:
                load_kernel(name, op.op)
        elif not any(fnmatchcase(known, name) for known in names):
            raise unknown_name("kernel", name, names, place="--kernel")


def _chosen(known: Sequence[Kernel], patterns: Sequence[str], own: bool) -> list[Kernel]:
    """Return the kernels that fit a pattern; without any, all but slow compilers, or none beside a user's function."""
    if patterns or own:
        return [kernel for kernel in known if any(fnmatchcase(kernel.name, pattern) for pattern in patterns)]
    return [kernel for kernel in known if not kernel.compiles]


def _job(op: Operator, kernel: Kernel, hardware: Hardware, cache: CacheState, releases: Mapping[str, str]) -> Job:
    release = releases.get(kernel.backend, "")
    library = named(library_of(implementation_of(kernel, release)), release)
    return Job(op, kernel, predict(op, hardware, cache=cache, library=library))


def points(op: Operator) -> list[Operator]:
    """Return an operator with array dimensions as one operator for each point, with plain dimensions.

    Raises
    ------
    UsageError
        When there are more than 10,000 points.
    """
    rules, given = op.dimensions(), op.given()
    values = {name: getattr(op, name) for name, rule in rules.items() if not rule.get("optional") or name in given} | {
        "name": op.name,
        "dtype": op.dtype,
    }
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    if shape == ():
        return [op]
    count = int(np.prod(shape))
    if count > _MOST_POINTS:
        raise UsageError(f"{count} points are too many to run; at most {_MOST_POINTS}.", place=op.op)
    flat = {
        name: np.broadcast_to(value, shape).ravel().tolist() for name, value in values.items() if np.ndim(value) > 0
    }
    return [type(op)(**(values | {name: sizes[i] for name, sizes in flat.items()})) for i in range(count)]


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
    """Return one job for each point: the first that a device can run, which is the library's call where it can."""
    chosen: dict[int, Job] = {}
    for job in jobs:
        current = chosen.get(id(job.op))
        if current is None or (_refusal(current, device) and not _refusal(job, device)):
            chosen[id(job.op)] = job
    return list(chosen.values())


def split_supported(jobs: Sequence[Job], device: Device) -> tuple[list[Job], list[str]]:
    """Return the jobs that a device can run, and a sentence for each reason why it cannot run others.

    An operator that no kernel can run keeps its jobs; their rows state the reason.
    """
    reasons = [_refusal(job, device) for job in jobs]
    runs = {id(job.op) for job, reason in zip(jobs, reasons, strict=True) if not reason}
    kept = [job for job, reason in zip(jobs, reasons, strict=True) if not reason or id(job.op) not in runs]
    left_out: dict[str, dict[str, None]] = {}
    for job, reason in zip(jobs, reasons, strict=True):
        if job.kernel and reason and id(job.op) in runs:
            left_out.setdefault(reason, {})[job.kernel.name] = None
    return kept, [f"left out {', '.join(names)}: {reason}" for reason, names in left_out.items()]


def _refusal(job: Job, device: Device) -> str:
    """Return why a device cannot run a job, or an empty string."""
    return job.kernel.refuses(job.op, device) if job.kernel else "there is no kernel"


def without_repeats(jobs: Sequence[Job]) -> list[Job]:
    """Return each job once, in the order of first appearance."""
    return list({job.key: job for job in reversed(jobs)}.values())[::-1]
