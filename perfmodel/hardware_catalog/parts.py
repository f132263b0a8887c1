"""The parts of a `Hardware` from a specification: memory levels, peaks, links, fabric and kernels, in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.dtypes import DTYPE_BYTES, canonical_dtype
from perfmodel.core.hardware import ExchangeLine, Fabric, Kernels, Link, MemoryLevel, Peak
from perfmodel.core.machine_parts import COLLECTIVES
from perfmodel.core.units import format_binary, format_si, parse_network_rate, parse_quantity
from perfmodel.errors import InputFileError, PerfModelError, unknown_name
from perfmodel.hardware_catalog.schema import (
    PLAIN_KERNELS,
    ClusterSpec,
    ExchangeSpec,
    HardwareSpec,
    KernelsSpec,
    LinkSpec,
    MemorySpec,
    RateSpec,
)
from perfmodel.prediction.latency.tables import Quantity

#: memory levels from the outermost inwards; "dram" is the main memory of a CPU, "hbm" of any GPU
LEVELS = ("hbm", "dram", "llc", "l3", "l2", "l1", "shared", "registers")
#: NVLink from this bandwidth on (450 GB/s: Hopper SXM and later) ends in an NVSwitch of the third generation, the first
#: that reduces in the switch; bridges and older switches run at 300 GB/s at most [B/s]
REDUCING_NVLINK = 400e9
#: the unit to suggest for a number without one, and the smallest value that is believed
_USUAL = {"B": "GiB", "B/s": "GB/s", "FLOP/s": "TFLOP/s", "Hz": "MHz", "s": "us", "W": "W"}
_SMALLEST = {"B": 1e-3, "B/s": 1e-3, "FLOP/s": 1e-3, "Hz": 1e-3, "s": 1e-12, "W": 1e-3}
#: a number without a unit from here on (of times, up to here) is taken for one in SI base units, as 80e9 of a capacity:
#: in the usual unit it would be no figure of a machine
_IN_BASE_UNITS = {"B": 1e5, "B/s": 1e8, "FLOP/s": 1e8, "Hz": 1e6, "s": 1e-3}
_WORDS = {"B": "bytes", "s": "seconds"}


def positive_quantity(text: Quantity, unit: str, *, place: str = "") -> float:
    """Return a positive quantity of a specification in SI base units.

    A number without a unit is refused, since it is rarely meant in SI base units.

    Parameters
    ----------
    text : a number with a unit, as in ``"80 GiB"``.
    unit : one of B, B/s, FLOP/s, Hz, s, W.
    place : file and key, for the message.

    Raises
    ------
    InputFileError
        When it has no unit or another one, or is not positive or too small to be true.
    """
    if not isinstance(text, str) or text.strip()[-1:].isdigit():
        raise _without_unit(text, unit, place)
    try:
        value = parse_quantity(text, unit)
    except PerfModelError as error:
        raise InputFileError(error.message, place=place, remedy=error.remedy) from None
    if value <= 0:
        raise InputFileError(f"{text!r} is not positive.", place=place)
    if value < _SMALLEST[unit]:
        raise InputFileError(f"{text!r} is too small to be true.", place=place, remedy="Check the unit.")
    return value


def _without_unit(text: Quantity, unit: str, place: str) -> InputFileError:
    """Return the error of a number without a unit, with how it is most likely to be written."""
    written = text.strip() if isinstance(text, str) else f"{text:.15g}"
    remedy = f"Write it as in '{written} {_USUAL[unit]}'."
    meant = likely_quantity(text, unit)
    if meant is not None and meant == parse_quantity(text, unit):
        respelt = format_binary(meant) if unit == "B" else format_si(meant, unit, 4)
        remedy = f"Write '{respelt}' if it is in {_WORDS.get(unit, unit)}."
    shown = repr(text) if isinstance(text, str) else written
    return InputFileError(f"{shown} has no unit.", place=place, remedy=remedy)


def likely_quantity(text: Quantity, unit: str) -> float | None:
    """Return what a number without a unit is most likely meant as, in SI base units; None where there is no telling."""
    if isinstance(text, str) and not text.strip()[-1:].isdigit():
        return None
    try:
        value = parse_quantity(text, unit)
    except PerfModelError:  # NaN, or text that is no number either
        return None
    if value <= 0:
        return None
    limit = _IN_BASE_UNITS.get(unit, math.inf)
    in_base_units = value <= limit if unit == "s" else value >= limit
    return value if in_base_units else parse_quantity(f"{value!r} {_USUAL[unit]}", unit)


class Quantities:
    """Reads quantities of one file; its errors name the file and the key."""

    def __init__(self, place: str) -> None:
        self.place = place

    def positive(self, text: Quantity, unit: str, key: str) -> float:
        """Return a positive quantity in SI base units."""
        return positive_quantity(text, unit, place=f"{self.place}: {key}")

    def optional(self, text: Quantity | None, unit: str, key: str) -> float | None:
        """Return a positive quantity, or None where none is given."""
        return None if text is None else self.positive(text, unit, key)


def to_memory(spec: HardwareSpec, read: Quantities) -> tuple[MemoryLevel, ...]:
    """Return the levels of memory from the outermost inwards."""
    for name in spec.memory:
        if name not in LEVELS:
            raise unknown_name("memory level", name, LEVELS, place=f"{read.place}: memory", kind=InputFileError)
    if not {"hbm", "dram"} & spec.memory.keys():
        raise InputFileError("needs a level 'hbm' (GPU) or 'dram' (CPU).", place=f"{read.place}: memory")
    return tuple(_level(name, spec, read) for name in LEVELS if name in spec.memory)


def _level(name: str, spec: HardwareSpec, read: Quantities) -> MemoryLevel:
    level: MemorySpec = spec.memory[name]
    for key, number in (("partitions", level.partitions), ("copies", level.copies)):
        if number < 1:
            raise InputFileError(f"{key} = {number} is below 1.", place=f"{read.place}: memory.{name}")
    capacity = read.optional(level.capacity, "B", f"memory.{name}.capacity")
    per_sm = read.optional(level.capacity_per_sm, "B", f"memory.{name}.capacity_per_sm")
    if capacity is None and per_sm is not None and spec.chip.sm_count:
        capacity = per_sm * spec.chip.sm_count
    sustained = spec.sustained.memory.get(name)
    return MemoryLevel(
        name,
        capacity,
        read.optional(level.bandwidth, "B/s", f"memory.{name}.bandwidth"),
        read.optional(sustained, "B/s", f"sustained.memory.{name}"),
        level.technology,
        level.partitions,
        level.copies,
        level.delivered,
        level.source,
        level.note,
        level.shared_with_host,
    )


def to_peaks(spec: HardwareSpec, read: Quantities) -> tuple[Peak, ...]:
    """Return the peak rate of each engine and dtype."""
    peaks = []
    for engine, rates in spec.peak.items():
        source = rates.get("source", "")
        for dtype, rate in rates.items():
            if not isinstance(rate, RateSpec):
                continue
            key = f"peak.{engine}.{dtype}"
            if dtype not in DTYPE_BYTES:
                raise unknown_name(
                    "dtype", dtype, DTYPE_BYTES, place=f"{read.place}: peak.{engine}", kind=InputFileError
                )
            sustained: Mapping[str, Any] = getattr(spec.sustained, engine)
            peaks.append(
                Peak(
                    dtype=canonical_dtype(dtype),
                    engine=engine,
                    flop_per_s=read.positive(rate.rate, "FLOP/s", key),
                    flop_per_clock_per_sm=rate.flop_per_clock_per_sm,
                    clock_hz=read.optional(rate.clock or getattr(spec.chip, f"{engine}_clock"), "Hz", key),
                    sustained_flop_per_s=read.optional(sustained.get(dtype), "FLOP/s", f"sustained.{engine}.{dtype}"),
                    sparse_2to4_flop_per_s=read.optional(rate.sparse_2to4, "FLOP/s", f"{key}.sparse_2to4"),
                    microscaled_flop_per_s=read.optional(rate.microscaled, "FLOP/s", f"{key}.microscaled"),
                    packed=rate.packed,
                    source=rate.source or source,
                    note=rate.note,
                )
            )
    if not peaks:
        raise InputFileError("no peak is given.", place=f"{read.place}: peak", remedy="Add [peak.vector] fp32.")
    return tuple(peaks)


def to_link(name: str, link: LinkSpec, read: Quantities) -> Link:
    """Return one link; whether its switch reduces follows from `REDUCING_NVLINK` where it is not stated."""
    rate = read.positive(link.per_direction, "B/s", f"link.{name}.per_direction")
    if link.domain is not None and link.domain < 2:
        raise InputFileError(f"{link.domain} is fewer than 2 devices.", place=f"{read.place}: link.{name}.domain")
    per_peer = read.optional(link.per_peer, "B/s", f"link.{name}.per_peer")
    latency = read.optional(link.latency, "s", f"link.{name}.latency")
    # As many peers have links of their own as make up the whole: 7 of 64 GB/s are those of 8 devices.
    domain = link.domain if per_peer is None or link.domain else max(2, 1 + round(rate / per_peer))
    lines = MappingProxyType({op: _to_line(f"link.{name}.collective", op, line, read)
                              for op, line in link.collective.items()})  # fmt: skip
    facts = (bool(link.reduces_in_switch), link.source, link.note, domain, per_peer, latency, lines, link.technology)
    converted = Link(name, rate, *facts)
    switched = name == "nvlink" and per_peer is None and not converted.is_bridge
    if link.reduces_in_switch is None and switched and rate >= REDUCING_NVLINK:
        return replace(converted, reduces_in_switch=True)
    return converted


def _to_line(table: str, op: str, line: ExchangeSpec, read: Quantities) -> ExchangeLine:
    """Return the measured line of one collective."""
    place = f"{read.place}: {table}.{op}"
    if op not in COLLECTIVES:
        raise unknown_name("collective", op, COLLECTIVES, place=place, kind=InputFileError)
    if line.ranks < 2:
        raise InputFileError(f"{line.ranks} ranks do not exchange.", place=f"{place}.ranks")
    return ExchangeLine(
        read.positive(line.latency, "s", f"{table}.{op}.latency"),
        read.positive(line.bandwidth, "B/s", f"{table}.{op}.bandwidth"),
        line.deviation,
        line.ranks,
    )


def to_fabric(cluster: ClusterSpec, read: Quantities) -> Fabric:
    """Return the network between nodes, with the usual figures where none are given."""
    place, usual = f"{read.place}: cluster", Fabric()
    efficiency = cluster.nic_efficiency or usual.nic_efficiency
    oversubscription = cluster.oversubscription or usual.oversubscription
    if efficiency > 1:
        raise InputFileError(f"{efficiency:g} is above 1.", place=f"{place}.nic_efficiency")
    if oversubscription < 1:
        raise InputFileError(f"{oversubscription:g} is below 1.", place=f"{place}.oversubscription")
    try:
        nic = None if cluster.nic is None else parse_network_rate(cluster.nic, place=f"{place}.nic")
    except PerfModelError as error:
        raise InputFileError(error.message, place=error.place, remedy=error.remedy) from None
    alpha = read.optional(cluster.alpha, "s", "cluster.alpha")
    return Fabric(
        gpus_per_node=cluster.gpus_per_node,
        nic_bytes_per_s=nic,
        nic_efficiency=efficiency,
        alpha_s=usual.alpha_s if alpha is None else alpha,
        oversubscription=oversubscription,
        host_memory_bytes=read.optional(cluster.host_memory, "B", "cluster.host_memory"),
        deviation=cluster.deviation,
        source=cluster.source,
    )


def to_kernels(kernels: KernelsSpec, place: str) -> Kernels:
    """Return what is known of the kernels of libraries on a machine, such as their tiles."""
    for library, tiles in kernels.fp8_tiles.items():
        if any(len(tile) != 3 for tile in tiles[:-1]) or not tiles or len(tiles[-1]) != 2:
            raise InputFileError(
                "is not [rows, columns, largest number of rows] for each tile, and [rows, columns] for the last.",
                place=f"{place}: kernels.fp8_tiles.{library}",
            )
    return Kernels(
        gemm_tiles=tuple(kernels.gemm_tiles),
        gemm_batched_tiles=tuple(kernels.gemm_batched_tiles),
        fp8_tiles=MappingProxyType(
            {
                library: tuple((tile[0], tile[1], float(tile[2]) if tile[2:] else math.inf) for tile in tiles)
                for library, tiles in kernels.fp8_tiles.items()
            }
        ),
        winograd_patches=tuple(kernels.winograd_patches),
        winograd_tiles=tuple(kernels.winograd_tiles),
        **{name: getattr(kernels, name) for name in PLAIN_KERNELS},
    )
