"""Gathers the events of a trace, piece by piece, into columns; texts become numbers into lists."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.interned import Interned
from perfmodel.formats.kernel_names import call_kind
from perfmodel.formats.text.numbers import LONGEST_TIME_S
from perfmodel.formats.torch_trace.columns import (
    ApiColumns,
    CallTexts,
    EventColumns,
    ExchangeColumns,
    GpuColumns,
    Message,
    OpColumns,
    RangeColumns,
    Recorded,
)
from perfmodel.formats.torch_trace.events import Arguments, Event
from perfmodel.formats.torch_trace.exchanges import (
    EXCHANGE_KINDS,
    exchange_facts,
    gpu_kind,
    is_exchange,
    names_collective,
)
from perfmodel.formats.torch_trace.pairs import BEGIN, COMPLETE, END, Pairs
from perfmodel.operators.checks import LARGEST_SIZE
from perfmodel.profile.copies import copy_direction, copy_pinned
from perfmodel.profile.timeline import Floats, Ints

#: `Event.cat` in lower case. "concurrent_kernel" and "operator" are of 2021; mtia are Meta's chips.
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel", "mtia_ccp_events")
_API = ("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime", "privateuse1_driver", "xpu_runtime",
        "xpu_driver", "mtia_runtime")  # fmt: skip


def is_gpu_category(category: object) -> bool:
    """Return whether the events of a category are work of a GPU."""
    return isinstance(category, str) and category.lower() in _GPU


#: microseconds since 1970 are 1.8e15 today, and some profilers write nanoseconds there
_LATEST_US = 1e19
#: a process with a larger number is one of the host
_MOST_DEVICES = 1023
#: a whole number with fewer digits fits into 64 bits
_MOST_DIGITS = 19
#: name of events that have none
UNNAMED = "(unnamed)"
_NO_ARGUMENTS = Arguments()
# attrgetter and map take half the time of a loop over the attributes
_START, _DURATION, _NAME, _THREAD = attrgetter("ts"), attrgetter("dur"), attrgetter("name"), attrgetter("pid", "tid")
_EXTERNAL, _OLD_EXTERNAL = attrgetter("external_id"), attrgetter("old_external_id")
_CORRELATION, _BYTES = attrgetter("correlation"), attrgetter("bytes")
#: the texts of an operator without shapes
_NO_CALL = (b"", b"", b"", b"")

_Columns = TypeVar("_Columns", bound=EventColumns)


class Gathered:
    """Collects events piece by piece.

    Attributes
    ----------
    skipped : reason -> number of skipped events.
    categories : category -> number of its events, of those that are not gathered.
    """

    def __init__(self, skipped: Counter[str]) -> None:
        self.skipped = skipped
        self.categories: Counter[str] = Counter()
        self._pairs = Pairs(skipped)
        self.names, self.threads = Interned[str](), Interned[tuple[Any, Any]]()
        self.calls, self.collectives = Interned[tuple[bytes, ...]](), Interned[tuple[Any, ...]]()
        self._parts: dict[str, list[EventColumns]] = {kind: [] for kind in _BUILDERS}

    def add(self, events: list[Event]) -> None:
        """Add a piece of the trace."""
        if self._add_complete(events) or self._pairs:
            self._add_complete(self._pairs.joined(events))

    def _add_complete(self, events: list[Event]) -> bool:
        """Add the complete events, and return whether there are parts of others."""
        buckets: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            buckets[event.cat].append(event)
        has_parts = False
        for category, bucket in buckets.items():
            kind = _KINDS.get((category or "").lower())
            if kind is None:
                self.categories[category or ""] += len(bucket)
                continue
            complete = [event for event in bucket if event.ph == COMPLETE]
            if len(complete) < len(bucket):
                has_parts |= self._has_parts(bucket)
            if complete:
                self._parts[kind].append(self._columns(kind, complete))
            between_ranks = self._between_ranks(complete) if complete and kind in EXCHANGE_KINDS else []
            if between_ranks:
                self._parts["exchanges"].append(self._columns("exchanges", between_ranks, again=True))
        return has_parts

    def _has_parts(self, bucket: list[Event]) -> bool:
        """Return whether some events are parts of events; count those that are neither complete nor parts."""
        phases = Counter(event.ph for event in bucket)
        has_parts = phases.pop(BEGIN, 0) + phases.pop(END, 0) > 0
        del phases[COMPLETE]
        if phases:
            self.skipped["event that is not complete (ph is not X)"] += phases.total()
        return has_parts

    @staticmethod
    def _between_ranks(bucket: list[Event]) -> list[Event]:
        """Return the events of one category that are exchanges between ranks; each name is looked at once."""
        category = bucket[0].cat
        by_name = {name for name in set(map(_NAME, bucket)) if is_exchange(category, name)}
        named = {event.name for event in bucket if names_collective(event)} - by_name
        by_arguments = {name for name in named if is_exchange(category, name, collective=True)}
        if not by_name and not by_arguments:
            return []
        return [
            event
            for event in bucket
            if event.name in by_name or (event.name in by_arguments and names_collective(event))
        ]

    def recorded(self) -> Recorded:
        """Return everything that was added."""
        self._pairs.finish()
        gpu, exchanges = self._all("gpu", GpuColumns), self._all("exchanges", ExchangeColumns)
        if (repeated := gpu.repeated()).any():
            # a GPU runs one piece of work of a stream at a time
            self.skipped["event of the GPU that the trace lists twice"] += int(repeated.sum())
            gpu, exchanges = gpu.take(~repeated), exchanges.take(~exchanges.repeated())
        return Recorded(
            gpu=gpu,
            api=self._all("api", ApiColumns),
            ops=self._all("ops", OpColumns),
            annotations=self._all("annotations", RangeColumns),
            gpu_annotations=self._all("gpu_annotations", RangeColumns),
            python=self._all("python", RangeColumns),
            exchanges=exchanges,
            names=tuple(self.names),
            calls=tuple(CallTexts(*texts) for texts in self.calls),
            collectives=tuple(Message(*message) for message in self.collectives),
        )

    def _all(self, kind: str, columns: type[_Columns]) -> _Columns:
        parts = self._parts.pop(kind) or [_no_columns(kind)]
        return columns.joined([part for part in parts if isinstance(part, columns)])

    def _columns(self, kind: str, bucket: list[Event], *, again: bool = False) -> EventColumns:
        """Return complete events as columns; ``again`` says that what is wrong with them is counted already."""
        start_us, duration_us = _floats(bucket, _START), _floats(bucket, _DURATION)
        good = self._plausible(start_us, duration_us, Counter() if again else self.skipped)
        if not good.all():
            bucket = [event for event, is_good in zip(bucket, good.tolist(), strict=True) if is_good]
            start_us, duration_us = start_us[good], duration_us[good]
        name = self.names.numbers([name or UNNAMED for name in map(_NAME, bucket)])
        return _BUILDERS[kind](self, bucket, (start_us, duration_us, name))

    @staticmethod
    def _plausible(start_us: Floats, duration_us: Floats, skipped: Counter[str]) -> NDArray[np.bool_]:
        """Return which events have possible times, and count the others."""
        longest_us = 1e6 * LONGEST_TIME_S
        with np.errstate(invalid="ignore"):
            possible = (start_us >= 0) & (start_us <= _LATEST_US) & (duration_us >= 0) & (duration_us <= longest_us)
            if possible.all():  # as those of almost every trace
                return possible
            checks = {
                "event without a start": np.isnan(start_us),
                "event without a duration": np.isnan(duration_us) & ~np.isnan(start_us),
                "event with a negative time": (start_us < 0) | (duration_us < 0),
                "event with an impossible time": (start_us > _LATEST_US) | (duration_us > longest_us),
            }
        good = np.ones(start_us.size, dtype=bool)
        for reason, bad in checks.items():
            if bad.any():
                skipped[reason] += int((bad & good).sum())
                good &= ~bad
        return good

    def thread_numbers(self, events: list[Event]) -> Ints:
        """Return the number of each event's process and thread."""
        return self.threads.numbers(map(_THREAD, events))

    def collective_numbers(self, arguments: list[Arguments]) -> Ints:
        """Return the number of each event's collective, or -1."""
        number = self.collectives
        return _ints(
            [
                -1
                if a.collective is None
                else number[(a.collective, a.elements_in, a.elements_out, a.group_size, bytes(a.dtype))]
                for a in arguments
            ]
        )


