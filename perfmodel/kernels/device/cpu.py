"""The CPU as a device: monotonic clock, cache flush by reading, memory that stays mapped."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from perfmodel.errors import UnavailableError
from perfmodel.kernels.device.protocol import HOLD_S
from perfmodel.kernels.precision import rounding

#: mallopt parameters of glibc, from its malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
#: small calls after a flush; the time of the next call is stable after two or three
_HOST_CALLS = 3
#: assumed where the system reports no cache size; larger than most caches
_UNKNOWN_CACHE_BYTES = 64 * 2.0**20


class CpuStopwatch:
    """Wall time of the monotonic clock: torch's CPU kernels have finished when their call returns."""

    def __init__(self) -> None:
        self._start_ns = self._stop_ns = 0

    def start(self) -> None:
        """Mark the beginning of the interval."""
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """Mark the end of the interval."""
        self._stop_ns = time.perf_counter_ns()

    def has_begun(self) -> bool:
        """Return False: the host runs the kernel, so its time belongs to the interval."""
        return False

    def elapsed_s(self) -> float:
        """Return the length of the interval [s]."""
        return (self._stop_ns - self._start_ns) * 1e-9


class CpuDevice:
    """The CPU of this machine; see `perfmodel.kernels.device.Device`."""

    kind = "cpu"
    uuid = ""
    tick_s = time.get_clock_info("perf_counter").resolution
    warm_up_s = 0.0
    has_graphs = False

    def __init__(self, *, threads: int | None = None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.name = platform.processor() or platform.machine() or "CPU"
        self.cache_bytes = last_level_cache_bytes()
        self.keeps_pages = keep_freed_pages()

    def synchronize(self) -> None:
        """Do nothing: a CPU kernel has finished when its call returns."""

    def stopwatch(self) -> CpuStopwatch:
        """Return a stopwatch on the monotonic clock."""
        return CpuStopwatch()

    @functools.cached_property
    def _eviction_buffer(self) -> torch.Tensor:
        # Written once: pages that were never written all map to one zero page, and reading that evicts nothing.
        # Twice the cache: a last-level cache may be a victim cache beside the cores' own caches.
        return torch.ones(int(2 * self.cache_bytes) // 4)

    @functools.cached_property
    def _small(self) -> torch.Tensor:
        return torch.ones(2, 2)

    def flush_cache(self) -> None:
        """Read a buffer of twice the last-level cache, then make a few small calls.

        The buffer is not written: evicting dirty lines would charge their write-back to the kernel that follows. The
        calls load the interpreter and torch's dispatcher again, which a running program keeps in its caches.
        """
        self._eviction_buffer.sum()
        for _ in range(_HOST_CALLS):
            torch.mm(self._small, self._small).add_(self._small)

    def hold(self, time_s: float = HOLD_S) -> None:
        """Do nothing: the host itself runs the kernel."""

    def capture(self, calls: Sequence[Callable[[], Any]], *, keep_outputs: bool) -> Callable[[], Any]:
        """Raise an error: a CPU has no CUDA graphs."""
        raise UnavailableError("a CPU has no CUDA graphs.", remedy="Use --timing auto.")

    def free_memory_bytes(self) -> float:
        """Return the memory that the system can still allocate [B]; infinite where it does not report it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
        return float("inf")

    def release_memory(self) -> None:
        """Hand freed memory back to the system, where the C library can; `keep_freed_pages` keeps it until then."""
        if self.keeps_pages:
            ctypes.CDLL(None).malloc_trim(0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an exception means that memory ran out: torch's CPU allocator raises a RuntimeError."""
        return isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError) and "allocate memory" in str(error).lower()
        )

    def precision(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        """Return a context without gradients and with full float32."""
        return rounding(dtype)

    def facts(self) -> dict[str, Any]:
        """Return torch's version, the number of threads, and whether freed memory stays mapped."""
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "freed_memory_stays_mapped": self.keeps_pages,
        }


def last_level_cache_bytes() -> float:
    """Return the largest cache that the system reports for its first core [B]; 64 MiB where it reports none."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = entry.read_text().strip()
            sizes.append(float(text.rstrip("KMG")) * {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30}.get(text[-1:], 1.0))
    return max(sizes, default=_UNKNOWN_CACHE_BYTES)


@functools.cache
def keep_freed_pages() -> bool:
    """Keep freed memory in the process, as torch's allocator does on a GPU; return whether that is possible.

    glibc returns large blocks to the system at once. Each call that allocates its output would then have page faults,
    which halves the apparent bandwidth of an elementwise operator. Other C libraries have no ``mallopt``.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
