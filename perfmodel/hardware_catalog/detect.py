"""What this machine is: its GPUs as NVML reports them, its CPU as the operating system does."""

from __future__ import annotations

import math
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UnavailableError
from perfmodel.hardware_catalog.find import DeviceMatch, match_device
from perfmodel.hardware_catalog.nvml import GpuReading, read_gpus
from perfmodel.hardware_catalog.read import to_hardware
from perfmodel.hardware_catalog.schema import ChipSpec, HardwareSpec, LaunchSpec, MemorySpec, RateSpec, SustainedSpec
from perfmodel.hardware_catalog.write import quantity

_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
_NO_MEASUREMENT: Mapping[str, float] = MappingProxyType({})
_LANE_BITS = {"fp32": 32, "fp64": 64}
#: most cores of servers and desktops since Haswell, Zen 2 and Neoverse N1 issue two; the OS does not say
_FMA_UNITS = 2


@dataclass(frozen=True)
class CpuDescription:
    """One CPU machine as the operating system describes it; None where it does not say.

    Attributes
    ----------
    model : model name.
    cores, threads : physical cores and hardware threads that this process may use.
    simd_bits : width of the widest vector registers [bit].
    fma : whether a multiply and an add are one instruction.
    max_clock_hz : highest clock that is known [Hz], and ``clock_source``: where it stands.
    l1_bytes, l2_bytes, l3_bytes : data caches, all of one level together [B].
    memory_bytes : main memory [B].
    cache_counts : level -> how many caches of it there are; cores or groups of cores share none of theirs.
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
        """The catalog name: ``cpu-`` and the model without marks and clock."""
        plain = re.sub(r"\((?:r|tm|c)\)|@.*$|\bcpu\b", " ", self.model.lower())
        return "cpu-" + (re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown")


def detect_gpus(nvml: Any = None) -> tuple[tuple[GpuReading, DeviceMatch | None], ...]:
    """Return the GPUs that NVML sees, each with the machine of the catalog that fits it, or None.

    No driver, no NVML and no GPU are not errors: the result is empty. ``nvml`` stands in for the module
    `pynvml` in tests.

    Raises
    ------
    InputFileError
        When a file of the catalog, or of a folder of ``PERFMODEL_HARDWARE``, is wrong.
    """
    return tuple((gpu, match_device(gpu.name, gpu.memory_bytes)) for gpu in read_gpus(nvml))


def detect_cpu(root: str | os.PathLike[str] = "/") -> CpuDescription:
    """Return what the operating system says about the CPU; on Linux from /proc and /sys.

    ``root`` is the folder in which ``proc`` and ``sys`` are looked up. Elsewhere than on Linux only what
    `platform` and `os` give is known.
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
    """Return the key-value pairs of each hardware thread in /proc/cpuinfo."""
    threads = []
    for block in re.split(r"\n\s*\n", text):
        pairs = dict(re.findall(r"^(.*?)[ \t]*:[ \t]*(.*?)[ \t]*$", block, flags=re.MULTILINE))
        if "processor" in pairs:
            threads.append(pairs)
    return threads


def _usable_threads(listed: int, *, own: bool) -> int:
    """Return how many hardware threads this process may use (all that are listed, for another root)."""
    if not own and listed:
        return listed
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cores(info: list[dict[str, str]]) -> int:
    """Return the number of physical cores, 0 where it is not said: hardware threads of a core share its id."""
    return len({(thread.get("physical id"), thread["core id"]) for thread in info if "core id" in thread})


def _simd_bits(flags: frozenset[str]) -> int:
    """Return the vector width [bit]; the width of SVE is not among the flags, so NEON's stands for it."""
    if "avx512f" in flags:
        return 512
    return 256 if "avx" in flags else 128


def _clock(first: Mapping[str, str], cpus: Path, model: str) -> tuple[float | None, str]:
    """Return the highest clock that is known [Hz], and where it stands."""
    kilohertz = _read(cpus / "cpu0/cpufreq/cpuinfo_max_freq").strip()
    if kilohertz.isdigit() and int(kilohertz):
        return int(kilohertz) * 1e3, "cpufreq/cpuinfo_max_freq"
    named = re.search(r"@\s*([\d.]+)\s*GHz", model)
    current = re.fullmatch(r"[\d.]+", first.get("cpu MHz", ""))
    known = [
        (float(named.group(1)) * 1e9, "nominal clock in the model name") if named else None,
        (float(current.group()) * 1e6, "current clock in /proc/cpuinfo") if current else None,
    ]
    return max((clock for clock in known if clock and clock[0] > 0), default=(None, ""))


def _caches(cpus: Path) -> tuple[dict[int, float], dict[int, int]]:
    """Return level -> bytes of all data caches of that level, and level -> their number; a shared one counts once."""
    seen: dict[tuple[int, str], float] = {}
    for index in sorted(cpus.glob("cpu[0-9]*/cache/index[0-9]*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size").strip())
        level = _read(index / "level").strip()
        if size and level.isdigit() and _read(index / "type").strip() != "Instruction":
            scale = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}[size.group(2)]
            shared = _read(index / "shared_cpu_list").strip() or str(index)
            seen[int(level), shared] = float(size.group(1)) * scale
    totals: dict[int, float] = {}
    for (number, _), size_bytes in seen.items():
        totals[number] = totals.get(number, 0.0) + size_bytes
    return totals, dict(Counter(number for number, _ in seen))


