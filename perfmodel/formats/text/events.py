"""Events of a trace as a time line, and a time line as the entries of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.formats import kernel_names
from perfmodel.formats.nesting import innermost, parents
from perfmodel.operators.memcpy import Memcpy
from perfmodel.profile import profile as categories
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import (
    COMMUNICATION,
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    KERNEL,
    MEMCPY,
    MEMSET,
    ApiCalls,
    Floats,
    GpuEvents,
    HostRanges,
    Ints,
    Timeline,
)

#: why a kernel of these profilers has no operator
NO_SHAPES = "the profiler does not say the shapes"
_DIRECTIONS = {HOST_TO_DEVICE: "h2d", DEVICE_TO_HOST: "d2h", DEVICE_TO_DEVICE: "d2d"}
_CATEGORIES = {
    KERNEL: categories.KERNEL,
    MEMCPY: categories.MEMCPY,
    MEMSET: categories.MEMSET,
    COMMUNICATION: categories.COMMUNICATION,
}


def gpu_category(name: str) -> int:
    """Return what a piece of GPU work is by its name alone: KERNEL, MEMCPY, MEMSET or COMMUNICATION.

    >>> gpu_category("[CUDA memcpy HtoD]") == MEMCPY, gpu_category("ncclDevKernel_SendRecv(x)") == COMMUNICATION
    (True, True)
    """
    start = name.lower().lstrip("[ ")
    copies = (word for word in ("memcpy", "memset") if start.startswith((word, f"cuda {word}", f"hip {word}")))
    return kernel_names.gpu_category(next(copies, ""), name)


def category_word(name: str) -> str:
    """Return the category of `ProfileEntry` for a piece of GPU work."""
    return _CATEGORIES[gpu_category(name)]


@dataclass
class Names:
    """Texts as numbers, in the order in which they came."""

    texts: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the number of a text."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return known


def host_ranges(start_s: Floats, duration_s: Floats, name: Ints, thread: Ints) -> HostRanges:
    """Return ranges of the CPU, ordered by start, each with the range around it on its thread."""
    # of two that start together the longer one is the outer one
    order = np.lexsort((-duration_s, start_s))
    start_s, duration_s, name, thread = start_s[order], duration_s[order], name[order], thread[order]
    return HostRanges(start_s, duration_s, name, thread, parents(start_s, start_s + duration_s, thread))


def build_timeline(
    names: Names, gpu: Mapping[str, Any], api: Mapping[str, Any], ops: HostRanges, annotations: HostRanges
) -> Timeline:
    """Return the time line of events that came in any order; times are counted from the first event on.

    Parameters
    ----------
    names : what the columns of names point into.
    gpu : columns of `GpuEvents` but ``op``; ``launch`` counts in the order of ``api``; missing ones are unknown.
    api : columns of `ApiCalls` but ``op`` and ``category``.
    ops, annotations : from `host_ranges`, on the same clock.
    """
    calls, rank = _api_calls(names, api, ops)
    events = _gpu_events(names, gpu, calls, rank)
    parts = [part for part in (events, calls, ops, annotations) if len(part)]
    zero = min((float(part.start_s.min()) for part in parts), default=0.0)
    last = max((float(part.end_s.max()) for part in parts), default=0.0)
    return Timeline(
        tuple(names.texts),
        replace(events, start_s=events.start_s - zero),
        replace(calls, start_s=calls.start_s - zero),
        replace(ops, start_s=ops.start_s - zero),
        replace(annotations, start_s=annotations.start_s - zero),
        window_s=(0.0, last - zero),
    )


def _column(source: Mapping[str, Any], key: str, size: int, missing: float, kind: type) -> Any:
    """Return a column as an array, filled with ``missing`` where the source has none."""
    values = source.get(key)
    return np.full(size, missing, dtype=kind) if values is None else np.asarray(values, dtype=kind)


def _api_calls(names: Names, api: Mapping[str, Any], ops: HostRanges) -> tuple[ApiCalls, Ints]:
    """Return the calls ordered by start, and where each of them went."""
    start = np.asarray(api.get("start_s", ()), dtype=np.float64)
    order = np.argsort(start, kind="stable")
    rank = np.empty(start.size, dtype=np.int64)
    rank[order] = np.arange(start.size)
    name = _column(api, "name", start.size, 0, np.int64)[order]
    thread = _column(api, "thread", start.size, -1, np.int64)[order]
    kinds = np.array([kernel_names.api_category(text) for text in names.texts], dtype=np.int64)
    duration = _column(api, "duration_s", start.size, 0.0, np.float64)[order]
    op = innermost(ops.start_s, ops.end_s, ops.thread, start[order], thread)
    return ApiCalls(start[order], duration, name, thread, kinds[name] if start.size else name, op), rank


def _gpu_events(names: Names, gpu: Mapping[str, Any], calls: ApiCalls, rank: Ints) -> GpuEvents:
    """Return the events ordered by start, each with the call and the operator that launched it."""
    start = np.asarray(gpu.get("start_s", ()), dtype=np.float64)
    order = np.argsort(start, kind="stable")
    launch = _column(gpu, "launch", start.size, -1, np.int64)
    if rank.size:
        launch = np.where(launch >= 0, rank[launch], -1)
    launch = launch[order]
    name = _column(gpu, "name", start.size, 0, np.int64)[order]
    kinds = np.array([gpu_category(text) for text in names.texts], dtype=np.int64)
    known = {
        key: _column(gpu, key, start.size, missing, kind)[order]
        for key, missing, kind in (
            ("duration_s", 0.0, np.float64),
            ("stream", -1, np.int64),
            ("device", -1, np.int64),
            ("bytes", np.nan, np.float64),
            ("direction", -1, np.int64),
            ("pinned", -1, np.int64),
        )
    }
    op = np.where(launch >= 0, calls.op[launch], -1) if len(calls) else np.full(start.size, -1, dtype=np.int64)
    return GpuEvents(
        start[order], name=name, category=kinds[name] if start.size else name, launch=launch, op=op, **known
    )


def entries_of(timeline: Timeline, by: str = "shape") -> tuple[list[ProfileEntry], Timeline]:
    """Return what ran on the GPUs, the longest first, and the time line whose events know their entries.

    Parameters
    ----------
    timeline : of which all events count.
    by : "kernel" gathers by the name of the GPU's work; "shape" too, but tells copies apart by their size; "op"
        gathers by the operator that launched it, where there is one.
    """
    gpu = timeline.gpu
    groups: dict[tuple[str, float, int, int], list[int]] = {}
    owner = [timeline.names[index] for index in timeline.ops.name]
    columns = (gpu.name, gpu.op, gpu.category, gpu.bytes, gpu.direction, gpu.pinned)
    for index, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        name, op, category, size, way, pinned = row
        sized = by == "shape" and category == MEMCPY and 0 <= size < 2**53
        text = owner[op] if by == "op" and op >= 0 else timeline.names[name]
        # sizes in megabytes with three decimals are no whole numbers of bytes
        key = (text, float(round(size)), way, pinned) if sized else (text, -1.0, -1, -1)
        groups.setdefault(key, []).append(index)
    labels = Counter(_label(key) for key in groups)
    entries = []
    for key, rows in groups.items():
        label = _label(key)
        # pinned and pageable copies of one size
        told = label if labels[label] == 1 else f"{label} {'pinned' if key[3] else 'pageable'}"
        entries.append((_entry(timeline, told, key, np.array(rows), owner), rows))
    entries.sort(key=lambda pair: -pair[0].time_s)
    entry = np.full(len(gpu), -1, dtype=np.int64)
    # a profile holds each name once, where it stands first
    place = {name: index for index, name in enumerate(dict.fromkeys(made.name for made, _ in entries))}
    for made, rows in entries:
        entry[rows] = place[made.name]
    return [made for made, _ in entries], replace(timeline, gpu=replace(gpu, entry=entry))


def device_notes(timeline: Timeline) -> tuple[str, ...]:
    """Say where the times of several devices, which work side by side, are added up."""
    devices = np.unique(timeline.gpu.device)
    if devices.size < 2:
        return ()
    return (f"The entries of the profile are sums over {devices.size} devices, which work side by side.",)


def _label(key: tuple[str, float, int, int]) -> str:
    """Return the name of a group: of copies of one size, with the size."""
    return key[0] if key[1] < 0 else f"{key[0]} {format_si(key[1], 'B')}"


def _entry(
    timeline: Timeline, name: str, key: tuple[str, float, int, int], rows: Ints, owner: Sequence[str]
) -> ProfileEntry:
    """Return some events of the GPU as one entry."""
    gpu = timeline.gpu
    launchers = {owner[op] if op >= 0 else "" for op in gpu.op[rows].tolist()}
    times = np.bincount(gpu.category[rows], weights=gpu.duration_s[rows], minlength=4)
    # what a memset or a copy beside kernels takes belongs to the same operator
    category = _CATEGORIES[KERNEL if times[KERNEL] > 0 else int(times.argmax())]
    _, size, way, pinned = key
    copy = (
        Memcpy(bytes=size, direction=_DIRECTIONS[way], pinned=pinned != 0) if size > 0 and way in _DIRECTIONS else None
    )
    kernels = tuple(dict.fromkeys(timeline.names[index] for index in gpu.name[rows].tolist()))
    return ProfileEntry(
        name,
        float(gpu.duration_s[rows].sum()),
        int(rows.size),
        category,
        op=copy,
        launched_by=launchers.pop() if len(launchers) == 1 else "",
        kernels=kernels,
        metrics=_copied(timeline, rows) if category == categories.MEMCPY else MappingProxyType({}),
        not_modelled="" if copy is not None else NO_SHAPES,
    )


def _copied(timeline: Timeline, rows: Ints) -> Mapping[str, float]:
    """Return the bytes that some copies moved, and of these the ones from or to pageable memory."""
    moved, pinned = timeline.gpu.bytes[rows], timeline.gpu.pinned[rows]
    if np.isnan(moved).any():
        return MappingProxyType({})
    pageable = {"pageable_bytes": float(moved[pinned == 0].sum())} if (pinned >= 0).any() else {}
    return MappingProxyType({"copied_bytes": float(moved.sum()), **pageable})
