"""Gathers the events of a trace, piece by piece, into columns; texts become numbers into lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.interned import Interned
from perfmodel.formats.kernel_names import call_kind
from perfmodel.formats.packed import floats, ints
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
from perfmodel.formats.torch_trace.fields import (
    external_ids,
    numbers,
    registers,
    sizes_in_bytes,
)
from perfmodel.formats.torch_trace.pairs import BEGIN, COMPLETE, END, Pairs
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
#: longer durations are damage [us]
_LONGEST_US = 1e6 * LONGEST_TIME_S
#: a process with a larger number is one of the host
_MOST_DEVICES = 1023
#: name of events that have none
UNNAMED = "(unnamed)"
_NO_ARGUMENTS = Arguments()
#: stands between the texts of a call; no JSON has it
_BETWEEN = b"\0"
#: the texts of an operator without shapes
_NO_CALL = _BETWEEN * 3

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
        self.names: Interned[str] = Interned()
        self.threads: Interned[tuple[Any, Any]] = Interned()
        self.calls: Interned[bytes] = Interned()
        self.collectives: Interned[tuple[Any, ...]] = Interned()
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
        by_name = {name for name in {event.name for event in bucket} if is_exchange(category, name)}
        named = {one.name for one in bucket if one.args is not None and one.args.collective is not None} - by_name
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
            calls=tuple(CallTexts(*texts.split(_BETWEEN, 3)) for texts in self.calls),
            collectives=tuple(Message(*message) for message in self.collectives),
        )

    def _all(self, kind: str, columns: type[_Columns]) -> _Columns:
        parts = [part for part in self._parts.pop(kind) if isinstance(part, columns)]
        return columns.joined(parts) if parts else columns.none()

    def _columns(self, kind: str, bucket: list[Event], *, again: bool = False) -> EventColumns:
        """Return complete events as columns; ``again`` says that what is wrong with them is counted already."""
        start_us, duration_us = floats([event.ts for event in bucket]), floats([event.dur for event in bucket])
        if not _are_plausible(start_us, duration_us):
            good = self._plausible(start_us, duration_us, Counter() if again else self.skipped)
            bucket = [event for event, is_good in zip(bucket, good.tolist(), strict=True) if is_good]
            start_us, duration_us = start_us[good], duration_us[good]
        texts = [event.name or UNNAMED for event in bucket]
        common = (start_us, duration_us, self.names.numbers(texts))
        return _BUILDERS[kind](self, _Bucket(bucket, texts), common)

    @staticmethod
    def _plausible(start_us: Floats, duration_us: Floats, skipped: Counter[str]) -> NDArray[np.bool_]:
        """Return which events have possible times, and count the others."""
        with np.errstate(invalid="ignore"):
            checks = {
                "event without a start": np.isnan(start_us),
                "event without a duration": np.isnan(duration_us) & ~np.isnan(start_us),
                "event with a negative time": (start_us < 0) | (duration_us < 0),
                "event with an impossible time": (start_us > _LATEST_US) | (duration_us > _LONGEST_US),
            }
        good = np.ones(start_us.size, dtype=bool)
        for reason, bad in checks.items():
            if bad.any():
                skipped[reason] += int((bad & good).sum())
                good &= ~bad
        return good

    def thread_numbers(self, events: list[Event]) -> Ints:
        """Return the number of each event's process and thread."""
        numbers, threads = self.threads, [event.tid for event in events]
        processes = {event.pid for event in events}
        if len(processes) > 1:
            return numbers.numbers([(event.pid, event.tid) for event in events])
        process = next(iter(processes), None)
        number_of = {thread: numbers[process, thread] for thread in dict.fromkeys(threads)}
        if len(number_of) == 1:
            return np.full(len(events), number_of[threads[0]])
        return ints([number_of[thread] for thread in threads])

    def call_numbers(self, arguments: list[Arguments]) -> Ints:
        """Return the number of what each operator says about its arguments; those without shapes share one."""
        number, no_call = self.calls, self.calls[_NO_CALL]
        # one event after the other: copies of all texts would not stay in the processor's cache
        return ints(
            [
                number[_BETWEEN.join((a.dims or a.old_dims, a.strides, a.types, a.concrete))]
                if a.types or a.dims or a.old_dims
                else no_call
                for a in arguments
            ]
        )

    def collective_numbers(self, arguments: list[Arguments]) -> Ints:
        """Return the number of each event's collective, or -1."""
        told = [one.collective for one in arguments]
        if told.count(None) == len(told):
            return np.full(len(arguments), -1)
        number = self.collectives
        return ints(
            [
                -1
                if a.collective is None
                else number[(a.collective, a.elements_in, a.elements_out, a.group_size, bytes(a.dtype))]
                for a in arguments
            ]
        )


