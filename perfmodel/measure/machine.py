"""What a record says about where and when it was measured."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.measure.telemetry import NoTelemetry, NvmlTelemetry


def now_utc() -> str:
    """Return the date and time in UTC, ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def load_average() -> float | None:
    """Return how many processes wanted to run in the last minute, on average; None where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def disturbance() -> str:
    """Return a warning when other processes take a share of the CPUs that spoils a measurement, or an empty string.

    Asked before this process has done work of its own; a quarter of the CPUs is too much.
    """
    load, cpus = load_average(), os.cpu_count() or 1
    if load is None or load < 0.25 * cpus:
        return ""
    return f"this machine is busy: load average {load:.1f} on {cpus} CPUs; expect slow and noisy times"


def machine_facts(device: Device, telemetry: NoTelemetry | NvmlTelemetry) -> dict[str, Any]:
    """Return machine, device, driver, versions, threads, clocks and date; the host's name is left out."""
    return {
        "date": now_utc(),
        "machine": {
            "system": platform.platform(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "load_average": load_average(),
        },
        "device": {
            "kind": device.kind,
            "name": device.name,
            "cache_bytes": device.cache_bytes,
            **device.facts(),
            **telemetry.facts(),
        },
    }
