"""Columns of numbers from the events of a trace, gathered piece by piece; texts become numbers into lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.formats.kernel_names import api_category, copy_direction, copy_pinned, gpu_category
from perfmodel.formats.torch_trace.events import Arguments, Event

#: `Event.cat`, in lower case, of work on a GPU; "concurrent_kernel" and the capitals are of 2021, mtia of Meta's chips
GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel", "mtia_ccp_events"})
API = frozenset({"cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime", "privateuse1_driver", "xpu_runtime",
                 "xpu_driver", "mtia_runtime"})  # fmt: skip
OPS = frozenset({"cpu_op", "operator"})
PYTHON = frozenset({"python_function", "pythonfunction"})
ANNOTATIONS, GPU_ANNOTATIONS = frozenset({"user_annotation"}), frozenset({"gpu_user_annotation"})
KINDS = {
    **dict.fromkeys(GPU, "gpu"),
    **dict.fromkeys(API, "api"),
    **dict.fromkeys(OPS, "ops"),
    **dict.fromkeys(PYTHON, "python"),
    **dict.fromkeys(ANNOTATIONS, "annotations"),
    **dict.fromkeys(GPU_ANNOTATIONS, "gpu_annotations"),
}
#: about 30 years: no time of a trace is longer [us]
_LONGEST_US = 1e15
#: microseconds since 1970 are 1.8e15 today; some profilers count nanoseconds there
_LATEST_US = 1e19
_NO_ARGUMENTS = Arguments()
#: the texts of a call without shapes
_NO_CALL = (b"", b"", b"", b"")

Columns = dict[str, NDArray[Any]]


class Interned(dict[Any, int]):
    """Values and their numbers, in the order in which they were first seen."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number

    def numbers(self, values: Iterable[Any]) -> NDArray[np.int64]:
        """Return the number of each value."""
        return np.array([self[value] for value in values], dtype=np.int64)


