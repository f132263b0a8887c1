"""The order in which operators ran: for each stream of a GPU a list of entries, the kernels of one operator as one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.core.arrays import distinct
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.limits import Basis, Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.profile.timeline import Ints


def entries_in_order(run: MeasuredRun) -> Iterator[Ints]:
    """Yield for each stream the entries in the order in which they ran, as indices into ``run.profile.entries``.

    Consecutive kernels that one call of an operator launched appear once. An event without an entry is -1.
    """
    timeline = run.timeline
    gpu = timeline.gpu
    if not gpu.entry.size:
        return
    inside = np.flatnonzero(timeline.in_window())
    if not inside.size:
        return
    # device and stream as one number; both are -1 where the profiler does not record them
    streams = (gpu.device[inside] + 1) * (int(gpu.stream.max()) + 2) + gpu.stream[inside] + 1
    for stream in distinct(streams):
        events = inside[streams == stream]
        op, entry = gpu.op[events], gpu.entry[events]
        repeats = (np.diff(op) == 0) & (np.diff(entry) == 0) & (op[1:] >= 0)
        yield entry[np.concatenate(([True], ~repeats))]


def modelled(run: MeasuredRun, index: int) -> Limit | None:
    """Return the limit of an entry if it is a kernel with a known operator and bound; else None."""
    if index < 0:
        return None
    entry = run.profile.entries[index]
    limit = run.limits[entry.name]
    has_bound = limit.basis == Basis.MODEL and entry.op is not None and bool(entry.calls)
    return limit if has_bound and entry.category == EventKind.KERNEL else None


def is_memory_bound(limit: Limit | None) -> bool:
    """Whether a modelled entry is limited by memory, and is not a kernel that a compiler has already fused."""
    is_memory = limit is not None and dimension_of(limit.limiter) == Dimension.MEMORY
    return limit is not None and is_memory and not limit.entry.launched_by.startswith("triton_")


def is_compute_bound(limit: Limit | None) -> bool:
    """Whether a modelled entry is limited by arithmetic."""
    return limit is not None and dimension_of(limit.limiter) == Dimension.COMPUTE


def call_s(limit: Limit) -> float:
    """Return the time of one call of an entry [s]."""
    return limit.entry.time_s / (limit.entry.calls or 1)
