"""A `Hardware` in the shape of a specification file, with its quantities as the shortest texts that say the same."""

from __future__ import annotations

import math
from typing import Any

from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.units import parse_quantity
from perfmodel.hardware_catalog.schema import (
    PLAIN_KERNELS,
    ChipSpec,
    ClusterSpec,
    ExchangeSpec,
    HardwareSpec,
    KernelsSpec,
    LaunchSpec,
    LinkSpec,
    MemorySpec,
    RateSpec,
    SustainedSpec,
)
from perfmodel.prediction.latency.tables import latency_specs

#: prefixes tried for each unit; of two texts of one length, the one with the prefix further left is written
_PREFIXES = {
    "B": ("Ti", "Gi", "Mi", "Ki", "G", "M", "k", ""),
    "B/s": ("G", "M", ""),
    "FLOP/s": ("T", "G", ""),
    "Hz": ("M", "k", ""),
    "s": ("u", "n", ""),
    "W": ("",),
}


def quantity(value: float | None, unit: str) -> str | None:
    """Return the shortest text of a quantity that reads back to exactly ``value``.

    >>> quantity(1.555e12, "B/s"), quantity(2.0**30, "B")
    ('1555 GB/s', '1 GiB')
    """
    if value is None:
        return None
    texts = [f"{value!r} {unit}"]
    for prefix in reversed(_PREFIXES[unit]):
        number = value / parse_quantity(f"1 {prefix}{unit}", unit)
        text = f"{number:.10g} {prefix}{unit}"
        if (number >= 1 or not prefix) and "e" not in text and parse_quantity(text, unit) == value:
            texts.insert(0, text)
    return min(texts, key=len)


def to_spec(hardware: Hardware) -> HardwareSpec:
    """Return the specification of a machine, in the shape of the file."""
    chip: dict[str, Any] = {key: int(value) if value.is_integer() else value for key, value in hardware.chip.items()}
    if hardware.matrix_instruction:
        chip["matrix_instruction"] = hardware.matrix_instruction
    return HardwareSpec(
        name=hardware.name,
        title="" if hardware.title == hardware.name else hardware.title,
        vendor=hardware.vendor,
        architecture=hardware.architecture,
        kind="cpu" if hardware.kind == "cpu" else "gpu",
        compute_capability=hardware.compute_capability,
        generation=hardware.generation,
        aliases=list(hardware.aliases),
        device_names=list(hardware.device_names),
        boards=list(hardware.boards),
        chip=ChipSpec(
            sm_count=hardware.sm_count,
            vector_clock=quantity(hardware.clocks_hz.get("vector"), "Hz"),
            tensor_clock=quantity(hardware.clocks_hz.get("tensor"), "Hz"),
            max_clock=quantity(hardware.max_clock_hz, "Hz"),
            tdp=quantity(hardware.tdp_w, "W"),
            tdp_alone=quantity(hardware.tdp_alone_w, "W"),
            source=hardware.sources.get("chip", ""),
            note=hardware.notes.get("chip", ""),
            process=hardware.process,
            **chip,
        ),
        memory=_memory(hardware),
        peak=_peaks(hardware),
        link=_links(hardware),
        launch=LaunchSpec(
            floor=quantity(hardware.launch.floor_s, "s"),
            overhead=quantity(hardware.launch.overhead_s, "s"),
            queued=quantity(hardware.launch.queued_s, "s"),
            source=hardware.launch.source,
            note=hardware.launch.note,
        ),
        kernels=_kernels(hardware),
        cluster=_cluster(hardware),
        sustained=_sustained(hardware),
        latency=latency_specs(hardware.latency),
    )


def _memory(hardware: Hardware) -> dict[str, MemorySpec]:
    return {
        level.name: MemorySpec(
            technology=level.technology,
            partitions=level.partitions,
            copies=level.copies,
            delivered=level.delivered,
            shared_with_host=level.shared_with_host,
            capacity=quantity(level.capacity_bytes, "B"),
            bandwidth=quantity(level.bandwidth_bytes_per_s, "B/s"),
            source=level.source,
            note=level.note,
        )
        for level in hardware.memory
    }