@functools.cache
def _no_columns(kind: str) -> EventColumns:
    """Return the columns of no events of a kind, which most traces have of some kinds."""
    return Gathered(Counter())._columns(kind, [])


#: start, duration and name, which events of every kind have
_Common = tuple[Floats, Floats, Ints]


def _arguments(events: list[Event]) -> list[Arguments]:
    return [event.args or _NO_ARGUMENTS for event in events]


def _ints(values: Sequence[int | tuple[int, ...]]) -> Ints:
    return np.array(values, dtype=np.int64)


def _floats(events: list[Event], field: attrgetter[Any]) -> Floats:
    """Return a field of each event, NaN where it is missing."""
    try:
        return np.fromiter(map(field, events), np.float64, len(events))
    except TypeError:  # some are None
        return np.array(list(map(field, events)), dtype=np.float64)


def _ids(arguments: list[Arguments], field: attrgetter[Any]) -> Ints:
    return np.fromiter(map(field, arguments), np.int64, len(arguments))


def _external(arguments: list[Arguments]) -> Ints:
    """Return the id of the operator that each event belongs to, or -1; under the old name of the key 0 means none."""
    new, old = _ids(arguments, _EXTERNAL), _ids(arguments, _OLD_EXTERNAL)
    return np.where(new >= 0, new, np.where(old > 0, old, -1))


