"""The input of the linter's rules: a specification with its values, lines and related machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog.lint._codes import CODES
from perfmodel.hardware_catalog.names import name_key
from perfmodel.hardware_catalog.parts import positive_quantity
from perfmodel.hardware_catalog.schema import HardwareSpec, RateSpec


@dataclass(frozen=True)
class Finding:
    """A finding in a specification file.

    ``severity`` is "error", "warning" or "info"; ``code`` is one of `CODES`; ``line`` is None unless the file is TOML.
    """

    file: str
    line: int | None
    key: str
    severity: str
    code: str
    message: str


@dataclass(frozen=True)
class Quantity:
    """A quantity as written, and the unit of its key."""

    text: Any
    unit: str


@dataclass(frozen=True)
class Draft:
    """A specification to check.

    Attributes
    ----------
    values : dotted key -> value in SI base units, for every quantity that can be parsed.
    lines : dotted key -> line in the file.
    twin : the shipped specification of the product that this one claims to be, or None.
    catalog : all shipped specifications.
    """

    file: str
    spec: HardwareSpec
    values: Mapping[str, float]
    lines: Mapping[str, int] = field(default_factory=dict)
    twin: Draft | None = None
    catalog: tuple[Draft, ...] = ()

    def finding(self, key: str, severity: str, code: str, message: str) -> Finding:
        """Return a finding at a key of this file."""
        assert code in CODES, code
        return Finding(self.file, line_of(key, self.lines), key, severity, code, message)

    def known(self, key: str) -> float | None:
        """Return the value that the product of this specification is known to have."""
        return self.twin.values.get(key) if self.twin else None

    def rates(self) -> Iterator[tuple[str, str, RateSpec]]:
        """Yield engine, dtype and rate of every peak."""
        for engine, rates in self.spec.peak.items():
            for dtype, rate in rates.items():
                if isinstance(rate, RateSpec):
                    yield engine, dtype, rate

    def clock_hz(self, engine: str, dtype: str) -> float | None:
        """Return the clock that a peak is computed with [Hz]."""
        return self.values.get(f"peak.{engine}.{dtype}.clock", self.values.get(f"chip.{engine}_clock"))

    def others(self) -> Iterator[Draft]:
        """Yield the shipped specifications of other products."""
        own = self.twin.spec.name if self.twin else self.spec.name
        return (other for other in self.catalog if other.spec.name != own)

    def family(self) -> Iterator[Draft]:
        """Yield the shipped specifications of other products with the same compute capability, if it states one."""
        own = self.spec.compute_capability
        return (other for other in self.others() if own and other.spec.compute_capability == own)


def quantities(spec: HardwareSpec) -> dict[str, Quantity]:
    """Return every quantity of a specification by its dotted key."""
    written = {
        "chip.vector_clock": Quantity(spec.chip.vector_clock, "Hz"),
        "chip.tensor_clock": Quantity(spec.chip.tensor_clock, "Hz"),
        "chip.max_clock": Quantity(spec.chip.max_clock, "Hz"),
        "chip.tdp": Quantity(spec.chip.tdp, "W"),
        "chip.tdp_alone": Quantity(spec.chip.tdp_alone, "W"),
        "launch.floor": Quantity(spec.launch.floor, "s"),
        "launch.overhead": Quantity(spec.launch.overhead, "s"),
        "launch.queued": Quantity(spec.launch.queued, "s"),
    }
    for name, level in spec.memory.items():
        written[f"memory.{name}.capacity"] = Quantity(level.capacity, "B")
        written[f"memory.{name}.capacity_per_sm"] = Quantity(level.capacity_per_sm, "B")
        written[f"memory.{name}.bandwidth"] = Quantity(level.bandwidth, "B/s")
        written[f"memory.{name}.memory_clock"] = Quantity(level.memory_clock, "Hz")
    for engine, rates in spec.peak.items():
        for dtype, rate in rates.items():
            if isinstance(rate, RateSpec):
                key = f"peak.{engine}.{dtype}"
                written[key] = Quantity(rate.rate, "FLOP/s")
                written[f"{key}.clock"] = Quantity(rate.clock, "Hz")
                written[f"{key}.sparse_2to4"] = Quantity(rate.sparse_2to4, "FLOP/s")
                written[f"{key}.microscaled"] = Quantity(rate.microscaled, "FLOP/s")
    for name, link in spec.link.items():
        written[f"link.{name}.per_direction"] = Quantity(link.per_direction, "B/s")
        written[f"link.{name}.per_peer"] = Quantity(link.per_peer, "B/s")
        written[f"link.{name}.latency"] = Quantity(link.latency, "s")
        for op, line in link.collective.items():
            written[f"link.{name}.collective.{op}.latency"] = Quantity(line.latency, "s")
            written[f"link.{name}.collective.{op}.bandwidth"] = Quantity(line.bandwidth, "B/s")
    if spec.cluster is not None:
        written["cluster.alpha"] = Quantity(spec.cluster.alpha, "s")
        written["cluster.host_memory"] = Quantity(spec.cluster.host_memory, "B")
    measured = {"memory": "B/s", "tensor": "FLOP/s", "vector": "FLOP/s", "link": "B/s"}
    for table, unit in measured.items():
        for name, rate in getattr(spec.sustained, table).items():
            written[f"sustained.{table}.{name}"] = Quantity(rate, unit)
    return {key: quantity for key, quantity in written.items() if quantity.text is not None}


def values_of(spec: HardwareSpec) -> tuple[dict[str, float], dict[str, InputFileError]]:
    """Return the values that the reader takes, and its errors of the others."""
    values: dict[str, float] = {}
    errors: dict[str, InputFileError] = {}
    for key, quantity in quantities(spec).items():
        try:
            values[key] = positive_quantity(quantity.text, quantity.unit)
        except InputFileError as error:
            errors[key] = error
    return values, errors


def find_twin(spec: HardwareSpec, catalog: tuple[Draft, ...]) -> Draft | None:
    """Return the shipped product that a specification claims to be: by name, device names or aliases."""
    for claimed in ([spec.name], spec.device_names, spec.aliases):
        keys = {name_key(name) for name in claimed}
        for other in catalog:
            if keys & names_of(other.spec):
                return other
    return None


def names_of(spec: HardwareSpec) -> set[str]:
    """Return every name of a specification, in the form of `name_key`."""
    return {name_key(name) for name in (spec.name, *spec.aliases, *spec.device_names)}


_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")


def key_lines(text: str) -> dict[str, int]:
    """Return dotted key -> line of a TOML text; keys of an inline table have its line.

    >>> key_lines(chr(10).join(['name = "x"', "[chip]", "sm_count = 1"]))
    {'name': 1, 'chip': 2, 'chip.sm_count': 3}
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        head = _TABLE.match(line)
        entry = None if head else _ENTRY.match(line)
        if head:
            table = _plain(head.group(1))
            lines.setdefault(table, number)
        elif entry:
            key = _plain(entry.group(1))
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines


def _plain(key: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return re.sub(r"[\"' ]", "", key)


def line_of(key: str, lines: Mapping[str, int]) -> int | None:
    """Return the line of a key or of its nearest table; 1 if there is none."""
    if not lines:
        return None
    parts = key.split(".")
    while parts:
        if ".".join(parts) in lines:
            return lines[".".join(parts)]
        parts.pop()
    return 1
