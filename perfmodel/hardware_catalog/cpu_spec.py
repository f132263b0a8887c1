"""A CPU as a machine of the catalog: peaks by arithmetic, the rest as measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UnavailableError
from perfmodel.hardware_catalog.as_spec import quantity
from perfmodel.hardware_catalog.detect import CpuDescription
from perfmodel.hardware_catalog.read import to_hardware
from perfmodel.hardware_catalog.schema import ChipSpec, HardwareSpec, LaunchSpec, MemorySpec, RateSpec, SustainedSpec

_NO_MEASUREMENT: Mapping[str, float] = MappingProxyType({})
_LANE_BITS = {"fp32": 32, "fp64": 64}
#: most cores of servers and desktops since Haswell, Zen 2 and Neoverse N1 have two vector units; the operating system
#: does not report it
_FMA_UNITS = 2


def cpu_hardware(
    description: CpuDescription,
    *,
    bandwidth_bytes_per_s: float | None = None,
    sustained_flop_per_s: Mapping[str, float] = _NO_MEASUREMENT,
    launch_overhead_s: float | None = None,
    source: str = "",
) -> Hardware:
    """Return a CPU as a machine of the catalog.

    Peak = cores x SIMD lanes x 2 FMA units x 2 FLOP x highest known clock, per dtype (the textbook formula;
    Intel, "Optimizing Performance with Intel Advanced Vector Extensions", 2014). A higher measured rate replaces it,
    since the operating system does not report turbo clocks.

    Parameters
    ----------
    description : the CPU.
    bandwidth_bytes_per_s : highest measured bandwidth [B/s]. It is the memory's peak as well as its sustained figure,
        since the operating system reports no peak.
    sustained_flop_per_s : measured rates by dtype [FLOP/s].
    launch_overhead_s : measured cost of one small call [s].
    source : how, when and where it was measured.

    Raises
    ------
    UnavailableError
        When there is no peak: no clock is known and no rate was measured.
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
        note="an SM is a core; the operating system does not report turbo clocks"
        if "max_freq" not in description.clock_source
        else "an SM is a core",
    )


def _cpu_memory(description: CpuDescription, bandwidth: float | None, source: str) -> dict[str, MemorySpec]:
    dram = MemorySpec(capacity=quantity(description.memory_bytes, "B"), source="operating system (/proc/meminfo)")
    if bandwidth:
        dram.bandwidth = quantity(bandwidth, "B/s")
        dram.source = "; ".join(part for part in (dram.source, source) if part)
        dram.note = "bandwidth as measured: the operating system does not report the peak"
    sizes = {"l3": description.l3_bytes, "l2": description.l2_bytes, "l1": description.l1_bytes}
    caches = {
        name: MemorySpec(capacity=quantity(size, "B"), source="operating system (/sys/devices/system/cpu)")
        for name, size in sizes.items()
        if size
    }
    return {"dram": dram, **caches}


def _cpu_peaks(description: CpuDescription, measured: Mapping[str, float], source: str) -> dict[str, RateSpec | str]:
    """Return the rates by dtype: the arithmetic one or the measured one, whichever is larger."""
    flop_per_fma = 2 if description.fma else 1
    rates: dict[str, RateSpec | str] = {}
    for dtype, bits in _LANE_BITS.items():
        per_clock = description.simd_bits // bits * _FMA_UNITS * flop_per_fma
        if description.max_clock_hz:
            rate = description.cores * per_clock * description.max_clock_hz
            rates[dtype] = RateSpec(quantity(rate, "FLOP/s") or rate, flop_per_clock_per_sm=float(per_clock))
    for dtype, rate in measured.items():
        spec = rates.get(dtype)
        arithmetic = _arithmetic_rate(description, spec) if isinstance(spec, RateSpec) else 0.0
        if rate > arithmetic:
            note = "as measured, above the arithmetic" if arithmetic else "as measured; no arithmetic peak is known"
            rates[dtype] = RateSpec(quantity(rate, "FLOP/s") or rate, source=source, note=note)
    if not rates:
        raise UnavailableError(
            f"no peak is known for {description.model}: the operating system reports no clock.",
            remedy="Measure it: perfmodel calibrate --device cpu",
        )
    rates["source"] = "cores x SIMD lanes x 2 FMA units x FLOP per instruction x clock"
    rates["note"] = (
        f"assumes {_FMA_UNITS} vector units per core, each {description.simd_bits} bit wide, at the highest known "
        "clock; a core with one such unit reaches half"
    )
    return rates


def _arithmetic_rate(description: CpuDescription, rate: RateSpec) -> float:
    """Return cores x FLOP per clock x clock [FLOP/s]."""
    return math.prod((description.cores, rate.flop_per_clock_per_sm or 0.0, description.max_clock_hz or 0.0))