class Gathered:
    """The events of a trace by kind, as columns.

    Attributes
    ----------
    names, threads, calls, collectives : what numbers in the columns stand for; a call is the text of its shapes,
        strides, dtypes and values, a collective its name, elements in and out, group size and dtype.
    skipped : reason -> number of events that were left out.
    """

    def __init__(self, skipped: Counter[str]) -> None:
        self.names, self.threads, self.calls, self.collectives = Interned(), Interned(), Interned(), Interned()
        self.skipped = skipped
        self._kinds: dict[str | None, str] = {}
        self._parts: dict[str, list[Columns]] = {kind: [] for kind in _COLUMNS}

    def add(self, events: list[Event]) -> None:
        """Add a piece of the trace."""
        buckets: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            buckets[event.cat].append(event)
        for category, bucket in buckets.items():
            kind = KINDS.get((category or "").lower())
            if kind is not None:
                self._add(kind, bucket)

    def _add(self, kind: str, bucket: list[Event]) -> None:
        begun = [event for event in bucket if event.ph == "X"]
        if len(begun) < len(bucket):
            self.skipped["an event that is no complete one (ph is not X)"] += len(bucket) - len(begun)
        start = np.array([event.ts for event in begun], dtype=np.float64)
        duration = np.array([event.dur for event in begun], dtype=np.float64)
        good = self._plausible(start, duration)
        if not good.all():
            begun = [event for event, kept in zip(begun, good.tolist(), strict=True) if kept]
            start, duration = start[good], duration[good]
        name = self.names.numbers([event.name or "(unnamed)" for event in begun])
        self._parts[kind].append({"start": start, "duration": duration, "name": name, **_COLUMNS[kind](self, begun)})

    def _plausible(self, start: NDArray[np.float64], duration: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Tell which events have times that can be right, and count the others."""
        with np.errstate(invalid="ignore"):
            checks = {
                "an event without a start": np.isnan(start),
                "an event without a duration": np.isnan(duration) & ~np.isnan(start),
                "an event with a negative time": (start < 0) | (duration < 0),
                "an event with an impossible time": (start > _LATEST_US) | (duration > _LONGEST_US),
            }
        good = np.ones(start.size, dtype=bool)
        for reason, bad in checks.items():
            if bad.any():
                self.skipped[reason] += int((bad & good).sum())
                good &= ~bad
        return good

    def columns(self, kind: str) -> Columns:
        """Return the columns of one kind, ordered by start."""
        parts = self._parts.pop(kind)
        if not parts:
            parts = [{"start": np.empty(0), "duration": np.empty(0), "name": np.empty(0, dtype=np.int64),
                      **_COLUMNS[kind](self, [])}]  # fmt: skip
        whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        order = np.argsort(whole["start"], kind="stable")
        return {key: column[order] for key, column in whole.items()}

    def texts(self) -> tuple[str, ...]:
        """Return the names."""
        return tuple(self.names)


def _arguments(events: list[Event]) -> list[Arguments]:
    return [event.args or _NO_ARGUMENTS for event in events]


def _ints(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _external(arguments: list[Arguments]) -> NDArray[np.int64]:
    """Return the id of the operator that each event belongs to, -1 for none; the old name of the key writes 0."""
    new, old = _ints([a.external_id for a in arguments]), _ints([a.old_external_id for a in arguments])
    return np.where(new >= 0, new, np.where(old > 0, old, -1))


def _bytes(arguments: list[Arguments]) -> NDArray[np.float64]:
    """Return the bytes of each event, NaN where it does not say; ROCm writes them as text."""
    values = [float(a.bytes) if type(a.bytes) is str and a.bytes.isdecimal() else a.bytes for a in arguments]
    numbers = np.array([None if type(value) is str else value for value in values], dtype=np.float64)
    return np.where(numbers >= 0, numbers, np.nan)


def _threads(gathered: Gathered, events: list[Event]) -> Columns:
    return {"thread": gathered.threads.numbers([(event.pid, event.tid) for event in events])}


def _gpu(gathered: Gathered, events: list[Event]) -> Columns:
    arguments = _arguments(events)
    named = Interned()
    kinds = named.numbers([(event.cat or "", event.name or "") for event in events])
    per_name = np.array(
        [(gpu_category(cat.lower(), name), copy_direction(name), copy_pinned(name)) for cat, name in named],
        dtype=np.int64,
    ).reshape(-1, 3)[kinds]
    is_copy = per_name[:, 0] == 1
    return {
        "category": per_name[:, 0],
        "direction": np.where(is_copy, per_name[:, 1], -1),
        "pinned": np.where(is_copy, per_name[:, 2], -1),
        "stream": _ints([a.stream if type(a.stream) is int else -1 for a in arguments]),
        "device": _ints([a.device if type(a.device) is int else -1 for a in arguments]),
        "correlation": _ints([a.correlation for a in arguments]),
        "external": _external(arguments),
        "bytes": _bytes(arguments),
        "registers": np.array([a.registers if type(a.registers) is float else np.nan for a in arguments]),
        "collective": _collectives(gathered, arguments),
    }


def _collectives(gathered: Gathered, arguments: list[Arguments]) -> NDArray[np.int64]:
    number = gathered.collectives
    return _ints(
        [
            -1
            if a.collective is None
            else number[(a.collective, a.elements_in, a.elements_out, a.group_size, bytes(a.dtype))]
            for a in arguments
        ]
    )


def _api(gathered: Gathered, events: list[Event]) -> Columns:
    arguments = _arguments(events)
    named = Interned()
    kinds = named.numbers([event.name or "" for event in events])
    return {
        **_threads(gathered, events),
        "category": _ints([api_category(name) for name in named])[kinds],
        "correlation": _ints([a.correlation for a in arguments]),
        "external": _external(arguments),
        "bytes": _bytes(arguments),
    }


def _ops(gathered: Gathered, events: list[Event]) -> Columns:
    arguments = _arguments(events)
    calls, nothing = gathered.calls, gathered.calls[_NO_CALL]
    texts = [
        calls[(bytes(a.dims or a.old_dims), bytes(a.strides), bytes(a.types), bytes(a.concrete))]
        if a.types or a.dims or a.old_dims
        else nothing
        for a in arguments
    ]
    return {
        **_threads(gathered, events),
        "call": _ints(texts),
        "external": _external(arguments),
        "collective": _collectives(gathered, arguments),
    }


_COLUMNS: dict[str, Callable[[Gathered, list[Event]], Columns]] = {
    "gpu": _gpu,
    "api": _api,
    "ops": _ops,
    "annotations": _threads,
    "gpu_annotations": _threads,
    "python": _threads,
}
