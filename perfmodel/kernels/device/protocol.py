"""What measurement needs from a device: its clock, its caches, its memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: length of a hold where the host's time is unknown: enough to launch a dozen kernels at 5 to 10 us each [s]
HOLD_S = 1e-4


class Stopwatch(Protocol):
    """Measures one interval with the device's own clock."""

    def start(self) -> None:
        """Mark the start of the interval."""
        ...

    def stop(self) -> None:
        """Mark the end of the interval."""
        ...

    def has_begun(self) -> bool:
        """Return whether the device has already passed the start. Does not wait; call it before `stop`.

        A GPU that has passed the start was not held until the host had enqueued the rest, so the interval contains
        time of the host. Always False on a CPU, where the host's time is the kernel's.
        """
        ...

    def elapsed_s(self) -> float:
        """Wait until the device has passed the end and return the length of the interval [s]."""
        ...


class Device(Protocol):
    """What measurement needs from a device.

    Attributes
    ----------
    kind : "cpu" or "cuda".
    name : name that the device reports.
    uuid : identifies a GPU to NVML; empty on a CPU.
    cache_bytes : size of the last-level cache [B].
    tick_s : resolution of its stopwatch [s].
    warm_up_s : how long it must work until its clocks are those under load [s].
    has_graphs : whether `capture` works.
    """

    kind: str
    name: str
    uuid: str
    cache_bytes: float
    tick_s: float
    warm_up_s: float
    has_graphs: bool

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        ...

    def stopwatch(self) -> Stopwatch:
        """Return a new stopwatch."""
        ...

    def flush_cache(self) -> None:
        """Evict everything from the device's caches; may return before that is done."""
        ...

    def hold(self, time_s: float = HOLD_S) -> None:
        """Keep the device busy for some time [s], so that the host enqueues ahead of it and its latency is hidden."""
        ...

    def capture(self, calls: Sequence[Callable[[], Any]], *, keep_outputs: bool) -> Callable[[], Any]:
        """Return a call that replays several calls as one graph, without the host between them.

        With ``keep_outputs`` each call writes its output to its own memory; otherwise they share memory where they
        can.
        """
        ...

    def free_memory_bytes(self) -> float:
        """Return the memory that can still be allocated [B]."""
        ...

    def release_memory(self) -> None:
        """Return cached memory to the system after an allocation failed."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an exception means that memory ran out."""
        ...

    def precision(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        """Return a context without gradients in which float32 products are rounded as ``dtype`` requires."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what a record states about device and software: versions, threads."""
        ...
