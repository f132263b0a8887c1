"""Sums over the GPU events of each group of a trace, of all groups at once: most have few events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from perfmodel.core.arrays import distinct
from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.torch_trace.links import Traced
from perfmodel.profile.profile import REGISTERS
from perfmodel.profile.timeline import Floats, Ints


class Total(NamedTuple):
    """The sums of some GPU events.

    Attributes
    ----------
    events : their indices.
    time_s : their time [s].
    operators : how many operators launched them; each event without one counts for itself.
    kind : what `GpuEvents.kind_of` returns.
    kernels : their names, the longest first.
    metrics : the mean registers of a thread of their kernels, if the trace has them.
    """

    events: Ints
    time_s: float
    operators: int
    kind: EventKind
    kernels: tuple[str, ...]
    metrics: Mapping[str, float]


def totals(traced: Traced, groups: Sequence[Ints]) -> Iterator[Total]:
    """Yield the sums of each group of GPU events; none is empty."""
    gpu, names = traced.timeline.gpu, traced.timeline.names
    if not groups:
        return
    events = np.concatenate(groups)
    ends = np.cumsum([group.size for group in groups])
    begins = ends - [group.size for group in groups]
    group_of = np.repeat(np.arange(len(groups)), ends - begins)
    duration_s, name = gpu.duration_s[events], gpu.name[events]
    first = name[begins]
    mixed = np.bincount(group_of, weights=name != first[group_of]).tolist()
    kinds = _kinds(group_of, gpu.category[events], duration_s)
    operators = _operators(group_of, traced.op(events)).tolist()
    metrics = _metrics(group_of, traced.registers[events], len(groups))
    for index, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        own = slice(begin, end)
        kernels = _by_time(name[own], duration_s[own]) if mixed[index] else first[index : index + 1].tolist()
        yield Total(
            groups[index],
            float(np.add.reduce(duration_s[own])),
            operators[index],
            kinds[index],
            tuple([names[number] for number in kernels]),
            metrics[index],
        )


def _by_time(name: Ints, duration_s: Floats) -> list[int]:
    """Return the different names of some events, those that take the longest first, else the first to start."""
    time_s: dict[int, float] = {}
    for one, one_s in zip(name.tolist(), duration_s.tolist(), strict=True):
        time_s[one] = time_s.get(one, 0.0) + one_s
    return sorted(time_s, key=lambda one: -time_s[one])


def _kinds(group_of: Ints, category: Ints, duration_s: Floats) -> list[EventKind]:
    """Return what `GpuEvents.kind_of` does, for each group."""
    number = len(EventKind)
    kind_s = np.bincount(group_of * number + category, weights=duration_s, minlength=number * int(group_of[-1] + 1))
    by_group = kind_s.reshape(-1, number)
    codes = np.where(by_group[:, EventKind.KERNEL.code] > 0, EventKind.KERNEL.code, by_group.argmax(axis=1)).tolist()
    kind_of = {code: EventKind.from_code(code) for code in set(codes)}
    return [kind_of[code] for code in codes]


def _operators(group_of: Ints, op: Ints) -> Ints:
    """Return `Total.operators` of each group."""
    least = int(op.min())
    width = int(op.max()) - least + 1
    pairs = distinct(group_of * width + (op - least))
    without = pairs % width + least == -1
    known = np.bincount(pairs[~without] // width, minlength=int(group_of[-1] + 1))
    return known + np.bincount(group_of[op == -1], minlength=known.size)


def _metrics(group_of: Ints, registers: Floats, number: int) -> list[Mapping[str, float]]:
    """Return `Total.metrics` of each group."""
    told = np.isfinite(registers) & (registers > 0)
    if not told.any():
        return [MappingProxyType({})] * number
    sums = np.bincount(group_of[told], weights=registers[told], minlength=number).tolist()
    counts = np.bincount(group_of[told], minlength=number).tolist()
    return [
        MappingProxyType({REGISTERS: total / count} if count else {}) for total, count in zip(sums, counts, strict=True)
    ]
