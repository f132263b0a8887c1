"""The parts of a traced run: GPU work summed by operator and shape, by operator, or by kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.formats.nesting import self_time
from perfmodel.formats.torch_trace.call import NotModelledError, describe, parse_call
from perfmodel.formats.torch_trace.columns import Gathered
from perfmodel.formats.torch_trace.links import Traced
from perfmodel.formats.torch_trace.operators.aten import operator_of
from perfmodel.formats.torch_trace.operators.memory import collective
from perfmodel.operators import Operator
from perfmodel.operators.memcpy import Memcpy
from perfmodel.profile.profile import COMMUNICATION, HOST, KERNEL, MEMCPY, MEMSET, REGISTERS, ProfileEntry
from perfmodel.profile.timeline import COMMUNICATION as COMMUNICATING
from perfmodel.profile.timeline import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Floats, Ints
from perfmodel.profile.timeline import MEMCPY as COPYING

_CATEGORIES = (KERNEL, MEMCPY, MEMSET, COMMUNICATION)
_DIRECTIONS = {HOST_TO_DEVICE: "h2d", DEVICE_TO_HOST: "d2h", DEVICE_TO_DEVICE: "d2d"}
#: what makes a group: how it is told apart, and the numbers that do
_OF_OP, _OF_COPY, _OF_COLLECTIVE, _OF_KERNEL = 0, 1, 2, 3
_IN_GRAPH = "it was launched in a graph of kernels, for which the trace holds no operators and shapes"
_NO_OP = "the trace does not say which operator launched it"


@dataclass(frozen=True)
class _Group:
    """GPU events that make one entry: their indices, and the key that they share."""

    events: Ints
    key: tuple[int, ...]


class Entries:
    """Sums of a traced run; see `ProfileEntry` for what one is.

    Parameters
    ----------
    traced, gathered : the time line, and the texts that its numbers stand for.
    """

    def __init__(self, traced: Traced, gathered: Gathered) -> None:
        self.traced, self.timeline = traced, traced.timeline
        self.names = self.timeline.names
        self.calls, self.collectives = list(gathered.calls), list(gathered.collectives)
        self.op_names = self.timeline.ops.name
        # id of each entry that is made -> the events that it sums
        self._events: dict[int, Ints] = {}

    def by(self, grouping: str) -> list[ProfileEntry]:
        """Return the entries of a grouping, the longest first; of a run without GPU work those of its operators."""
        if not len(self.timeline.gpu):
            entries = self._host(by_shape=grouping == "shape")
        elif grouping == "kernel":
            entries = [self._by_kernel(group) for group in self._groups(lambda i: (_OF_KERNEL, int(i[0])))]
        elif grouping == "op":
            entries = self._merged([self._by_op(group) for group in self._groups(_op_key)])
        else:
            entries = self._merged([self._by_shape(group) for group in self._groups(_shape_key)])
        return sorted(entries, key=lambda entry: -entry.time_s)

    def entry_of_events(self, entries: list[ProfileEntry]) -> Ints:
        """Return, for each GPU event, which of the entries that `by` returned counts it, or -1; shape (events,)."""
        found = np.full(len(self.timeline.gpu), -1, dtype=np.int64)
        # a profile holds each name once, where it stands first
        place = {name: index for index, name in enumerate(dict.fromkeys(entry.name for entry in entries))}
        for entry in entries:
            if id(entry) in self._events:
                found[self._events[id(entry)]] = place[entry.name]
        return found

    def _groups(self, key: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Iterator[_Group]:
        """Yield the counted GPU events by what ``key`` makes of their row of numbers, see `_rows`."""
        groups: dict[tuple[int, ...], list[int]] = {}
        counted = np.flatnonzero(self.traced.counted)
        made: dict[tuple[int, ...], tuple[int, ...]] = {}
        for index, row in zip(counted.tolist(), self._rows(counted), strict=True):
            if (found := made.get(row)) is None:
                found = made[row] = key(row)
            groups.setdefault(found, []).append(index)
        for shared, events in groups.items():
            yield _Group(np.array(events, dtype=np.int64), shared)

    def _rows(self, counted: Ints) -> Iterator[tuple[int, ...]]:
        """Yield of each event name, category, collective, graph, operator's name and call, bytes, direction, pinned."""
        gpu, op = self.timeline.gpu, self.timeline.gpu.op[counted]
        around = np.maximum(op, 0)
        has = (op >= 0) & ~self.traced.in_graph[counted]
        none = np.full(counted.size, -1, dtype=np.int64)
        of_op = [
            np.where(has, column[around], -1) if column.size else none for column in (self.op_names, self.traced.call)
        ]
        told = self.traced.op_collective
        by_op = np.where(op >= 0, told[around], -1) if told.size else none
        said = self.traced.gpu_collective[counted]
        columns = (
            *(gpu.name[counted], gpu.category[counted], np.where(said >= 0, said, by_op)),
            *(self.traced.in_graph[counted].astype(np.int64), *of_op),
            *(np.nan_to_num(gpu.bytes[counted], nan=-1).astype(np.int64), gpu.direction[counted], gpu.pinned[counted]),
        )
        return zip(*(column.tolist() for column in columns), strict=True)

    def _by_shape(self, group: _Group) -> ProfileEntry:
        kind, *numbers = group.key
        if kind == _OF_COPY:
            return self._copy(group, *numbers)
        if kind == _OF_COLLECTIVE:
            return self._collective(group, *numbers)
        if kind == _OF_KERNEL:
            return self._by_kernel(group)
        name, number = self.names[numbers[0]], numbers[1]
        kernels = self._kernels(group)
        call = parse_call(name, self.calls[number], kernels)
        operator, reason = operator_of(call)
        return self._entry(group, describe(call), operator, reason, launched_by=name, kernels=kernels)

    def _by_op(self, group: _Group) -> ProfileEntry:
        if group.key[0] == _OF_KERNEL:
            return self._by_kernel(group)
        name = self.names[group.key[1]]
        shapes = {int(number) for number in self.traced.call[self.timeline.gpu.op[group.events]]}
        kernels = self._kernels(group)
        operator, reason = None, f"its {len(shapes)} different shapes are summed"
        if len(shapes) == 1 and not np.any(self.timeline.gpu.category[group.events] == COPYING):
            operator, reason = operator_of(parse_call(name, self.calls[shapes.pop()], kernels))
        return self._entry(group, name, operator, reason, launched_by=name, kernels=kernels)

    def _by_kernel(self, group: _Group) -> ProfileEntry:
        in_graph = bool(self.traced.in_graph[group.events].any())
        ops = np.unique(self.timeline.gpu.op[group.events])
        launching = {self.names[name] for name in self.op_names[ops[ops >= 0]]}
        launched_by = launching.pop() if len(launching) == 1 and not in_graph else ""
        name = self.names[self.timeline.gpu.name[group.events[0]]]
        reason = _IN_GRAPH if in_graph else "the kernel's name does not say the shapes" if ops.max() >= 0 else _NO_OP
        return self._entry(group, name, None, reason, launched_by=launched_by, kernels=(name,), calls=group.events.size)

    def _copy(self, group: _Group, name: int, size: int, direction: int, pinned: int, op: int) -> ProfileEntry:
        """Return copies of one size and direction; the size tells more than the operator around them."""
        operator, reason = None, "the trace does not say what is copied where"
        if size > 0 and direction in _DIRECTIONS:
            operator, reason = Memcpy(bytes=size, direction=_DIRECTIONS[direction], pinned=pinned != 0), ""
        label = self.names[name] + (f" {format_si(size, 'B')}" if size >= 0 else "")
        launched_by = self.names[op] if op >= 0 else ""
        label += f" by {launched_by}" if launched_by else ""
        return self._entry(group, label, operator, reason, launched_by=launched_by, kernels=(self.names[name],))

    def _collective(self, group: _Group, number: int, op: int) -> ProfileEntry:
        name, before, after, ranks, dtype_text = self.collectives[number]
        dtype = dtype_text.decode("utf-8", "replace").strip('"')
        sizes = (before or 0.0, after or 0.0)
        operator, reason = None, ""
        try:
            operator = collective(name, sizes, ranks or 0.0, dtype)
        except NotModelledError as error:
            reason = str(error)
        label = f"{name}({max(sizes):.0f} elements, {ranks or 0:.0f} ranks) {dtype}"
        launched_by = self.names[op] if op >= 0 else ""
        return self._entry(group, label, operator, reason, launched_by=launched_by, kernels=self._kernels(group))

    def _entry(
        self,
        group: _Group,
        name: str,
        operator: Operator | None,
        reason: str,
        *,
        launched_by: str,
        kernels: tuple[str, ...],
        calls: int | None = None,
    ) -> ProfileEntry:
        gpu = self.timeline.gpu
        if calls is None:
            ops = gpu.op[group.events]
            calls = int(np.unique(ops[ops >= 0]).size + np.count_nonzero(ops < 0))
            if group.key[0] in (_OF_COPY, _OF_COLLECTIVE):
                calls = int(group.events.size)
        present = np.bincount(gpu.category[group.events], weights=gpu.duration_s[group.events], minlength=4)
        # what a memset or a copy beside kernels takes belongs to the same operator
        category = KERNEL if present[0] > 0 else _CATEGORIES[int(present.argmax())]
        made = ProfileEntry(
            name,
            float(gpu.duration_s[group.events].sum()),
            calls,
            category=category,
            op=operator,
            launched_by=launched_by,
            kernels=kernels,
            metrics=self._metrics(group.events),
            not_modelled=reason,
        )
        self._events[id(made)] = group.events
        return made

    def _metrics(self, events: Ints) -> Mapping[str, float]:
        """Return what the trace says of the kernels of an entry: the mean of the registers of a thread."""
        registers = self.traced.registers[events]
        known = registers[np.isfinite(registers) & (registers > 0)]
        return MappingProxyType({REGISTERS: float(known.mean())} if known.size else {})

    def _kernels(self, group: _Group) -> tuple[str, ...]:
        """Return the names of a group's kernels, the longest first."""
        gpu = self.timeline.gpu
        times: Counter[int] = Counter()
        for name, time_s in zip(gpu.name[group.events].tolist(), gpu.duration_s[group.events].tolist(), strict=True):
            times[name] += time_s
        return tuple(self.names[name] for name, _ in times.most_common())

    def _host(self, *, by_shape: bool) -> list[ProfileEntry]:
        """Return the operators of a run without GPU work, by the time in them outside the operators inside them."""
        ops, (begin, end) = self.timeline.ops, self.timeline.window_s
        own = self_time(ops.duration_s, ops.parent)
        counted = np.flatnonzero((ops.start_s >= begin) & (ops.start_s <= end))
        groups: dict[tuple[int, int], list[int]] = {}
        numbers = self.traced.call if by_shape else np.zeros(len(ops), dtype=np.int64)
        for index in counted.tolist():
            groups.setdefault((int(ops.name[index]), int(numbers[index])), []).append(index)
        return self._merged([self._host_entry(key, own[events], by_shape) for key, events in groups.items()])

    def _host_entry(self, key: tuple[int, int], own: Floats, by_shape: bool) -> ProfileEntry:
        name = self.names[key[0]]
        label = describe(parse_call(name, self.calls[key[1]])) if by_shape else name
        reason = "it ran on the CPU"
        return ProfileEntry(
            label, float(own.sum()), int(own.size), category=HOST, launched_by=name, not_modelled=reason
        )

    def _merged(self, entries: list[ProfileEntry]) -> list[ProfileEntry]:
        """Sum entries of one name and one operator; tell those of different operators apart by their parameters."""
        groups: dict[str, dict[tuple[object, ...], list[ProfileEntry]]] = {}
        for entry in entries:
            groups.setdefault(entry.name, {}).setdefault(_identity(entry), []).append(entry)
        made = []
        for name, different in groups.items():
            for number, same in enumerate(different.values(), start=1):
                label = name if len(different) == 1 else f"{name} [{_told(same[0]) or number}]"
                events = [self._events[id(entry)] for entry in same if id(entry) in self._events]
                summed = np.concatenate(events) if events else np.empty(0, dtype=np.int64)
                made.append(_sum(label, same, self._metrics(summed)))
                if events:
                    self._events[id(made[-1])] = summed
        return made


