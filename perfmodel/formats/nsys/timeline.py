"""The time line of events that a profiler listed, and the entries of a profile from a time line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.exchange_names import kernel_operation
from perfmodel.formats.interned import Interned
from perfmodel.formats.kernel_names import NO_SHAPES, call_kind, event_kind
from perfmodel.formats.nesting import innermost, parents
from perfmodel.operators.checks import LARGEST_SIZE
from perfmodel.operators.memcpy import Memcpy
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import ApiCalls, CopyDirection, Exchanges, GpuEvents, HostRanges, Ints, Timeline

_MEMORY = {1: " pinned", 0: " pageable"}


class GpuEvent(NamedTuple):
    """One kernel, copy or memset as a profiler listed it; see `perfmodel.profile.timeline.GpuEvents`.

    Attributes
    ----------
    name : number of the name.
    launch : position of the call that started it in the list of calls, or -1.
    """

    start_s: float
    duration_s: float
    name: int
    device: int = -1
    stream: int = -1
    launch: int = -1
    bytes: float = math.nan
    direction: int = -1
    pinned: int = -1


class HostEvent(NamedTuple):
    """One call of the runtime, or one range on the CPU, as a profiler listed it; ``name`` is the name's number."""

    start_s: float
    duration_s: float
    name: int
    thread: int = -1


_GPU_EVENT = np.dtype(
    [
        *(("start_s", "f8"), ("duration_s", "f8"), ("name", "i8"), ("device", "i8"), ("stream", "i8")),
        *(("launch", "i8"), ("bytes", "f8"), ("direction", "i8"), ("pinned", "i8")),
    ]
)
_HOST_EVENT = np.dtype([("start_s", "f8"), ("duration_s", "f8"), ("name", "i8"), ("thread", "i8")])


def build_timeline(
    names: Interned[str],
    gpu: Sequence[GpuEvent],
    api: Sequence[HostEvent],
    ops: Sequence[HostEvent] = (),
    annotations: Sequence[HostEvent] = (),
) -> Timeline:
    """Return the time line of events in any order, with times since the first of them.

    Parameters
    ----------
    names : names and their numbers.
    gpu, api : work of the GPU, and calls of the runtime.
    ops, annotations : ranges of the framework's operators, and other ranges, on the same clock.
    """
    operators, ranges = _host_ranges(ops), _host_ranges(annotations)
    calls, rank = _api_calls(names, np.array(list(api), dtype=_HOST_EVENT), operators)
    events = _gpu_events(names, np.array(list(gpu), dtype=_GPU_EVENT), calls, rank)
    parts = [part for part in (events, calls, operators, ranges) if len(part)]
    exchanges = _exchanges(names, events)
    zero = min((float(part.start_s.min()) for part in parts), default=0.0)
    last = max((float(part.end_s.max()) for part in parts), default=0.0)
    return Timeline(
        tuple(names),
        replace(events, start_s=events.start_s - zero),
        replace(calls, start_s=calls.start_s - zero),
        replace(operators, start_s=operators.start_s - zero),
        replace(ranges, start_s=ranges.start_s - zero),
        window_s=(0.0, last - zero),
        exchanges=replace(exchanges, start_s=exchanges.start_s - zero),
    )


def _exchanges(names: Interned[str], events: GpuEvents) -> Exchanges:
    """Return what the GPUs exchange, by the names of the kernels, which say neither message nor process group."""
    chosen = events.are(EventKind.COMMUNICATION)
    count = int(np.count_nonzero(chosen))
    kernels = list(names)
    number = {name: names[kernel_operation(kernels[name])] for name in np.unique(events.name[chosen]).tolist()}
    return Exchanges(
        events.start_s[chosen],
        events.duration_s[chosen],
        np.array([number[name] for name in events.name[chosen].tolist()], dtype=np.int64),
        group=np.full(count, -1, dtype=np.int64),
        sequence=np.full(count, -1, dtype=np.int64),
        bytes=np.full(count, np.nan),
        ranks=np.zeros(count, dtype=np.int64),
    )


