"""The device that kernels run on: its clock, its caches, its memory. What measurement sees of torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from perfmodel.errors import UnavailableError, UsageError

KINDS = ("cpu", "cuda")
#: more threads than this a CPU only slow down, and very many bring the process down
_THREADS_PER_CPU = 4
#: a hold where the host's time is not known: enough to launch a dozen kernels at the 5 to 10 us that one takes
HOLD_S = 1e-4


class Stopwatch(Protocol):
    """Measures one interval on the device's own clock."""

    def start(self) -> None:
        """Mark the beginning of the interval."""
        ...

    def stop(self) -> None:
        """Mark the end of the interval."""
        ...

    def has_begun(self) -> bool:
        """Whether the device has passed the beginning already; asked without waiting, before the end is marked.

        A GPU that has was not held until the host had enqueued the rest, so that the interval has some of the host's
        time in it. False on a CPU, whose calls are the host's time.
        """
        ...

    def elapsed_s(self) -> float:
        """Wait until the device has passed the end, and return the length of the interval [s]."""
        ...


class Device(Protocol):
    """What measurement needs of a device.

    Attributes
    ----------
    kind : "cpu" or "cuda".
    name : what the device calls itself.
    uuid : identifies a GPU to NVML; empty on a CPU.
    cache_bytes : size of the last-level cache [B].
    tick_s : resolution of its stopwatch [s].
    warm_up_s : how long it has to work before its clocks are those of work [s].
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
        """Wait until the device has done everything that was asked of it."""
        ...

    def stopwatch(self) -> Stopwatch:
        """Return a new stopwatch on the device's own clock."""
        ...

    def flush_cache(self) -> None:
        """Push everything out of the device's caches; may return before that is done."""
        ...

    def hold(self, time_s: float = HOLD_S) -> None:
        """Keep the device busy for some time [s], so that the latency of the host, which enqueues, is not measured."""
        ...

    def capture(self, calls: Sequence[Callable[[], Any]], *, keep_outputs: bool) -> Callable[[], Any]:
        """Return a call that replays several calls as one graph, without the host between them.

        With ``keep_outputs`` each call writes its output to memory of its own; else they share it where they can.
        """
        ...

    def free_memory_bytes(self) -> float:
        """Return the memory that can still be had [B]."""
        ...

    def release_memory(self) -> None:
        """Hand cached memory back, after an allocation failed."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an exception means that memory ran out."""
        ...

    def precision(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        """Run what is inside without gradients, with float32 products rounded as ``dtype`` says."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what a record should say about device and software: versions, threads."""
        ...


def open_device(kind: str | None = None, *, threads: int | None = None) -> Device:
    """Return the device of a kind; by default the GPU if torch sees one, else the CPU.

    Parameters
    ----------
    kind : "cpu", "cuda", or None for the default.
    threads : CPU threads for a kernel; None leaves torch's choice.

    Raises
    ------
    UnavailableError
        When torch is not installed, or there is no such device.
    UsageError
        When the kind is not known, or the number of threads is not positive.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"device {kind!r} is not known.", remedy=f"Allowed: {', '.join(KINDS)}.")
    most = _THREADS_PER_CPU * (os.cpu_count() or 1)
    if threads is not None and not 1 <= threads <= most:
        raise UsageError(
            f"{threads} threads cannot run a kernel here.", place="--threads", remedy=f"Give 1 to {most} threads."
        )
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            "running kernels needs torch, which is not installed.", remedy="pip install 'perfmodel[bench]'"
        )
    from perfmodel.kernels.torch import _cpu, _cuda

    if kind == "cuda" or (kind is None and _cuda.is_there()):
        return _cuda.CudaDevice(threads=threads)
    return _cpu.CpuDevice(threads=threads)
