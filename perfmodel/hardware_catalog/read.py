"""Reading a hardware specification file into a `Hardware`, with a message that names the key."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from perfmodel.core.dtypes import DTYPE_BYTES, canonical_dtype
from perfmodel.core.hardware import ENGINES, Fabric, Hardware, Kernels, Launch, Link, MemoryLevel, Peak
from perfmodel.core.units import parse_network_rate, parse_quantity
from perfmodel.errors import InputFileError, PerfModelError, nearest, unknown_name
from perfmodel.files import read_document
from perfmodel.hardware_catalog import schema
from perfmodel.hardware_catalog.schema import ClusterSpec, HardwareSpec, KernelsSpec, LinkSpec, MemorySpec, RateSpec
from perfmodel.prediction.latency.tables import LatencySpec, LazyTables, Quantity, to_tables

#: memory levels from the outermost inwards; "dram" is the main memory of a CPU, "hbm" of any GPU
LEVELS = ("hbm", "dram", "llc", "l3", "l2", "l1", "shared", "registers")
#: figures of [chip] that `Hardware.chip` holds under the same name
CHIP_KEYS = (
    *("max_warps_per_sm", "max_threads_per_sm", "max_blocks_per_sm", "warp_schedulers_per_sm"),
    *("exponentials_per_clock_per_sm", "warp_size", "simd_bits"),
)
#: NVLink from this bandwidth on (450 GB/s: Hopper SXM and later) ends in an NVSwitch of the third generation, the first
#: that reduces in the switch; bridges and older switches run at 300 GB/s at most [B/s]
REDUCING_NVLINK = 400e9


def read_hardware(path: str | os.PathLike[str], *, lazy: bool = False) -> Hardware:
    """Return the machine that a specification file (TOML, YAML or JSON) describes.

    ``lazy`` leaves each ``[latency]`` table unchecked until it is asked for, which is quicker.

    Raises
    ------
    InputFileError
        When the file cannot be read, a key is unknown or missing, or a quantity has the wrong unit.
    """
    return to_hardware(read_spec(path), os.fspath(path), lazy=lazy)


def read_spec(path: str | os.PathLike[str]) -> HardwareSpec:
    """Return a specification file as it is written, checked for its keys and types only.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key is unknown, missing or of the wrong type.
    """
    return parse_spec(read_document(path), os.fspath(path))


def parse_spec(document: Any, place: str) -> HardwareSpec:
    """Return the specification in a parsed document; ``place`` is the file's name for messages."""
    try:
        spec = msgspec.convert(document, HardwareSpec)
        for engine, rates in spec.peak.items():
            if engine not in ENGINES:
                raise unknown_name("engine", engine, ENGINES, place=f"{place}: peak", kind=InputFileError)
            spec.peak[engine] = _rates(rates, f"{place}: peak.{engine}")
        return spec
    except msgspec.ValidationError as error:
        _check_entries(document, place)
        raise _explain(str(error), place) from None


def _check_entries(document: Any, place: str) -> None:
    """Check each memory level, link and latency table by itself, since msgspec does not name the entry of a mapping."""
    for table, struct in (("memory", MemorySpec), ("link", LinkSpec), ("latency", LatencySpec)):
        entries = document.get(table) if isinstance(document, dict) else None
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            try:
                msgspec.convert(entry, struct)
            except msgspec.ValidationError as error:
                raise _explain(str(error), f"{place}: {table}.{name}", nested=True) from None


def _rates(rates: Any, place: str) -> dict[str, RateSpec | str]:
    """Return the rates of one engine; a bare quantity is short for ``{ rate = ... }``, and source is text."""
    if not isinstance(rates, dict):
        raise InputFileError("is not a table of dtype = rate.", place=place)
    made: dict[str, RateSpec | str] = {}
    for dtype, rate in rates.items():
        if dtype in ("source", "note"):
            if not isinstance(rate, str):
                raise InputFileError(f"{rate!r} is no text.", place=f"{place}.{dtype}")
            made[dtype] = rate
        elif isinstance(rate, dict):
            try:
                made[dtype] = msgspec.convert(rate, RateSpec)
            except msgspec.ValidationError as error:
                raise _explain(str(error), f"{place}.{dtype}", nested=True) from None
        elif isinstance(rate, (str, int, float)) and not isinstance(rate, bool):
            made[dtype] = RateSpec(rate)
        else:
            raise InputFileError(f"{rate!r} is not a rate.", place=f"{place}.{dtype}")
    return made