def _columns(events: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {name: np.ascontiguousarray(events[name]) for name in events.dtype.names or ()}


def _host_ranges(listed: Sequence[HostEvent]) -> HostRanges:
    """Return ranges ordered by start, each with the range around it on its thread."""
    events = np.array(list(listed), dtype=_HOST_EVENT)
    # if two start together, the longer one is the outer one
    columns = _columns(events[np.lexsort((-events["duration_s"], events["start_s"]))])
    end_s = columns["start_s"] + columns["duration_s"]
    return HostRanges(**columns, parent=parents(columns["start_s"], end_s, columns["thread"]))


def _api_calls(names: Interned[str], events: NDArray[Any], ops: HostRanges) -> tuple[ApiCalls, Ints]:
    """Return the calls ordered by start, and the new position of each call."""
    order = np.argsort(events["start_s"], kind="stable")
    rank = np.empty(events.size, dtype=np.int64)
    rank[order] = np.arange(events.size)
    columns = _columns(events[order])
    categories = np.array([call_kind(name) for name in names], dtype=np.int64)
    op = innermost(ops.start_s, ops.end_s, ops.thread, columns["start_s"], columns["thread"], ops.parent)
    return ApiCalls(**columns, category=categories[columns["name"]], op=op), rank


def _gpu_events(names: Interned[str], events: NDArray[Any], calls: ApiCalls, rank: Ints) -> GpuEvents:
    """Return the events ordered by start, each with the call and the operator that launched it."""
    columns = _columns(events[np.argsort(events["start_s"], kind="stable")])
    launch, none = columns.pop("launch"), np.full(events.size, -1, dtype=np.int64)
    launch = np.where(launch >= 0, rank[launch], -1) if rank.size else none
    op = np.where(launch >= 0, calls.op[launch], -1) if rank.size else none
    kinds = np.array([event_kind(name).code for name in names], dtype=np.int64)
    return GpuEvents(**columns, category=kinds[columns["name"]], launch=launch, op=op)


class _Work(NamedTuple):
    """What tells pieces of GPU work apart: numbers of the name and the operator's name, kind, and the copy's facts."""

    name: int
    op_name: int
    kind: int
    bytes: float
    direction: int
    pinned: int


class _Group(NamedTuple):
    """What the GPU work of one entry shares: its name and, for copies of one size, size, direction and memory."""

    name: str
    bytes: float = -1.0
    direction: int = -1
    pinned: int = -1

    @property
    def label(self) -> str:
        """Name of the entry, with the size for copies of one size."""
        return self.name if self.bytes < 0 else f"{self.name} {format_si(self.bytes, 'B')}"


def entries_of(timeline: Timeline, by: str = "shape") -> tuple[list[ProfileEntry], Timeline]:
    """Return the work of the GPUs as entries, the longest first, and the time line whose events point at them.

    Parameters
    ----------
    timeline : all of its events count.
    by : "kernel" groups by the name of the work; "shape" also groups copies by their size; "op" groups by the
        operator that launched the work, if there is one.
    """
    groups = _grouped(timeline, by)
    labels = Counter(group.label for group in groups)
    pairs = []
    for group, events in groups.items():
        # pinned and pageable copies may have the same size
        suffix = _MEMORY.get(group.pinned, "") if labels[group.label] > 1 else ""
        indices = np.array(events, dtype=np.int64)
        pairs.append((_entry(timeline, group.label + suffix, group, indices), indices))
    pairs.sort(key=lambda pair: -pair[0].time_s)
    entry_of = np.full(len(timeline.gpu), -1, dtype=np.int64)
    # a profile sums the entries of one name at the position of the first
    position = {name: index for index, name in enumerate(dict.fromkeys(entry.name for entry, _ in pairs))}
    for entry, indices in pairs:
        entry_of[indices] = position[entry.name]
    return [entry for entry, _ in pairs], replace(timeline, gpu=replace(timeline.gpu, entry=entry_of))


def _grouped(timeline: Timeline, by: str) -> dict[_Group, list[int]]:
    """Return the indices of the GPU events of each group."""
    gpu, ops = timeline.gpu, timeline.ops.name
    op_name = np.where(gpu.op >= 0, ops[gpu.op], -1) if ops.size else gpu.op
    columns = (gpu.name, op_name, gpu.category, np.nan_to_num(gpu.bytes, nan=-1.0), gpu.direction, gpu.pinned)
    groups: dict[_Group, list[int]] = {}
    group_of: dict[tuple[float, ...], _Group] = {}
    for index, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        group = group_of.get(row)
        if group is None:
            group = group_of[row] = _group(timeline.names, _Work(*row), by)
        groups.setdefault(group, []).append(index)
    return groups


def _group(names: tuple[str, ...], work: _Work, by: str) -> _Group:
    name = names[work.op_name if by == "op" and work.op_name >= 0 else work.name]
    if by == "shape" and work.kind == EventKind.MEMCPY.code and 0 <= work.bytes < LARGEST_SIZE:
        # sizes in megabytes with three decimals are not whole numbers of bytes
        return _Group(name, float(round(work.bytes)), work.direction, work.pinned)
    return _Group(name)


def device_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return a note if the entries sum the times of several devices."""
    devices = np.unique(timeline.gpu.device)
    if devices.size < 2:
        return ()
    return (f"The entries of the profile are sums over {devices.size} devices that work side by side.",)


def _entry(timeline: Timeline, name: str, group: _Group, events: Ints) -> ProfileEntry:
    """Return some events of the GPU as one entry."""
    gpu = timeline.gpu
    launchers = {timeline.names[timeline.ops.name[op]] if op >= 0 else "" for op in gpu.op[events].tolist()}
    kind = gpu.kind_of(events)
    direction, copy = CopyDirection(group.direction).word, None
    if group.bytes > 0 and direction:
        copy = Memcpy(bytes=group.bytes, direction=direction, pinned=group.pinned != 0)
    return ProfileEntry(
        name,
        float(gpu.duration_s[events].sum()),
        int(events.size),
        kind,
        op=copy,
        launched_by=launchers.pop() if len(launchers) == 1 else "",
        kernels=tuple(dict.fromkeys(timeline.names[index] for index in gpu.name[events].tolist())),
        metrics=_copied(timeline, events) if kind is EventKind.MEMCPY else MappingProxyType({}),
        not_modelled="" if copy is not None else NO_SHAPES,
    )


def _copied(timeline: Timeline, events: Ints) -> Mapping[str, float]:
    """Return the bytes that some copies moved, and how many of these from or to pageable memory."""
    moved, pinned = timeline.gpu.bytes[events], timeline.gpu.pinned[events]
    if np.isnan(moved).any():
        return MappingProxyType({})
    pageable = {"pageable_bytes": float(moved[pinned == 0].sum())} if (pinned >= 0).any() else {}
    return MappingProxyType({"copied_bytes": float(moved.sum()), **pageable})
