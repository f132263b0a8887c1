"""Facts of a record about the place and time of its measurement."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from perfmodel.files import shipped_folder
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import find_kernels
from perfmodel.measure.telemetry.nvml import Telemetry
from perfmodel.operators import Operator
from perfmodel.records.schema import BUSY_SHARE

#: longest wait for git [s]
_GIT_S = 5.0


def now_utc() -> str:
    """Return the date and time in UTC, ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def load_average() -> float | None:
    """Return the average number of runnable processes in the last minute; None where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def disturbance() -> str:
    """Return a warning when other processes use so much of the CPUs that it spoils a measurement, or an empty string.

    It has to be called before this process works itself.
    """
    load, cpus = load_average(), os.cpu_count() or 1
    if load is None or load < BUSY_SHARE * cpus:
        return ""
    return f"this machine is busy: load average {load:.1f} on {cpus} CPUs; expect slow and noisy times"


def machine_facts(device: Device, telemetry: Telemetry) -> dict[str, Any]:
    """Return machine, device, driver, versions, threads, clocks, commit and date; the host's name is left out.

    ``device`` has NVML's facts of a GPU (see `perfmodel.measure.telemetry.nvml`), and under ``before`` its state before
    the first kernel. A GPU is identified by the first digits of its identifier's hash, not by the identifier itself.
    """
    return {
        "date": now_utc(),
        **checkout(),
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
            **({"uuid_sha256": hashed(device.uuid)} if device.uuid else {}),
            **({"triton": version} if (version := installed("triton")) else {}),
            **device.facts(),
            **telemetry.facts(),
            **({"before": state} if (state := telemetry.read()) else {}),
        },
    }


def library_versions(operators: Iterable[Operator], known: Container[str]) -> dict[str, str]:
    """Return the installed versions of the libraries that the kernels of some operators come from.

    Parameters
    ----------
    operators : their kernels are perfmodel's own and those of plugins, whose backend is the name of a package.
    known : libraries that are stated elsewhere, and left out.
    """
    backends = dict.fromkeys(kernel.backend for op in operators for kernel in find_kernels(op.op))
    return {name: version for name in backends if name not in known and (version := installed(name))}


def hashed(identifier: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of a text.

    >>> hashed("GPU-0")
    '742563b159cc'
    """
    return hashlib.sha256(identifier.encode()).hexdigest()[:12]


def installed(package: str) -> str:
    """Return the version of a package, or an empty string; the package is not imported."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def checkout() -> dict[str, Any]:
    """Return ``commit`` and ``dirty`` (whether files differ from it) of a checkout; nothing where there is none."""
    root = shipped_folder().parent
    if not (root / ".git").exists():
        return {}
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed)}


def _git(root: Path, *arguments: str) -> str:
    """Return the output of git in a checkout; empty where there is no git, or it fails."""
    try:
        process = subprocess.run(  # noqa: S603 -- a fixed command without input of the user's
            ["git", "-C", str(root), *arguments],  # noqa: S607 -- the git that the user's shell would find
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
