"""The time line of a traced run: the work of the GPUs, the calls of the CPU that asked for it, and when each ran.

All times are seconds since the first event of the trace. Names are indices into ``Timeline.names``, so that a million
events take a few numpy arrays and one tuple of strings.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: torch.profiler's schedule annotates each step with a name that starts with this: "ProfilerStep#5"
STEP_NAME = "ProfilerStep#"


class CallKind(enum.IntEnum):
    """What a call of the CUDA or HIP runtime does; the values of `ApiCalls.category`."""

    LAUNCH = 0  # starts a kernel or a graph
    SYNC = 1  # waits for the GPU
    COPY = 2  # copies or sets memory; a copy that waits for the GPU (cudaMemcpy without Async) is a copy, too
    OTHER = 3


class CopyDirection(enum.IntEnum):
    """The direction of a copy; the values of `GpuEvents.direction`."""

    HOST_TO_DEVICE = 0
    DEVICE_TO_HOST = 1
    DEVICE_TO_DEVICE = 2  # within one device
    BETWEEN_DEVICES = 3
    UNKNOWN = -1  # not a copy, or the trace does not record it

    @property
    def word(self) -> str:
        """The direction as `perfmodel.Memcpy` names it, "h2d"; empty where that has none, or it is unknown."""
        return {0: "h2d", 1: "d2h", 2: "d2d"}.get(self.value, "")


def _no_floats() -> Floats:
    return np.empty(0)


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Spans:
    """Named time spans, ordered by start; everything on a time line has these columns.

    Attributes
    ----------
    start_s, duration_s : [s].
    name : index into `Timeline.names`.
    """

    start_s: Floats = field(default_factory=_no_floats)
    duration_s: Floats = field(default_factory=_no_floats)
    name: Ints = field(default_factory=_no_ints)

    def __len__(self) -> int:
        return int(self.start_s.size)

    @property
    def end_s(self) -> Floats:
        """The end of each span [s]."""
        return self.start_s + self.duration_s

    def take(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the spans where a mask is true; columns that are empty stay so."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return type(self)(**{name: values[chosen] if values.size else values for name, values in columns.items()})


@dataclass(frozen=True)
class GpuEvents(Spans):
    """The work of the GPUs, ordered by start.

    Attributes
    ----------
    category : `EventKind.code` of a kernel, memcpy, memset or communication.
    stream, device : numbers as the profiler gave them; -1 where it does not record them.
    launch : index into `Timeline.api` of the call that started the event, or -1; all kernels of one graph share a call.
    op : index into `Timeline.ops` of the innermost framework operator that launched the event, or -1.
    bytes : bytes copied or set; NaN for kernels and where the trace does not record them.
    direction : a `CopyDirection`.
    pinned : 1 where the host memory of a copy is pinned, 0 where it is pageable, -1 where it is unknown.
    entry : index into `Profile.entries` of the entry that counts the event, or -1; the array is empty where the reader
        does not link events to entries.
    """

    category: Ints = field(default_factory=_no_ints)
    stream: Ints = field(default_factory=_no_ints)
    device: Ints = field(default_factory=_no_ints)
    launch: Ints = field(default_factory=_no_ints)
    op: Ints = field(default_factory=_no_ints)
    bytes: Floats = field(default_factory=_no_floats)
    direction: Ints = field(default_factory=_no_ints)
    pinned: Ints = field(default_factory=_no_ints)
    entry: Ints = field(default_factory=_no_ints)

    def are(self, kind: EventKind) -> NDArray[np.bool_]:
        """Return which events are of a kind; shape (events,)."""
        return np.asarray(self.category == kind.code)

    def kind_of(self, events: Ints) -> EventKind:
        """Return the kind of an entry that counts some events: a kernel if one runs, else what takes longest.

        A memset or a copy beside kernels belongs to the same operator.
        """
        kind_s = np.bincount(self.category[events], weights=self.duration_s[events], minlength=len(EventKind))
        return EventKind.KERNEL if kind_s[EventKind.KERNEL.code] > 0 else EventKind.from_code(int(kind_s.argmax()))


@dataclass(frozen=True)
class ApiCalls(Spans):
    """Calls of the CUDA or HIP runtime and driver, ordered by start.

    Attributes
    ----------
    thread : number of the thread.
    category : a `CallKind`.
    op : index into `Timeline.ops` of the innermost framework operator around the call, or -1.
    """

    thread: Ints = field(default_factory=_no_ints)
    category: Ints = field(default_factory=_no_ints)
    op: Ints = field(default_factory=_no_ints)


@dataclass(frozen=True)
class HostRanges(Spans):
    """Framework operators or annotated ranges on the CPU, ordered by start.

    Attributes
    ----------
    thread : number of the thread.
    parent : index of the enclosing range on the same thread, or -1.
    """

    thread: Ints = field(default_factory=_no_ints)
    parent: Ints = field(default_factory=_no_ints)


@dataclass(frozen=True)
class Exchanges(Spans):
    """Collectives and messages between ranks, ordered by start; ``name`` is the operation's, as "all_reduce".

    Attributes
    ----------
    group : index into `Timeline.names` of the process group, or -1 where the trace does not name it.
    sequence : number of the exchange in its group, or -1 where the trace does not count them.
    bytes : the message of this rank: the larger of what it sends and receives, NaN where unknown [B]. Of an all-gather
        whose ``ranks`` are unknown it is what the rank sends, since gloo's ranges list no more.
    ranks : ranks of the group, 0 where unknown.
    sender, receiver : of a message between two ranks the number of the one at its other end, as far as the trace says;
        else -1, and also for the rank itself. Empty where no message has them.
    """

    group: Ints = field(default_factory=_no_ints)
    sequence: Ints = field(default_factory=_no_ints)
    bytes: Floats = field(default_factory=_no_floats)
    ranks: Ints = field(default_factory=_no_ints)
    sender: Ints = field(default_factory=_no_ints)
    receiver: Ints = field(default_factory=_no_ints)


@dataclass(frozen=True)
class Timeline:
    """When everything in a run happened.

    Attributes
    ----------
    names : the strings that the name columns index.
    gpu, api, ops : events of the GPUs, calls of the runtime, framework operators on the CPU.
    annotations : named ranges of the user ("ProfilerStep#6", NVTX ranges).
    stacks : index into ``ops`` -> the Python calls around it, innermost last, where the trace records them; only for
        operators that wait for the GPU or copy.
    window_s : start and end of the analysed part [s]: the profiler's steps where there are any, else from the first
        to the last event.
    api_stacks : index into ``api`` -> the Python calls around it, for runtime calls that wait or copy.
    exchanges : what the ranks of a job exchange; empty where the reader does not tell them from other work.
    origin_s : the zero of all times on the clock of the host [s since 1970, or since it started], NaN where unknown.
    """

    names: tuple[str, ...] = ()
    gpu: GpuEvents = field(default_factory=GpuEvents)
    api: ApiCalls = field(default_factory=ApiCalls)
    ops: HostRanges = field(default_factory=HostRanges)
    annotations: HostRanges = field(default_factory=HostRanges)
    stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    window_s: tuple[float, float] = (0.0, 0.0)
    api_stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    exchanges: Exchanges = field(default_factory=Exchanges)
    origin_s: float = float("nan")

    def in_window(self) -> NDArray[np.bool_]:
        """Return which GPU events start in the window; the entries of a profile count these."""
        start, end = self.window_s
        return np.asarray((self.gpu.start_s >= start) & (self.gpu.start_s <= end))

    def overlaps_window(self) -> NDArray[np.bool_]:
        """Return which GPU events run for some time in the window."""
        start, end = self.window_s
        return np.asarray((self.gpu.end_s > start) & (self.gpu.start_s < end))

    def between_gpu_work(self) -> Timeline:
        """Return the time line with a window from the first to the last piece of GPU work in it.

        A trace that marks no steps begins and ends where somebody switched the profiler on and off; what the host does
        before the first and after the last piece of GPU work is no part of the work. Marked steps stay as they are.
        """
        inside = self.overlaps_window()
        if self.count_steps() or not inside.any():
            return self
        low, high = self.window_s
        first, last = float(self.gpu.start_s[inside].min()), float(self.gpu.end_s[inside].max())
        return replace(self, window_s=(max(low, first), min(high, last)))

    def count_steps(self) -> int:
        """Return how many steps of the profiler ("ProfilerStep#5") the window has (`steps_inside`)."""
        return len(self.steps_inside())

    def steps_inside(self) -> set[str]:
        """Return the names of the profiler's steps of which more than half is in the window.

        That is half of the time of the GPU work that a step launched, since a GPU may run behind the host, and half of
        its time on the host where it launched nothing.
        """
        ranges, launch = self.annotations, self.gpu.launch
        known = launch >= 0
        worked_s = self.gpu.duration_s[known] if launch.size else np.empty(0)
        counted_s = worked_s * self.in_window()[known] if launch.size else worked_s
        launched_s = self.api.start_s[launch[known]]
        steps = set()
        for name, start_s, end_s in zip(
            ranges.name.tolist(), ranges.start_s.tolist(), ranges.end_s.tolist(), strict=True
        ):
            if not self.names[name].startswith(STEP_NAME):
                continue
            own = (launched_s >= start_s) & (launched_s < end_s)
            whole_s, inside_s = float(worked_s[own].sum()), float(counted_s[own].sum())
            if not whole_s:
                whole_s, inside_s = end_s - start_s, min(end_s, self.window_s[1]) - max(start_s, self.window_s[0])
            if inside_s > whole_s / 2:
                steps.add(self.names[name])
        return steps