def _bytes(arguments: list[Arguments]) -> Floats:
    """Return the bytes of each event, NaN without any; ROCm writes them as text."""
    if set(map(_BYTES, arguments)) <= {None}:
        return np.full(len(arguments), np.nan)
    values = [float(a.bytes) if type(a.bytes) is str and a.bytes.isdecimal() else a.bytes for a in arguments]
    numbers = np.array([None if type(value) is str else value for value in values], dtype=np.float64)
    return np.where((numbers >= 0) & (numbers <= LARGEST_SIZE), numbers, np.nan)


def _ranges(gathered: Gathered, events: list[Event], common: _Common) -> RangeColumns:
    return RangeColumns(*common, thread=gathered.thread_numbers(events))


def _gpu_facts(category: str, name: str, *, collective: bool) -> tuple[int, int, int]:
    """Return the kind of GPU work, and of a copy its direction and whether host memory is pinned, else -1."""
    kind = gpu_kind(category, name, collective=collective)
    return (kind.code, copy_direction(name), copy_pinned(name)) if kind is EventKind.MEMCPY else (kind.code, -1, -1)


def _device_of(arguments: Arguments, event: Event) -> int:
    """Return the number of an event's GPU, which the profiler writes as its process, too; -1 where neither tells."""
    device, process = _number(arguments.device), _number(event.pid)
    if device >= 0:
        return device
    return process if 0 <= process <= _MOST_DEVICES else -1


def _number(value: object) -> int:
    """Return a number of a stream, device or process, which some programs write as text; -1 for other texts."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _MOST_DIGITS else -1


def _gpu(gathered: Gathered, events: list[Event], common: _Common) -> GpuColumns:
    arguments = _arguments(events)
    kinds = Interned[tuple[str, str, bool]]()
    kind_of = kinds.numbers([(event.cat or "", event.name or "", names_collective(event)) for event in events])
    # a trace has few names, so each is looked at once
    facts = _ints([_gpu_facts(cat, name, collective=named) for cat, name, named in kinds]).reshape(-1, 3)[kind_of]
    return GpuColumns(
        *common,
        category=facts[:, 0],
        direction=facts[:, 1],
        pinned=facts[:, 2],
        stream=_ints([_number(a.stream) for a in arguments]),
        device=_ints([_device_of(a, event) for a, event in zip(arguments, events, strict=True)]),
        correlation=_ids(arguments, _CORRELATION),
        external=_external(arguments),
        bytes=_bytes(arguments),
        registers=np.array([a.registers if type(a.registers) is float else np.nan for a in arguments]),
        collective=gathered.collective_numbers(arguments),
    )


def _api(gathered: Gathered, events: list[Event], common: _Common) -> ApiColumns:
    arguments = _arguments(events)
    names = Interned[str]()
    name_of = names.numbers([event.name or "" for event in events])
    return ApiColumns(
        *common,
        thread=gathered.thread_numbers(events),
        category=_ints([call_kind(name) for name in names])[name_of],
        correlation=_ids(arguments, _CORRELATION),
        external=_external(arguments),
        bytes=_bytes(arguments),
    )


def _ops(gathered: Gathered, events: list[Event], common: _Common) -> OpColumns:
    arguments = _arguments(events)
    calls, no_call = gathered.calls, gathered.calls[_NO_CALL]
    call = [
        calls[(bytes(a.dims or a.old_dims), bytes(a.strides), bytes(a.types), bytes(a.concrete))]
        if a.types or a.dims or a.old_dims
        else no_call
        for a in arguments
    ]
    return OpColumns(
        *common,
        thread=gathered.thread_numbers(events),
        call=_ints(call),
        external=_external(arguments),
        collective=gathered.collective_numbers(arguments),
    )


def _exchanges(gathered: Gathered, events: list[Event], common: _Common) -> ExchangeColumns:
    facts = [exchange_facts(event) for event in events]
    numbers = gathered.names.numbers([fact.operation for fact in facts])
    groups = gathered.names.numbers([fact.group for fact in facts])
    named = np.array([bool(fact.group) for fact in facts], dtype=bool)
    return ExchangeColumns(
        common[0],
        common[1],
        numbers,
        group=np.where(named, groups, -1),
        sequence=_ints([fact.sequence for fact in facts]),
        bytes=np.array([fact.bytes for fact in facts], dtype=np.float64),
        ranks=_ints([fact.ranks for fact in facts]),
        on_gpu=_ints([fact.on_gpu for fact in facts]),
        sender=_ints([fact.sender for fact in facts]),
        receiver=_ints([fact.receiver for fact in facts]),
    )


_BUILDERS: dict[str, Callable[[Gathered, list[Event], _Common], EventColumns]] = {
    "gpu": _gpu,
    "api": _api,
    "ops": _ops,
    "annotations": _ranges,
    "gpu_annotations": _ranges,
    "python": _ranges,
    "exchanges": _exchanges,
}
_KINDS = {
    **dict.fromkeys(_GPU, "gpu"),
    **dict.fromkeys(_API, "api"),
    **dict.fromkeys(("cpu_op", "operator"), "ops"),
    **dict.fromkeys(("python_function", "pythonfunction"), "python"),
    "user_annotation": "annotations",
    "gpu_user_annotation": "gpu_annotations",
}
