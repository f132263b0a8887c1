"""The device that kernels run on. Importing this package imports no torch; opening a device does."""

from __future__ import annotations

import importlib.util
import os

from perfmodel.errors import UsageError, not_installed
from perfmodel.kernels.device.protocol import HOLD_S, Device, Stopwatch

__all__ = ["HOLD_S", "KINDS", "Device", "Stopwatch", "open_device"]

KINDS = ("cpu", "cuda")
#: more threads than this per CPU only slow it down, and very many crash the process
_THREADS_PER_CPU = 4


def open_device(kind: str | None = None, *, threads: int | None = None) -> Device:
    """Return a device: by default the GPU if torch sees one, otherwise the CPU.

    Parameters
    ----------
    kind : "cpu", "cuda", or None for the default.
    threads : CPU threads per kernel; None leaves the choice to torch.

    Raises
    ------
    UnavailableError
        When torch is not installed, or there is no such device.
    UsageError
        When the kind is unknown, or the number of threads is out of range.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown device {kind!r}.", remedy=f"Allowed: {', '.join(KINDS)}.")
    most = _THREADS_PER_CPU * (os.cpu_count() or 1)
    if threads is not None and not 1 <= threads <= most:
        raise UsageError(
            f"cannot run kernels with {threads} threads.", place="--threads", remedy=f"Give 1 to {most} threads."
        )
    if importlib.util.find_spec("torch") is None:
        raise not_installed("running kernels needs torch", "bench")
    from perfmodel.kernels.device import cpu, cuda

    if kind == "cuda" or (kind is None and cuda.is_available()):
        return cuda.CudaDevice(threads=threads)
    return cpu.CpuDevice(threads=threads)
