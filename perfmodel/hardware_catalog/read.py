"""Reading a hardware specification file into a `Hardware`, with a message that names the key."""

from __future__ import annotations

import os
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from perfmodel.core.hardware import ENGINES, Hardware, Launch
from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import read_document
from perfmodel.hardware_catalog.explain import explained, found_and_allowed
from perfmodel.hardware_catalog.origin import (
    as_lent,
    fitted_with,
    is_shipped,
    lent_families,
    number_lent,
    possible_lenders,
)
from perfmodel.hardware_catalog.parts import Quantities, to_fabric, to_kernels, to_link, to_memory, to_peaks
from perfmodel.hardware_catalog.schema import HardwareSpec, LinkSpec, MemorySpec, RateSpec
from perfmodel.prediction.latency.tables import LatencySpec, LazyTables, to_tables

#: figures of [chip] that `Hardware.chip` holds under the same name
CHIP_KEYS = (
    *("max_warps_per_sm", "max_threads_per_sm", "max_blocks_per_sm", "warp_schedulers_per_sm"),
    *("exponentials_per_clock_per_sm", "tensor_share", "warp_size", "simd_bits"),
)


def read_hardware(path: str | os.PathLike[str], *, lazy: bool = False) -> Hardware:
    """Return the machine that a specification file (TOML, YAML or JSON) describes.

    A copy of a shipped file, with other figures, is told which machine its measurements are of
    (`perfmodel.hardware_catalog.origin`). ``lazy`` leaves each ``[latency]`` table unchecked until it is asked for,
    which is quicker.

    Raises
    ------
    InputFileError
        When the file cannot be read, a key is unknown or missing, or a quantity has the wrong unit.
    """
    place, spec = os.fspath(path), read_spec(path)
    machine = to_hardware(spec, place, lazy=lazy)
    lenders = [] if is_shipped(place) else [(lender, read_spec(lender)) for lender in possible_lenders(spec)]
    lenders = [one for one in lenders if number_lent(spec, one[1])]
    if not lenders:
        return machine
    path, lender = max(lenders, key=lambda one: (number_lent(spec, one[1]), one[1].name == spec.name))
    return as_lent(machine, lent_families(spec, lender), to_hardware(lender, os.fspath(path), lazy=True))


def read_spec(path: str | os.PathLike[str]) -> HardwareSpec:
    """Return a specification file as it is written, checked for its keys and types only.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key is unknown, missing or of the wrong type.
    """
    return parse_spec(read_document(path), os.fspath(path))


def parse_spec(document: Any, place: str) -> HardwareSpec:
    """Return the specification in a parsed document; ``place`` is the file's name for messages.

    Raises
    ------
    InputFileError
        When a key is unknown, missing or of the wrong type: with what was found, or what is allowed.
    """
    try:
        return _parsed(document, place)
    except InputFileError as error:
        details = found_and_allowed(document, error.place.removeprefix(place).lstrip(": "), error.message)
        raise InputFileError(error.message, place=error.place, remedy=details or error.remedy) from None


def _parsed(document: Any, place: str) -> HardwareSpec:
    if not isinstance(document, dict):
        remedy = "`perfmodel hardware show h100 --format toml` writes one as a template."
        raise InputFileError("holds no table of keys, which a specification is.", place=place, remedy=remedy)
    try:
        spec = msgspec.convert(document, HardwareSpec)
        for engine, rates in spec.peak.items():
            if engine not in ENGINES:
                raise unknown_name("engine", engine, ENGINES, place=f"{place}: peak", kind=InputFileError)
            spec.peak[engine] = _rates(rates, f"{place}: peak.{engine}")
        return spec
    except msgspec.ValidationError as error:
        _check_entries(document, place)
        raise explained(str(error), place) from None


def _check_entries(document: Any, place: str) -> None:
    """Check each memory level, link and latency table by itself, since msgspec does not name the entry of a mapping."""
    for table, struct in (("memory", MemorySpec), ("link", LinkSpec), ("latency", LatencySpec)):
        entries = document.get(table) if isinstance(document, dict) else None
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            try:
                msgspec.convert(entry, struct)
            except msgspec.ValidationError as error:
                raise explained(str(error), f"{place}: {table}.{name}", nested=True) from None


