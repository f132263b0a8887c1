"""Where live readings come from: psutil for the host and a process tree; `perfmodel.measure.monitor.gpu` for GPUs.

A metric is named with its unit as Prometheus has it: ``gpu_power_watts``, ``host_memory_used_bytes``; ``_ratio`` is a
share from 0 to 1, ``_bytes_per_second`` a rate between two samples.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from perfmodel.errors import UnavailableError, UsageError, not_installed


class Sample(NamedTuple):
    """One value: the metric, what it belongs to ("gpu 0", "host", "process 123"), and the value."""

    metric: str
    of: str
    value: float


class Source(Protocol):
    """Something with readings."""

    def read(self, elapsed_s: float) -> Iterator[Sample]:
        """Yield the readings of now; ``elapsed_s`` is the time since the last call [s], 0 in the first."""
        ...


def _psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise not_installed("monitoring needs psutil", "monitor") from None
    return psutil


@dataclass
class Rates:
    """Turns counters into rates between two calls."""

    _last: dict[str, float] = field(default_factory=dict)

    def rate(self, name: str, count: float, elapsed_s: float) -> float | None:
        """Return the growth of a counter a second, None in the first call or where it was reset."""
        before = self._last.get(name)
        self._last[name] = count
        if before is None or elapsed_s <= 0 or count < before:
            return None
        return (count - before) / elapsed_s


class HostSource:
    """CPU, memory, swap, disks and network of this machine."""

    def __init__(self) -> None:
        self._psutil = _psutil()
        self._rates = Rates()
        self._psutil.cpu_percent(percpu=True)

    def read(self, elapsed_s: float) -> Iterator[Sample]:
        """Yield the readings of the host."""
        psutil = self._psutil
        cores = [percent / 100 for percent in psutil.cpu_percent(percpu=True)]
        if cores and elapsed_s > 0:
            yield Sample("host_cpu_ratio", "host", sum(cores) / len(cores))
            yield Sample("host_busiest_core_ratio", "host", max(cores))
        memory = psutil.virtual_memory()
        yield Sample("host_memory_used_bytes", "host", float(memory.total - memory.available))
        yield Sample("host_memory_total_bytes", "host", float(memory.total))
        swap = psutil.swap_memory()
        yield Sample("host_swap_used_bytes", "host", float(swap.used))
        counters = {"host_swap_bytes_per_second": float(swap.sin + swap.sout)}
        with contextlib.suppress(OSError, RuntimeError):
            disks = psutil.disk_io_counters()
            if disks is not None:
                counters |= {
                    "host_disk_read_bytes_per_second": float(disks.read_bytes),
                    "host_disk_write_bytes_per_second": float(disks.write_bytes),
                }
            network = psutil.net_io_counters()
            counters |= {
                "host_network_received_bytes_per_second": float(network.bytes_recv),
                "host_network_sent_bytes_per_second": float(network.bytes_sent),
            }
        for name, count in counters.items():
            rate = self._rates.rate(name, count, elapsed_s)
            if rate is not None:
                yield Sample(name, "host", rate)


class ProcessSource:
    """A process and all that it started.

    Raises
    ------
    UsageError
        On construction, when there is no such process.
    """

    def __init__(self, pid: int) -> None:
        psutil = self._psutil = _psutil()
        try:
            self._root = psutil.Process(pid)
        except psutil.NoSuchProcess:
            raise UsageError(f"there is no process {pid}.", place="--pid", remedy="Look it up with ps.") from None
        except psutil.AccessDenied:
            raise UnavailableError(
                f"process {pid} may not be read.", place="--pid", remedy="Run as its owner."
            ) from None
        self._rates = Rates()
        self._label = f"process {pid}"

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        with contextlib.suppress(self._psutil.Error):
            return bool(self._root.is_running() and self._root.status() != self._psutil.STATUS_ZOMBIE)
        return False

    def read(self, elapsed_s: float) -> Iterator[Sample]:
        """Yield the readings of the tree: resident memory, CPUs in use, threads, bytes read and written."""
        memory = cpu_s = threads = read = written = 0.0
        count = 0
        for process in self._tree():
            with contextlib.suppress(self._psutil.Error), process.oneshot():
                if process.status() == self._psutil.STATUS_ZOMBIE:
                    continue  # it has ended: its memory is gone, and only its parent has not heard of it
                times = process.cpu_times()
                memory += process.memory_info().rss
                cpu_s += times.user + times.system
                threads += process.num_threads()
                count += 1
                with contextlib.suppress(self._psutil.Error, AttributeError):
                    counters = process.io_counters()
                    read, written = read + counters.read_bytes, written + counters.write_bytes
        if not count:
            return
        yield Sample("process_memory_resident_bytes", self._label, memory)
        yield Sample("process_threads", self._label, threads)
        yield Sample("process_count", self._label, float(count))
        names = ("process_cpus", "process_read_bytes_per_second", "process_write_bytes_per_second")
        for name, value in zip(names, (cpu_s, read, written), strict=True):
            rate = self._rates.rate(name, value, elapsed_s)
            if rate is not None:
                yield Sample(name, self._label, rate)

    def _tree(self) -> list[Any]:
        with contextlib.suppress(self._psutil.Error):
            return [self._root, *self._root.children(recursive=True)]
        return []


class Readings:
    """All sources together, read at once."""

    def __init__(self, sources: list[Source], clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._clock = clock
        self._last_s: float | None = None

    def read(self) -> tuple[float, list[Sample]]:
        """Return the time [s since 1970] and the readings of all sources."""
        now = self._clock()
        elapsed = 0.0 if self._last_s is None else now - self._last_s
        self._last_s = now
        return now, [sample for source in self._sources for sample in source.read(elapsed)]
