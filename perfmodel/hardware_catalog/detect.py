"""The devices of this machine: GPUs as their vendors' libraries report them, the CPU as the operating system does."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfmodel.core.report import Reportable
from perfmodel.hardware_catalog.amd import read_amd_smi, read_amdsmi, read_rocm_smi
from perfmodel.hardware_catalog.cuda_driver import open_driver, read_attributes, read_driver
from perfmodel.hardware_catalog.gpu_reading import GpuReading
from perfmodel.hardware_catalog.match import DeviceMatch, match_device
from perfmodel.hardware_catalog.nvml import read_gpus
from perfmodel.hardware_catalog.torch_gpus import read_torch

#: who may know GPUs that NVML and the CUDA driver do not, the most trusted first
_OTHERS: tuple[Callable[[], tuple[GpuReading, ...]], ...] = (read_torch, read_amdsmi, read_amd_smi, read_rocm_smi)
_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


@dataclass(frozen=True)
class CpuDescription:
    """The CPUs of a machine as the operating system describes them; None where it gives no value.

    Attributes
    ----------
    model : model name.
    cores, threads : physical cores and hardware threads that this process may use.
    simd_bits : width of the widest vector registers [bit].
    fma : whether a multiply and an add are one instruction.
    max_clock_hz, clock_source : highest known clock [Hz], and where it was read.
    l1_bytes, l2_bytes, l3_bytes : total size of the data caches of each level [B].
    memory_bytes : main memory [B].
    cache_counts : level -> number of separate caches.
    """

    model: str
    vendor: str
    architecture: str
    cores: int
    threads: int
    simd_bits: int
    fma: bool
    max_clock_hz: float | None
    clock_source: str
    l1_bytes: float | None
    l2_bytes: float | None
    l3_bytes: float | None
    memory_bytes: float | None
    cache_counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The catalog name: ``cpu-`` and the model name without trademark signs and clock."""
        plain = re.sub(r"\((?:r|tm|c)\)|@.*$|\bcpu\b", " ", self.model.lower())
        return "cpu-" + (re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown")


@dataclass(frozen=True)
class Detection(Reportable):
    """The devices of this machine, each GPU with the machine of the catalog that matches it, or None."""

    gpus: tuple[tuple[GpuReading, DeviceMatch | None], ...]
    cpu: CpuDescription


def detect() -> Detection:
    """Return the GPUs and the CPU of this machine."""
    return Detection(detect_gpus(), detect_cpu())


def detect_gpus(
    nvml: Any = None, driver: Any = None, others: Sequence[Callable[[], tuple[GpuReading, ...]]] | None = None
) -> tuple[tuple[GpuReading, DeviceMatch | None], ...]:
    """Return the GPUs of this machine, each with the machine of the catalog that matches it, or None.

    They are those that NVML reports; where it reports none, those of the CUDA driver, of torch, of the module
    `amdsmi`, of ``amd-smi`` or of ``rocm-smi``, the first that reports any. ``nvml`` replaces the module `pynvml` in
    tests, ``driver`` the library of the CUDA driver, ``others`` the readings of those that are asked after it.

    Raises
    ------
    InputFileError
        When a folder in ``PERFMODEL_HARDWARE`` does not exist.
    """
    driver = driver or open_driver()
    gpus = tuple(replace(gpu, **read_attributes(gpu.bus_id, driver)) for gpu in read_gpus(nvml)) or read_driver(driver)
    gpus = gpus or next((found for read in (_OTHERS if others is None else others) if (found := read())), ())
    return tuple((gpu, match_device(gpu.name, gpu.memory_bytes, gpu.sm_count)) for gpu in gpus)


def detect_cpu(root: str | os.PathLike[str] = "/") -> CpuDescription:
    """Return the operating system's description of the CPU; on Linux from /proc and /sys.

    ``root`` is the folder that contains ``proc`` and ``sys``. On other systems only the values of `platform` and `os`
    are known.
    """
    proc, cpus = Path(root) / "proc", Path(root) / "sys/devices/system/cpu"
    info = _cpuinfo(_read(proc / "cpuinfo"))
    first = info[0] if info else {}
    threads = _usable_threads(len(info), own=Path(root) == Path("/"))
    flags = frozenset((first.get("flags") or first.get("Features", "")).split())
    model = first.get("model name") or platform.processor() or platform.machine() or "unknown"
    clock, clock_source = _clock(first, cpus, model)
    caches, counts = _caches(cpus)
    return CpuDescription(
        model=" ".join(model.split()),
        vendor=_VENDORS.get(first.get("vendor_id", ""), first.get("vendor_id", "")) or "unknown",
        architecture=platform.machine() or "unknown",
        cores=min(_cores(info) or threads, threads),
        threads=threads,
        simd_bits=_simd_bits(flags),
        fma=bool({"fma", "asimd", "fma4"} & flags) or platform.machine() in ("arm64", "aarch64"),
        max_clock_hz=clock,
        clock_source=clock_source,
        l1_bytes=caches.get(1),
        l2_bytes=caches.get(2),
        l3_bytes=caches.get(3),
        memory_bytes=_memory_bytes(_read(proc / "meminfo")),
        cache_counts=counts,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpuinfo(text: str) -> list[dict[str, str]]:
    """Return the key-value pairs of each hardware thread in the text of /proc/cpuinfo."""
    threads = []
    for block in re.split(r"\n\s*\n", text):
        pairs = dict(re.findall(r"^(.*?)[ \t]*:[ \t]*(.*?)[ \t]*$", block, flags=re.MULTILINE))
        if "processor" in pairs:
            threads.append(pairs)
    return threads


def _usable_threads(listed: int, *, own: bool) -> int:
    """Return the number of hardware threads that this process may use; for another root all listed ones."""
    if not own and listed:
        return listed
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cores(info: list[dict[str, str]]) -> int:
    """Return the number of physical cores, 0 where it is unknown. Hardware threads of a core share its id."""
    return len({(thread.get("physical id"), thread["core id"]) for thread in info if "core id" in thread})


def _simd_bits(flags: frozenset[str]) -> int:
    """Return the vector width [bit]. The flags do not contain the width of SVE; NEON's is returned instead."""
    if "avx512f" in flags:
        return 512
    return 256 if "avx" in flags else 128


def _clock(first: Mapping[str, str], cpus: Path, model: str) -> tuple[float | None, str]:
    """Return the highest known clock [Hz], and where it was read."""
    kilohertz = _read(cpus / "cpu0/cpufreq/cpuinfo_max_freq").strip()
    if kilohertz.isdigit() and int(kilohertz):
        return int(kilohertz) * 1e3, "cpufreq/cpuinfo_max_freq"
    named = re.search(r"@\s*([\d.]+)\s*GHz", model)
    current = re.fullmatch(r"[\d.]+", first.get("cpu MHz", ""))
    candidates = [
        (float(named.group(1)) * 1e9, "nominal clock in the model name") if named else None,
        (float(current.group()) * 1e6, "current clock in /proc/cpuinfo") if current else None,
    ]
    return max((clock for clock in candidates if clock and clock[0] > 0), default=(None, ""))


def _caches(cpus: Path) -> tuple[dict[int, float], dict[int, int]]:
    """Return level -> total bytes of its data caches, and level -> number of caches; a shared one counts once."""
    sizes: dict[tuple[int, str], float] = {}
    for index in sorted(cpus.glob("cpu[0-9]*/cache/index[0-9]*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size").strip())
        level = _read(index / "level").strip()
        if size and level.isdigit() and _read(index / "type").strip() != "Instruction":
            scale = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}[size.group(2)]
            shared = _read(index / "shared_cpu_list").strip() or str(index)
            sizes[int(level), shared] = float(size.group(1)) * scale
    totals: dict[int, float] = {}
    for (number, _), size_bytes in sizes.items():
        totals[number] = totals.get(number, 0.0) + size_bytes
    return totals, dict(Counter(number for number, _ in sizes))


def _memory_bytes(meminfo: str) -> float | None:
    total = re.search(r"^MemTotal:\s*(\d+)\s*kB", meminfo, flags=re.MULTILINE)
    if total:
        return float(total.group(1)) * 1024
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None