def _op_key(row: tuple[int, ...]) -> tuple[int, ...]:
    """Return the operator's name, or the kernel's where there is none."""
    name, _, _, _, op, *_ = row
    return (_OF_OP, op) if op >= 0 else (_OF_KERNEL, name)


def _shape_key(row: tuple[int, ...]) -> tuple[int, ...]:
    """Return what tells entries apart by shape: of a copy its size, of a collective its message, else the call."""
    name, category, collective_, in_graph, op, call, size, direction, pinned = row
    if category == COPYING and not in_graph:
        return (_OF_COPY, name, size, direction, pinned, op)
    if category == COMMUNICATING and collective_ >= 0 and not in_graph:
        return (_OF_COLLECTIVE, collective_, op)
    return (_OF_OP, op, call) if op >= 0 else (_OF_KERNEL, name)


def _identity(entry: ProfileEntry) -> tuple[object, ...]:
    op = entry.op
    if op is None:
        return (entry.not_modelled, entry.category)
    return (op.op, op.dtype, op.count, *op.params().items())


def _told(entry: ProfileEntry) -> str:
    """Return what is particular to an entry's operator: "stride=2 padding=3"."""
    op = entry.op
    if op is None:
        return entry.category if not entry.not_modelled else ""
    told = [f"{name}={getattr(op, name)}" for name in op.given() if name not in ("batch", "m", "n", "k")]
    return " ".join([*told, f"{op.count} of them"] if op.count > 1 else told)


def _sum(name: str, same: list[ProfileEntry], metrics: Mapping[str, float]) -> ProfileEntry:
    """Return the sum of entries of one operator under a name."""
    first = same[0]
    kernels = dict.fromkeys(kernel for entry in sorted(same, key=lambda e: -e.time_s) for kernel in entry.kernels)
    return ProfileEntry(
        name,
        sum(entry.time_s for entry in same),
        sum(entry.calls or 0 for entry in same),
        category=first.category,
        op=first.op,
        launched_by=first.launched_by if len({entry.launched_by for entry in same}) == 1 else "",
        kernels=tuple(kernels),
        metrics=metrics,
        not_modelled=first.not_modelled,
    )
