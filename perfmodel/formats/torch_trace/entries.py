"""The parts of a traced run as entries of a profile, each a sum of GPU events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perfmodel.core.arrays import distinct
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.nesting import self_time
from perfmodel.formats.torch_trace.call import NotModelledError, describe, parse_call
from perfmodel.formats.torch_trace.columns import Recorded
from perfmodel.formats.torch_trace.groups import (
    CallGroup,
    CollectiveGroup,
    CopyGroup,
    Group,
    KernelGroup,
    OpGroup,
    grouped,
)
from perfmodel.formats.torch_trace.links import Traced, operator_number
from perfmodel.formats.torch_trace.operators.aten import operator_of
from perfmodel.formats.torch_trace.operators.memory import collective
from perfmodel.formats.torch_trace.totals import Total, totals
from perfmodel.operators import Operator
from perfmodel.operators.memcpy import Memcpy
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import CopyDirection, Floats, Ints

_IN_GRAPH = "it was launched in a graph of kernels, for which the trace has no operators and shapes"
_NO_OPERATOR = "the trace does not say which operator launched it"
_NO_EVENTS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Counted:
    """An entry, and the indices of the GPU events that it sums."""

    entry: ProfileEntry
    events: Ints


def entry_of_events(counted: Sequence[Counted], number: int) -> Ints:
    """Return, for each of ``number`` GPU events, the index of the entry that counts it, or -1."""
    entry_of = np.full(number, -1, dtype=np.int64)
    # a profile sums the entries of one name at the position of the first
    position = {name: index for index, name in enumerate(dict.fromkeys(one.entry.name for one in counted))}
    for one in counted:
        entry_of[one.events] = position[one.entry.name]
    return entry_of


class Entries:
    """Sums over a traced run.

    Parameters
    ----------
    traced, recorded : the time line, and the texts that its numbers stand for.
    """

    def __init__(self, traced: Traced, recorded: Recorded) -> None:
        self.traced, self.recorded = traced, recorded
        self.timeline, self.names = traced.timeline, traced.timeline.names

    def by(self, grouping: str) -> list[Counted]:
        """Return the entries of a grouping, the longest first; without GPU work they are the operators on the CPU."""
        if len(self.timeline.gpu):
            groups = grouped(self.traced, grouping)
            sums = totals(self.traced, list(groups.values()))
            counted = [Counted(self._entry(*one), one[1].events) for one in zip(groups, sums, strict=True)]
        else:
            counted = self._host(by_shape=grouping == "shape")
        return sorted(self._merged(counted), key=lambda one: -one.entry.time_s)

    def _entry(self, group: Group, total: Total) -> ProfileEntry:
        match group:
            case CallGroup():
                return self._call(group, total)
            case OpGroup():
                return self._op(group, total)
            case KernelGroup():
                return self._kernel(group, total)
            case CopyGroup():
                return self._copy(group, total)
            case CollectiveGroup():
                return self._collective(group, total)

    def _call(self, group: CallGroup, total: Total) -> ProfileEntry:
        name = self.names[group.name]
        call = parse_call(name, self.recorded.calls[group.call], total.kernels)
        return self._sum(total, describe(call), *operator_of(call), launched_by=name)

    def _op(self, group: OpGroup, total: Total) -> ProfileEntry:
        name, events = self.names[group.name], total.events
        calls = {int(call) for call in self.traced.call[operator_number(self.traced.op(events))]}
        operator, reason = None, f"its {len(calls)} different shapes are summed"
        if len(calls) == 1 and not np.any(self.timeline.gpu.category[events] == EventKind.MEMCPY.code):
            operator, reason = operator_of(parse_call(name, self.recorded.calls[calls.pop()], total.kernels))
        return self._sum(total, name, operator, reason, launched_by=name)

    def _kernel(self, group: KernelGroup, total: Total) -> ProfileEntry:
        events = total.events
        in_graph = bool(self.traced.in_graph[events].any())
        ops = distinct(operator_number(self.traced.op(events)))
        launching = {self.names[name] for name in self.timeline.ops.name[ops[ops >= 0]]}
        launched_by = launching.pop() if len(launching) == 1 and not in_graph else ""
        reason = "the kernel's name does not tell the shapes" if ops.max() >= 0 else _NO_OPERATOR
        reason = _IN_GRAPH if in_graph else reason
        return self._sum(total, self.names[group.name], None, reason, launched_by=launched_by, each=True)

    def _copy(self, group: CopyGroup, total: Total) -> ProfileEntry:
        operator, reason = None, "the trace does not say what is copied where"
        direction = CopyDirection(group.direction).word
        if group.direction == CopyDirection.BETWEEN_DEVICES:
            reason = "the trace does not say over which link it copies between GPUs"
        elif group.bytes > 0 and direction:
            operator, reason = Memcpy(bytes=group.bytes, direction=direction, pinned=group.pinned != 0), ""
        size = f" {format_si(group.bytes, 'B')}" if group.bytes >= 0 else ""
        launched_by = self._name(group.op_name)
        name = f"{self.names[group.name]}{size}" + (f" by {launched_by}" if launched_by else "")
        return self._sum(total, name, operator, reason, launched_by=launched_by, each=True)

    def _collective(self, group: CollectiveGroup, total: Total) -> ProfileEntry:
        message = self.recorded.collectives[group.message]
        elements, ranks = (message.elements_in or 0.0, message.elements_out or 0.0), message.group_size or 0.0
        dtype = message.dtype.decode("utf-8", "replace").strip('"')
        operator, reason = None, ""
        try:
            operator = collective(message.name, elements, ranks, dtype)
        except NotModelledError as error:
            reason = str(error)
        name = f"{message.name}({max(elements):.0f} elements, {ranks:.0f} ranks) {dtype}"
        return self._sum(total, name, operator, reason, launched_by=self._name(group.op_name), each=True)

    def _name(self, number: int) -> str:
        return self.names[number] if number >= 0 else ""

    def _sum(
        self,
        total: Total,
        name: str,
        operator: Operator | None,
        reason: str,
        *,
        launched_by: str,
        each: bool = False,
    ) -> ProfileEntry:
        """Return the entry of a group of GPU events; ``each`` is a call, else each operator that launched some."""
        return ProfileEntry(
            name,
            total.time_s,
            int(total.events.size) if each else total.operators,
            category=total.kind,
            op=operator,
            launched_by=launched_by,
            kernels=total.kernels,
            metrics=total.metrics,
            not_modelled=reason,
        )

    def _host(self, *, by_shape: bool) -> list[Counted]:
        """Return the operators of a run without GPU work, by their time outside inner operators."""
        ops, (begin, end) = self.timeline.ops, self.timeline.window_s
        own_s = self_time(ops.duration_s, ops.parent)
        groups: dict[CallGroup | OpGroup, list[int]] = {}
        for index in np.flatnonzero((ops.start_s >= begin) & (ops.start_s <= end)).tolist():
            name = int(ops.name[index])
            group = CallGroup(name, int(self.traced.call[index])) if by_shape else OpGroup(name)
            groups.setdefault(group, []).append(index)
        return [Counted(self._host_entry(group, own_s[calls]), _NO_EVENTS) for group, calls in groups.items()]

    def _host_entry(self, group: CallGroup | OpGroup, own_s: Floats) -> ProfileEntry:
        name = label = self.names[group.name]
        if isinstance(group, CallGroup):
            label = describe(parse_call(name, self.recorded.calls[group.call]))
        return ProfileEntry(
            label,
            float(own_s.sum()),
            int(own_s.size),
            category=EventKind.HOST,
            launched_by=name,
            not_modelled="it ran on the CPU",
        )

    def _merged(self, counted: list[Counted]) -> list[Counted]:
        """Sum entries with one name and one operator; names of different operators get their parameters."""
        names: dict[str, list[Counted]] = {}
        for one in counted:
            names.setdefault(one.entry.name, []).append(one)
        merged = []
        for name, alike in names.items():
            if len(alike) == 1:  # most entries
                merged += alike
                continue
            different: dict[tuple[object, ...], list[Counted]] = {}
            for one in alike:
                different.setdefault(_identity(one.entry), []).append(one)
            for number, same in enumerate(different.values(), start=1):
                label = name if len(different) == 1 else f"{name} [{_particular(same[0].entry) or number}]"
                events = np.concatenate([one.events for one in same])
                metrics = next(totals(self.traced, [events])).metrics if events.size else MappingProxyType({})
                entry = _total(label, [one.entry for one in same], metrics)
                merged.append(Counted(entry, events))
        return merged


def _identity(entry: ProfileEntry) -> tuple[object, ...]:
    """Return what entries must share to be summed."""
    op = entry.op
    if op is None:
        return (entry.not_modelled, entry.category)
    return (op.op, op.dtype, op.count, *op.params().items())


def _particular(entry: ProfileEntry) -> str:
    """Return what distinguishes an entry's operator: "stride=2 padding=3"."""
    op = entry.op
    if op is None:
        return entry.category if not entry.not_modelled else ""
    given = [f"{name}={getattr(op, name)}" for name in op.given() if name not in ("batch", "m", "n", "k")]
    return " ".join([*given, f"{op.count} of them"] if op.count > 1 else given)


def _total(name: str, same: list[ProfileEntry], metrics: Mapping[str, float]) -> ProfileEntry:
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
