"""A machine with the figures of a calibration as its sustained ceilings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfmodel.core.hardware import Hardware, Launch, MemoryLevel, Peak
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_binary, format_si
from perfmodel.measure.calibration.calibrate import Figures
from perfmodel.measure.calibration.transfer import Transfer

#: the bound of a dtype on a CPU whose arithmetic in it is unknown, as a multiple of the peak of fp32, and why
_CONVERTED = (1.0, "bounded by the peak of fp32, in which it is computed where the CPU has no such arithmetic")
_BOUND_BY_FP32 = MappingProxyType(
    {"int8": (4.0, "bounded by four times the peak of fp32: four products in a lane (AVX-512 VNNI, Arm SDOT)")}
)


@dataclass(frozen=True)
class CalibratedMachine(Reportable):
    """A machine with measured ceilings, beside what was known of it before.

    Attributes
    ----------
    machine : the machine with the figures.
    figures : what was measured.
    reference : the machine without them: its datasheet, or the arithmetic of a CPU; None where nothing is known.
    reference_name : "datasheet" or "arithmetic".
    """

    machine: Hardware
    figures: Figures
    reference: Hardware | None = None
    reference_name: str = "datasheet"


def with_figures(hardware: Hardware, figures: Figures, *, memory_is_measured: bool) -> Hardware:
    """Return a machine with the measured figures as its sustained ceilings and launch overhead.

    The datasheet stays beside them, and the note gives the share of it that was reached. The sustained figure of main
    memory is the copy; that of PCIe is the slower direction, since the model has one figure for both.

    Parameters
    ----------
    hardware : the machine with its datasheet figures.
    figures : what was measured.
    memory_is_measured : whether the memory has no datasheet bandwidth, as on a CPU: the fastest sample then takes its
        place.
    """
    launch = _launch(hardware, figures)
    links = {**hardware.sustained_links, **sustained_links(figures.transfers)}
    measured = dataclasses.replace(
        hardware,
        memory=tuple(_level(level, hardware, figures, measured=memory_is_measured) for level in hardware.memory),
        peaks=tuple(_with_rate(peak, hardware, figures) for peak in hardware.peaks),
        launch=launch,
        sustained_links=MappingProxyType(links),
        sustained_source=figures.source,
        sources=MappingProxyType({**hardware.sources, "sustained": figures.source, "launch": launch.source}),
    )
    note = ". ".join(part for part in (figures.method, *_remarks(measured, figures, memory_is_measured)) if part)
    return dataclasses.replace(measured, notes=MappingProxyType({**hardware.notes, "sustained": note}))


def sustained_links(copies: tuple[Transfer, ...]) -> dict[str, float]:
    """Return the bandwidth of PCIe [B/s].

    "pcie" (pinned memory) and "pcie_pageable" are the slower direction; "pcie_h2d", "pcie_pageable_d2h", ... are each
    direction by itself.
    """
    rates: dict[str, float] = {}
    for copy in copies:
        name = "pcie" if copy.pinned else "pcie_pageable"
        bandwidth = float(f"{copy.bandwidth_bytes_per_s:.4g}")
        rates[name] = min(bandwidth, rates.get(name, bandwidth))
        rates[f"{name}_{copy.direction}"] = bandwidth
    return rates


def _launch(hardware: Hardware, figures: Figures) -> Launch:
    """Return the launch cost: the measured overhead, and the shorter of the known and the measured floor."""
    before, graph = hardware.launch, figures.empty_kernel_s.get("graph")
    if graph is not None and (before.floor_s is None or graph < before.floor_s):
        return dataclasses.replace(before, floor_s=graph, overhead_s=figures.call_overhead_s, source=figures.source)
    # A floor keeps its source; the overhead has the source of the figures.
    kept = (before.source,) if before.floor_s else ()
    source = "; overhead: ".join((*kept, figures.source))
    return dataclasses.replace(before, overhead_s=figures.call_overhead_s, source=source)


def _level(level: MemoryLevel, hardware: Hardware, figures: Figures, *, measured: bool) -> MemoryLevel:
    if level is not hardware.main_memory:
        rate = figures.levels_bytes_per_s.get(level.name)
        return dataclasses.replace(level, sustained_bytes_per_s=rate) if rate else level
    level = dataclasses.replace(level, sustained_bytes_per_s=figures.copy_bytes_per_s)
    if not measured:
        return level
    return dataclasses.replace(
        level,
        bandwidth_bytes_per_s=figures.fastest_bytes_per_s,
        note="bandwidth: the fastest measured sample, since the operating system knows no peak",
    )


def _with_rate(peak: Peak, hardware: Hardware, figures: Figures) -> Peak:
    """Return a peak with its measured rate: of matrix products on the engine that they run on, else of multiply-adds.

    Where the arithmetic of a CPU in a dtype is unknown, the peak is that of float32, into which the dtype is converted,
    or four times that for int8: the rate of its matrix product alone would not be a bound.
    """
    native = hardware.native_peak(peak.dtype) is peak
    rate = (figures.flop_per_s if native else figures.vector_flop_per_s).get(peak.dtype)
    if rate is None:
        return peak
    if hardware.kind == "cpu" and peak.flop_per_clock_per_sm is None and peak.dtype not in ("fp32", "fp64"):
        full, (factor, note) = hardware.find_peak("fp32", peak.engine), _BOUND_BY_FP32.get(peak.dtype, _CONVERTED)
        if full and factor * full.flop_per_s > peak.flop_per_s:
            return dataclasses.replace(
                peak, flop_per_s=factor * full.flop_per_s, sustained_flop_per_s=rate, source=full.source, note=note
            )
    return dataclasses.replace(peak, sustained_flop_per_s=rate)


def _remarks(machine: Hardware, figures: Figures, memory_is_measured: bool) -> Iterator[str]:
    """Yield what has no key in the specification: shares of the peaks, patterns, latencies, what was left out."""
    name = machine.main_memory.name
    yield f"{name}: {_listed(figures.bandwidth_bytes_per_s, 'B/s')}"
    shares = {share: value for share, value in _shares(machine) if share != name or not memory_is_measured}
    yield "Share of the peak: " + ", ".join(f"{key} {100 * value:.1f} %" for key, value in shares.items())
    if figures.empty_kernel_s:
        yield f"Empty kernel: {_listed(figures.empty_kernel_s, 's')}"
    for copy in figures.transfers:
        half = format_binary(copy.half_bandwidth_bytes)
        yield f"{copy.name}: latency {format_si(copy.latency_s, 's')}, half of the bandwidth at {half}"
    if figures.left_out:
        yield f"Left out: {'; '.join(figures.left_out)}"
    yield from figures.doubts


def _shares(machine: Hardware) -> Iterator[tuple[str, float]]:
    for level in machine.memory:
        if level.sustained_bytes_per_s and level.bandwidth_bytes_per_s:
            yield level.name, level.sustained_bytes_per_s / level.bandwidth_bytes_per_s
    for peak in machine.peaks:
        if peak.sustained_flop_per_s:
            yield f"{peak.dtype} {peak.engine}", peak.sustained_flop_per_s / peak.flop_per_s
    for link in machine.links:
        if link.name in machine.sustained_links:
            yield link.name, machine.sustained_links[link.name] / link.bandwidth_bytes_per_s


def _listed(values: Mapping[str, float], unit: str) -> str:
    return ", ".join(f"{key} {format_si(value, unit)}" for key, value in values.items())