def _explain(message: str, place: str, *, nested: bool = False) -> InputFileError:
    """Turn msgspec's message into ours, with the nearest key for a misspelt one.

    ``nested`` says that ``place`` ends with a key already.
    """
    where = re.search(r" - at `(.*)`$", message)
    key = where.group(1).removeprefix("$").lstrip(".") if where else ""
    text = message[: where.start()] if where else message
    full = f"{place}{'.' if nested else ': '}{key}" if key else place
    unknown = re.search(r"unknown field `(.*)`", text)
    if unknown:
        allowed = {
            field
            for struct in vars(schema).values()
            if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
            for field in struct.__struct_fields__
        }
        hint = nearest(unknown.group(1), allowed)
        return InputFileError(f"unknown key {unknown.group(1)!r}.", place=full, remedy=hint)
    missing = re.search(r"missing required field `(.*)`", text)
    if missing:
        return InputFileError(f"the key {missing.group(1)!r} is missing.", place=full)
    return InputFileError(f"{text[0].lower()}{text[1:]}.", place=full)


def to_hardware(spec: HardwareSpec, place: str, *, units_required: bool = True, lazy: bool = False) -> Hardware:
    """Convert the quantities of a specification to SI base units.

    A number without a unit is an error, since it is rarely meant in SI base units; the linter passes it on to the
    rules that say what it most likely means. ``lazy`` leaves each ``[latency]`` table unchecked until it is asked for.

    Raises
    ------
    InputFileError
        When a quantity has the wrong unit, is not positive, or a name is unknown.
    """
    read = _Quantities(place, units_required)
    sustained = spec.sustained
    memory = _memory(spec, read)
    clocks = {
        "vector": read.optional(spec.chip.vector_clock, "Hz", "chip.vector_clock"),
        "tensor": read.optional(spec.chip.tensor_clock, "Hz", "chip.tensor_clock"),
    }
    _check_sustained(spec, place)
    return Hardware(
        name=spec.name,
        vendor=spec.vendor,
        architecture=spec.architecture,
        title=spec.title or spec.name,
        kind=spec.kind,
        compute_capability=spec.compute_capability,
        generation=spec.generation,
        aliases=tuple(spec.aliases),
        device_names=tuple(spec.device_names),
        boards=tuple(spec.boards),
        memory=memory,
        peaks=_peaks(spec, read),
        sm_count=spec.chip.sm_count,
        clocks_hz=MappingProxyType({name: clock for name, clock in clocks.items() if clock}),
        chip=MappingProxyType({key: float(getattr(spec.chip, key)) for key in CHIP_KEYS if getattr(spec.chip, key)}),
        process=spec.chip.process,
        matrix_instruction=spec.chip.matrix_instruction,
        tdp_w=read.optional(spec.chip.tdp, "W", "chip.tdp"),
        links=tuple(_link(name, link, read) for name, link in spec.link.items()),
        launch=Launch(
            read.optional(spec.launch.floor, "s", "launch.floor"),
            read.optional(spec.launch.overhead, "s", "launch.overhead"),
            spec.launch.source,
            spec.launch.note,
        ),
        sustained_links=MappingProxyType(
            {name: read.positive(rate, "B/s", f"sustained.link.{name}") for name, rate in sustained.link.items()}
        ),
        sustained_source=" ".join(part for part in (sustained.source, sustained.date) if part),
        kernels=_kernels(spec.kernels, place),
        fabric=_fabric(spec.cluster, read) if spec.cluster else None,
        latency=(LazyTables if lazy else to_tables)(spec.latency, place),
        sources=MappingProxyType(_texts(spec, "source")),
        notes=MappingProxyType(_texts(spec, "note")),
        path=place,
    )


def _link(name: str, link: LinkSpec, read: _Quantities) -> Link:
    rate = read.positive(link.per_direction, "B/s", f"link.{name}.per_direction")
    reduces = link.reduces_in_switch
    if reduces is None:
        reduces = name == "nvlink" and rate >= REDUCING_NVLINK
    if link.domain is not None and link.domain < 2:
        raise InputFileError(f"{link.domain} is fewer than 2 devices.", place=f"{read.place}: link.{name}.domain")
    per_peer = read.optional(link.per_peer, "B/s", f"link.{name}.per_peer")
    latency = read.optional(link.latency, "s", f"link.{name}.latency")
    return Link(name, rate, reduces, link.source, link.note, link.domain, per_peer, latency)


def _fabric(cluster: ClusterSpec, read: _Quantities) -> Fabric:
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
        source=cluster.source,
    )


def _kernels(kernels: KernelsSpec, place: str) -> Kernels:
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
        softmax_threads=kernels.softmax_threads,
        widens_fp8_keys=kernels.widens_fp8_keys,
        translation_cost=kernels.translation_cost,
        channel_cost=kernels.channel_cost,
    )