def _rates(rates: Any, place: str) -> dict[str, RateSpec | str]:
    """Return the rates of one engine; a bare quantity is short for ``{ rate = ... }``, and source is text."""
    if not isinstance(rates, dict):
        raise InputFileError("is not a table of dtype = rate.", place=place)
    converted: dict[str, RateSpec | str] = {}
    for dtype, rate in rates.items():
        if dtype in ("source", "note"):
            if not isinstance(rate, str):
                raise InputFileError(f"{rate!r} is no text.", place=f"{place}.{dtype}")
            converted[dtype] = rate
        elif isinstance(rate, dict):
            try:
                converted[dtype] = msgspec.convert(rate, RateSpec)
            except msgspec.ValidationError as error:
                raise explained(str(error), f"{place}.{dtype}", nested=True) from None
        elif isinstance(rate, (str, int, float)) and not isinstance(rate, bool):
            converted[dtype] = RateSpec(rate)
        else:
            raise InputFileError(f"{rate!r} is not a rate.", place=f"{place}.{dtype}")
    return converted


def to_hardware(spec: HardwareSpec, place: str, *, lazy: bool = False) -> Hardware:
    """Convert the quantities of a specification to SI base units.

    ``lazy`` leaves each ``[latency]`` table unchecked until it is asked for.

    Raises
    ------
    InputFileError
        When a quantity has no unit or the wrong one, is not positive, or a name is unknown.
    """
    hardware = _converted(spec, place, lazy=lazy)
    return replace(hardware, fitted_with=fitted_with(hardware, hardware.latency))


def _converted(spec: HardwareSpec, place: str, *, lazy: bool) -> Hardware:
    read = Quantities(place)
    sustained = spec.sustained
    memory = to_memory(spec, read)
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
        peaks=to_peaks(spec, read),
        sm_count=spec.chip.sm_count,
        clocks_hz=MappingProxyType({name: clock for name, clock in clocks.items() if clock}),
        max_clock_hz=read.optional(spec.chip.max_clock, "Hz", "chip.max_clock"),
        chip=MappingProxyType({key: float(getattr(spec.chip, key)) for key in CHIP_KEYS if getattr(spec.chip, key)}),
        process=spec.chip.process,
        matrix_instruction=spec.chip.matrix_instruction,
        tdp_w=read.optional(spec.chip.tdp, "W", "chip.tdp"),
        tdp_alone_w=read.optional(spec.chip.tdp_alone, "W", "chip.tdp_alone"),
        links=tuple(to_link(name, link, read) for name, link in spec.link.items()),
        launch=Launch(
            read.optional(spec.launch.floor, "s", "launch.floor"),
            read.optional(spec.launch.overhead, "s", "launch.overhead"),
            read.optional(spec.launch.queued, "s", "launch.queued"),
            spec.launch.source,
            spec.launch.note,
        ),
        sustained_links=MappingProxyType(
            {name: read.positive(rate, "B/s", f"sustained.link.{name}") for name, rate in sustained.link.items()}
        ),
        run_deviation=_deviation(sustained.run_deviation, place),
        sustained_source=" ".join(part for part in (sustained.source, sustained.date) if part),
        kernels=to_kernels(spec.kernels, place),
        fabric=to_fabric(spec.cluster, read) if spec.cluster else None,
        latency=(LazyTables if lazy else to_tables)(spec.latency, place),
        sources=MappingProxyType(_texts(spec, "source")),
        notes=MappingProxyType(_texts(spec, "note")),
        path=place,
    )


def _deviation(value: float | None, place: str) -> float | None:
    """Refuse a deviation of whole runs that is no share: one of a factor of e says nothing any more."""
    if value is not None and not 0.0 < value < 1.0:
        raise InputFileError(
            f"run_deviation is {value:g}.", place=f"{place}: sustained", remedy="It has to lie between 0 and 1."
        )
    return value


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
