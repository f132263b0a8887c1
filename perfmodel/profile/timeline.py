"""The time line of a traced run: what the GPU did, what the CPU asked of it, and when; columns of numpy arrays.

All times are seconds since the first event of the trace. Names are numbers into ``names``, so that a million events
cost a few arrays and one tuple of texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: annotations of torch.profiler's schedule begin so, one for each step: "ProfilerStep#5"
STEP_NAME = "ProfilerStep#"
#: codes of `GpuEvents.category`
KERNEL, MEMCPY, MEMSET, COMMUNICATION = 0, 1, 2, 3
#: codes of `ApiCalls.category`: starts a kernel or a graph, waits for the GPU, copies or sets memory, anything else
LAUNCH, SYNC, COPY, OTHER = 0, 1, 2, 3
#: codes of `GpuEvents.direction`, and -1 where the event is no copy, or the trace does not say
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 0, 1, 2


def _none() -> Floats:
    return np.empty(0)


def _no() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Spans:
    """Stretches of time with a name, ordered by start: what everything on a time line has.

    Attributes
    ----------
    start_s, duration_s : [s].
    name : index into `Timeline.names`.
    """

    start_s: Floats = field(default_factory=_none)
    duration_s: Floats = field(default_factory=_none)
    name: Ints = field(default_factory=_no)

    def __len__(self) -> int:
        return int(self.start_s.size)

    @property
    def end_s(self) -> Floats:
        """When each of them ended [s]."""
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class GpuEvents(Spans):
    """What ran on GPUs, ordered by start.

    Attributes
    ----------
    category : KERNEL, MEMCPY, MEMSET or COMMUNICATION.
    stream, device : numbers as the profiler gave them; -1 where it does not say.
    launch : index into `Timeline.api` of the call that started it, or -1; the kernels of one graph share theirs.
    op : index into `Timeline.ops` of the innermost framework operator that launched it, or -1.
    bytes : bytes copied or set; NaN for kernels and where the trace does not say.
    direction : of a copy, or -1.
    pinned : 1 where the host's side of a copy is pinned, 0 pageable, -1 not known.
    entry : index into `Profile.entries` of the entry that counts it, or -1; empty where the reader does not say.
    """

    category: Ints = field(default_factory=_no)
    stream: Ints = field(default_factory=_no)
    device: Ints = field(default_factory=_no)
    launch: Ints = field(default_factory=_no)
    op: Ints = field(default_factory=_no)
    bytes: Floats = field(default_factory=_none)
    direction: Ints = field(default_factory=_no)
    pinned: Ints = field(default_factory=_no)
    entry: Ints = field(default_factory=_no)


@dataclass(frozen=True)
class ApiCalls(Spans):
    """Calls of the CUDA or HIP runtime and driver, ordered by start.

    Attributes
    ----------
    thread : number of the thread.
    category : LAUNCH, SYNC, COPY or OTHER. A copy that waits for the GPU (cudaMemcpy without Async) is a COPY.
    op : index into `Timeline.ops` of the innermost framework operator around the call, or -1.
    """

    thread: Ints = field(default_factory=_no)
    category: Ints = field(default_factory=_no)
    op: Ints = field(default_factory=_no)


@dataclass(frozen=True)
class HostRanges(Spans):
    """Operators of the framework, or annotated ranges, on the CPU, ordered by start.

    Attributes
    ----------
    thread : number of the thread.
    parent : index of the range around it on the same thread, or -1.
    """

    thread: Ints = field(default_factory=_no)
    parent: Ints = field(default_factory=_no)


@dataclass(frozen=True)
class Timeline:
    """When everything of a run happened.

    Attributes
    ----------
    names : the texts that the name columns point into.
    gpu, api, ops : events of the GPUs, calls of the runtime, operators of the framework on the CPU.
    annotations : named ranges of the user ("ProfilerStep#6", NVTX ranges).
    stacks : index into ``ops`` -> the Python calls around it, innermost last, where the trace has them; of operators
        that wait for the GPU or copy.
    api_stacks : the same for the calls of the runtime that wait or copy: index into ``api`` -> the Python calls.
    window_s : start and end of what is looked at [s]: the profiler's steps where there are any, else from the first
        to the last event.
    """

    names: tuple[str, ...] = ()
    gpu: GpuEvents = field(default_factory=GpuEvents)
    api: ApiCalls = field(default_factory=ApiCalls)
    ops: HostRanges = field(default_factory=HostRanges)
    annotations: HostRanges = field(default_factory=HostRanges)
    stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    window_s: tuple[float, float] = (0.0, 0.0)
    api_stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def in_window(self) -> NDArray[np.bool_]:
        """Tell which GPU events are counted: those that start in the window."""
        start, end = self.window_s
        return np.asarray((self.gpu.start_s >= start) & (self.gpu.start_s <= end))