def _check_sustained(spec: HardwareSpec, place: str) -> None:
    """Refuse a measured figure of something that has no datasheet entry: it would silently not be used."""
    sustained = spec.sustained
    tables = {
        "memory": (sustained.memory, spec.memory),
        "tensor": (sustained.tensor, spec.peak.get("tensor", {})),
        "vector": (sustained.vector, spec.peak.get("vector", {})),
    }
    for table, (measured, known) in tables.items():
        for name in measured:
            if name not in known:
                what = "memory level" if table == "memory" else f"{table} dtype"
                raise unknown_name(what, name, known, place=f"{place}: sustained.{table}", kind=InputFileError)


#: the unit to suggest for a number without one, and the smallest value that is believed
_USUAL = {"B": "GiB", "B/s": "GB/s", "FLOP/s": "TFLOP/s", "Hz": "MHz", "s": "us", "W": "W"}
_SMALLEST = {"B": 1e-3, "B/s": 1e-3, "FLOP/s": 1e-3, "Hz": 1e-3, "s": 1e-12, "W": 1e-3}


class _Quantities:
    """Reads quantities of one file; its errors name the file and the key."""

    def __init__(self, place: str, units_required: bool) -> None:
        self.place = place
        self.units_required = units_required

    def positive(self, text: Quantity, unit: str, key: str) -> float:
        """Return a positive quantity in SI base units."""
        where = f"{self.place}: {key}"
        if self.units_required and (not isinstance(text, str) or text.strip()[-1:].isdigit()):
            raise InputFileError(
                f"{text!r} has no unit.", place=where, remedy=f"Write it as in '{text} {_USUAL[unit]}'."
            )
        try:
            value = parse_quantity(text, unit)
        except PerfModelError as error:
            raise InputFileError(error.message, place=where, remedy=error.remedy) from None
        if value <= 0:
            raise InputFileError(f"{text!r} is not positive.", place=where)
        if value < _SMALLEST[unit]:
            raise InputFileError(f"{text!r} is too small to be true.", place=where, remedy="Check the unit.")
        return value

    def optional(self, text: Quantity | None, unit: str, key: str) -> float | None:
        """Return a positive quantity, or None where none is given."""
        return None if text is None else self.positive(text, unit, key)


def _memory(spec: HardwareSpec, read: _Quantities) -> tuple[MemoryLevel, ...]:
    for name in spec.memory:
        if name not in LEVELS:
            raise unknown_name("memory level", name, LEVELS, place=f"{read.place}: memory", kind=InputFileError)
    if not {"hbm", "dram"} & spec.memory.keys():
        raise InputFileError("needs a level 'hbm' (GPU) or 'dram' (CPU).", place=f"{read.place}: memory")
    return tuple(_level(name, spec, read) for name in LEVELS if name in spec.memory)


def _level(name: str, spec: HardwareSpec, read: _Quantities) -> MemoryLevel:
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
        level.source,
        level.note,
    )


def _peaks(spec: HardwareSpec, read: _Quantities) -> tuple[Peak, ...]:
    made = []
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
            made.append(
                Peak(
                    dtype=canonical_dtype(dtype),
                    engine=engine,
                    flop_per_s=read.positive(rate.rate, "FLOP/s", key),
                    flop_per_clock_per_sm=rate.flop_per_clock_per_sm,
                    clock_hz=read.optional(rate.clock or getattr(spec.chip, f"{engine}_clock"), "Hz", key),
                    sustained_flop_per_s=read.optional(sustained.get(dtype), "FLOP/s", f"sustained.{engine}.{dtype}"),
                    sparse_2to4_flop_per_s=read.optional(rate.sparse_2to4, "FLOP/s", f"{key}.sparse_2to4"),
                    packed=rate.packed,
                    source=rate.source or source,
                    note=rate.note,
                )
            )
    if not made:
        raise InputFileError("no peak is given.", place=f"{read.place}: peak", remedy="Add [peak.vector] fp32.")
    return tuple(made)


def _texts(spec: HardwareSpec, kind: str) -> dict[str, str]:
    """Return the sources, or notes, of the file's tables by table name."""
    tables: dict[str, Any] = {
        "chip": spec.chip,
        **{f"memory.{name}": level for name, level in spec.memory.items()},
        **{f"link.{name}": link for name, link in spec.link.items()},
        "launch": spec.launch,
        "kernels": spec.kernels,
        "sustained": spec.sustained,
        **({"cluster": spec.cluster} if spec.cluster else {}),
    }
    texts = {name: getattr(table, kind) for name, table in tables.items()}
    texts |= {f"peak.{engine}": rates.get(kind, "") for engine, rates in spec.peak.items()}
    return {name: text for name, text in texts.items() if text}