def _links(hardware: Hardware) -> dict[str, LinkSpec]:
    return {
        link.name: LinkSpec(
            quantity(link.bandwidth_bytes_per_s, "B/s") or 0.0,
            reduces_in_switch=link.reduces_in_switch or (False if link.name == "nvlink" else None),
            domain=link.domain,
            per_peer=quantity(link.per_peer_bytes_per_s, "B/s"),
            latency=quantity(link.latency_s, "s"),
            collective={
                op: ExchangeSpec(
                    quantity(line.latency_s, "s") or 0.0,
                    quantity(line.bandwidth_bytes_per_s, "B/s") or 0.0,
                    line.deviation,
                    line.ranks,
                )
                for op, line in link.lines.items()
            },
            technology=link.technology,
            source=link.source,
            note=link.note,
        )
        for link in hardware.links
    }


def _peaks(hardware: Hardware) -> dict[str, Any]:
    """Return the peaks by engine; what the engine's table says already is not repeated in a rate."""
    engines: dict[str, Any] = {}
    for peak in hardware.peaks:
        shared = hardware.sources.get(f"peak.{peak.engine}", "")
        engines.setdefault(peak.engine, {})[peak.dtype] = RateSpec(
            rate=quantity(peak.flop_per_s, "FLOP/s") or 0.0,
            flop_per_clock_per_sm=peak.flop_per_clock_per_sm,
            clock=None if _common_clock(hardware, peak) else quantity(peak.clock_hz, "Hz"),
            sparse_2to4=quantity(peak.sparse_2to4_flop_per_s, "FLOP/s"),
            microscaled=quantity(peak.microscaled_flop_per_s, "FLOP/s"),
            packed=peak.packed,
            source="" if peak.source == shared else peak.source,
            note=peak.note,
        )
    for engine, rates in engines.items():
        rates["source"] = hardware.sources.get(f"peak.{engine}", "")
        rates["note"] = hardware.notes.get(f"peak.{engine}", "")
    return engines


def _common_clock(hardware: Hardware, peak: Peak) -> bool:
    return peak.clock_hz == hardware.clocks_hz.get(peak.engine)


def _kernels(hardware: Hardware) -> KernelsSpec:
    kernels = hardware.kernels
    return KernelsSpec(
        gemm_tiles=list(kernels.gemm_tiles),
        gemm_batched_tiles=list(kernels.gemm_batched_tiles),
        fp8_tiles={
            library: [[rows, columns, *([int(most)] if math.isfinite(most) else [])] for rows, columns, most in tiles]
            for library, tiles in kernels.fp8_tiles.items()
        },
        winograd_patches=list(kernels.winograd_patches),
        winograd_tiles=list(kernels.winograd_tiles),
        **{name: getattr(kernels, name) for name in PLAIN_KERNELS},
        source=hardware.sources.get("kernels", ""),
        note=hardware.notes.get("kernels", ""),
    )


def _cluster(hardware: Hardware) -> ClusterSpec | None:
    fabric = hardware.fabric
    if fabric is None:
        return None
    return ClusterSpec(
        gpus_per_node=fabric.gpus_per_node,
        nic=quantity(fabric.nic_bytes_per_s, "B/s"),
        nic_efficiency=fabric.nic_efficiency,
        alpha=quantity(fabric.alpha_s, "s"),
        oversubscription=fabric.oversubscription,
        host_memory=quantity(fabric.host_memory_bytes, "B"),
        deviation=fabric.deviation,
        source=hardware.sources.get("cluster", fabric.source),
        note=hardware.notes.get("cluster", ""),
    )


def _sustained(hardware: Hardware) -> SustainedSpec:
    source = hardware.sources.get("sustained", hardware.sustained_source)
    rates: dict[str, dict[str, Any]] = {"tensor": {}, "vector": {}}
    for peak in hardware.peaks:
        if peak.sustained_flop_per_s:
            rates[peak.engine][peak.dtype] = quantity(peak.sustained_flop_per_s, "FLOP/s")
    return SustainedSpec(
        memory={
            level.name: quantity(level.sustained_bytes_per_s, "B/s") or 0.0
            for level in hardware.memory
            if level.sustained_bytes_per_s
        },
        link={name: quantity(rate, "B/s") or 0.0 for name, rate in hardware.sustained_links.items()},
        run_deviation=hardware.run_deviation,
        source=source,
        date=hardware.sustained_source.removeprefix(source).strip(),
        note=hardware.notes.get("sustained", ""),
        **rates,
    )