class _Bucket(NamedTuple):
    """Complete events of one category, with the name of each."""

    events: list[Event]
    texts: list[str]

    def arguments(self) -> list[Arguments]:
        """Return the arguments of each event."""
        return [event.args or _NO_ARGUMENTS for event in self.events]


#: start, duration and name, which events of every kind have
_Common = tuple[Floats, Floats, Ints]


def _are_plausible(start_us: Floats, duration_us: Floats) -> bool:
    """Return whether all times are possible, as those of almost every trace are; NaN is not."""
    if not start_us.size:
        return True
    earliest, latest, shortest, longest = start_us.min(), start_us.max(), duration_us.min(), duration_us.max()
    return bool(earliest >= 0 and latest <= _LATEST_US and shortest >= 0 and longest <= _LONGEST_US)


def _ranges(gathered: Gathered, bucket: _Bucket, common: _Common) -> RangeColumns:
    return RangeColumns(*common, thread=gathered.thread_numbers(bucket.events))


def _gpu_facts(category: str, name: str, *, collective: bool) -> tuple[int, int, int]:
    """Return the kind of GPU work, and of a copy its direction and whether host memory is pinned, else -1."""
    kind = gpu_kind(category, name, collective=collective)
    return (kind.code, copy_direction(name), copy_pinned(name)) if kind is EventKind.MEMCPY else (kind.code, -1, -1)


def _devices(events: list[Event], arguments: list[Arguments]) -> Ints:
    """Return the number of each event's GPU, which the profiler writes as its process, too; -1 where neither tells."""
    device = numbers([one.device for one in arguments])
    told = device >= 0
    if told.all():
        return device
    process = numbers([event.pid for event in events])
    return np.where(told, device, np.where((process >= 0) & (process <= _MOST_DEVICES), process, -1))


def _gpu(gathered: Gathered, bucket: _Bucket, common: _Common) -> GpuColumns:
    events, texts = bucket
    arguments = bucket.arguments()
    collective = gathered.collective_numbers(arguments)
    category = (events[0].cat if events else None) or ""
    # a trace has few names, so each is looked at once
    keys = (2 * common[2] + (collective >= 0)).tolist()
    kinds = dict(zip(keys, texts, strict=True))
    found = [_gpu_facts(category, name, collective=bool(key % 2)) for key, name in kinds.items()]
    facts = np.array(found, dtype=np.int64).reshape(-1, 3).T
    place = {key: index for index, key in enumerate(kinds)}
    rows = ints([place[key] for key in keys])
    return GpuColumns(
        *common,
        category=facts[0, rows],
        direction=facts[1, rows],
        pinned=facts[2, rows],
        stream=numbers([one.stream for one in arguments]),
        device=_devices(events, arguments),
        correlation=ints([one.correlation for one in arguments]),
        external=external_ids(arguments),
        bytes=sizes_in_bytes(arguments),
        registers=registers(arguments),
        collective=collective,
    )


def _api(gathered: Gathered, bucket: _Bucket, common: _Common) -> ApiColumns:
    arguments = bucket.arguments()
    kind_of = {name: call_kind(name) for name in set(bucket.texts)}
    return ApiColumns(
        *common,
        thread=gathered.thread_numbers(bucket.events),
        category=ints([kind_of[name] for name in bucket.texts]),
        correlation=ints([one.correlation for one in arguments]),
        external=external_ids(arguments),
        bytes=sizes_in_bytes(arguments),
    )


def _ops(gathered: Gathered, bucket: _Bucket, common: _Common) -> OpColumns:
    arguments = bucket.arguments()
    return OpColumns(
        *common,
        thread=gathered.thread_numbers(bucket.events),
        call=gathered.call_numbers(arguments),
        external=external_ids(arguments),
        collective=gathered.collective_numbers(arguments),
    )


def _exchanges(gathered: Gathered, bucket: _Bucket, common: _Common) -> ExchangeColumns:
    facts = [exchange_facts(event) for event in bucket.events]
    numbers = gathered.names.numbers([fact.operation for fact in facts])
    groups = gathered.names.numbers([fact.group for fact in facts])
    named = np.array([bool(fact.group) for fact in facts], dtype=bool)
    return ExchangeColumns(
        common[0],
        common[1],
        numbers,
        group=np.where(named, groups, -1),
        sequence=ints([fact.sequence for fact in facts]),
        bytes=np.array([fact.bytes for fact in facts], dtype=np.float64),
        ranks=ints([fact.ranks for fact in facts]),
        on_gpu=ints([fact.on_gpu for fact in facts]),
        sender=ints([fact.sender for fact in facts]),
        receiver=ints([fact.receiver for fact in facts]),
    )


_BUILDERS: dict[str, Callable[[Gathered, _Bucket, _Common], EventColumns]] = {
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