def _memory_bytes(meminfo: str) -> float | None:
    total = re.search(r"^MemTotal:\s*(\d+)\s*kB", meminfo, flags=re.MULTILINE)
    if total:
        return float(total.group(1)) * 1024
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


def cpu_hardware(
    description: CpuDescription,
    *,
    bandwidth_bytes_per_s: float | None = None,
    sustained_flop_per_s: Mapping[str, float] = _NO_MEASUREMENT,
    launch_overhead_s: float | None = None,
    source: str = "",
) -> Hardware:
    """Return a CPU as a machine of the catalog: its peaks by arithmetic, the rest as measured.

    Peak = cores x SIMD lanes x 2 FMA units x 2 FLOP x highest known clock, per dtype (the textbook formula;
    Intel, "Optimizing Performance with Intel Advanced Vector Extensions", 2014). A rate measured above it
    takes its place, since a peak that was beaten is none: the OS knows no turbo clock.

    Parameters
    ----------
    description : what the machine is.
    bandwidth_bytes_per_s : the fastest bandwidth that was measured [B/s]; stands as the peak of the memory and as
        sustained, since the OS knows no peak.
    sustained_flop_per_s : measured rates by dtype [FLOP/s].
    launch_overhead_s : measured cost of one small call [s].
    source : how, when and where it was measured.

    Raises
    ------
    UnavailableError
        When neither a clock is known nor a rate was measured, so that there is no peak.
    """
    spec = HardwareSpec(
        name=description.slug,
        title=description.model,
        vendor=description.vendor,
        architecture=description.architecture,
        kind="cpu",
        chip=_chip(description),
        memory=_cpu_memory(description, bandwidth_bytes_per_s, source),
        peak={"vector": _cpu_peaks(description, sustained_flop_per_s, source)},
        launch=LaunchSpec(overhead=quantity(launch_overhead_s, "s"), source=source if launch_overhead_s else ""),
    )
    if bandwidth_bytes_per_s or sustained_flop_per_s:
        spec.sustained = SustainedSpec(
            memory={"dram": quantity(bandwidth_bytes_per_s, "B/s") or 0.0} if bandwidth_bytes_per_s else {},
            vector={dtype: quantity(rate, "FLOP/s") or 0.0 for dtype, rate in sustained_flop_per_s.items()},
            source=source,
        )
    return to_hardware(spec, "")


def _chip(description: CpuDescription) -> ChipSpec:
    clock = f"; clock: {description.clock_source}" if description.clock_source else ""
    return ChipSpec(
        sm_count=description.cores,
        vector_clock=quantity(description.max_clock_hz, "Hz"),
        simd_bits=description.simd_bits,
        source=f"operating system (/proc/cpuinfo, /sys/devices/system/cpu){clock}",
        note="an SM is a core; turbo clocks are not known to the operating system"
        if "max_freq" not in description.clock_source
        else "an SM is a core",
    )


def _cpu_memory(description: CpuDescription, bandwidth: float | None, source: str) -> dict[str, MemorySpec]:
    dram = MemorySpec(capacity=quantity(description.memory_bytes, "B"), source="operating system (/proc/meminfo)")
    if bandwidth:
        dram.bandwidth = quantity(bandwidth, "B/s")
        dram.source = "; ".join(part for part in (dram.source, source) if part)
        dram.note = "bandwidth as measured: the operating system knows no peak"
    sizes = {"l3": description.l3_bytes, "l2": description.l2_bytes, "l1": description.l1_bytes}
    caches = {
        name: MemorySpec(capacity=quantity(size, "B"), source="operating system (/sys/devices/system/cpu)")
        for name, size in sizes.items()
        if size
    }
    return {"dram": dram, **caches}


def _cpu_peaks(description: CpuDescription, measured: Mapping[str, float], source: str) -> dict[str, RateSpec | str]:
    """Return the rates by dtype: the larger of the arithmetic and what was measured."""
    flop_per_fma = 2 if description.fma else 1
    rates: dict[str, RateSpec | str] = {}
    for dtype, bits in _LANE_BITS.items():
        per_clock = description.simd_bits // bits * _FMA_UNITS * flop_per_fma
        if description.max_clock_hz:
            rate = description.cores * per_clock * description.max_clock_hz
            rates[dtype] = RateSpec(quantity(rate, "FLOP/s") or rate, flop_per_clock_per_sm=float(per_clock))
    for dtype, rate in measured.items():
        known = rates.get(dtype)
        arithmetic = _arithmetic_rate(description, known) if isinstance(known, RateSpec) else 0.0
        if rate > arithmetic:
            why = "as measured, above the arithmetic" if arithmetic else "as measured; no arithmetic peak is known"
            rates[dtype] = RateSpec(quantity(rate, "FLOP/s") or rate, source=source, note=why)
    if not rates:
        raise UnavailableError(
            f"no peak is known for {description.model}: the operating system tells no clock.",
            remedy="Measure it: perfmodel calibrate --device cpu",
        )
    rates["source"] = "cores x SIMD lanes x 2 FMA units x FLOP per instruction x clock"
    rates["note"] = (
        f"assumes {_FMA_UNITS} vector units a core, each {description.simd_bits} bit wide, at the highest known clock; "
        "a core with one such unit reaches half"
    )
    return rates


def _arithmetic_rate(description: CpuDescription, rate: RateSpec) -> float:
    """Return cores x FLOP per clock x clock [FLOP/s]."""
    return math.prod((description.cores, rate.flop_per_clock_per_sm or 0.0, description.max_clock_hz or 0.0))
