"""Every figure of a machine in one list: the datasheet's beside the sustained one, each with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.core.report import Reportable
from perfmodel.prediction.latency.families import family


@dataclass(frozen=True)
class Figure:
    """One figure in SI base units; ``sustained`` is the measured value of the same quantity, or None."""

    table: str
    key: str
    value: float | None
    unit: str
    sustained: float | None = None
    source: str = ""
    note: str = ""
    sustained_source: str = ""

    @property
    def fraction(self) -> float | None:
        """The sustained figure divided by the datasheet's."""
        return self.sustained / self.value if self.sustained and self.value else None


@dataclass(frozen=True)
class MachineFigures(Reportable):
    """A machine and all its figures, in the order of its file."""

    machine: Hardware
    figures: tuple[Figure, ...]


def machine_figures(machine: Hardware) -> MachineFigures:
    """Return all figures of a machine."""
    figures = (
        *_chip(machine),
        *(figure for level in machine.memory for figure in _level(level, machine)),
        *(figure for peak in machine.peaks for figure in _peak(peak, machine)),
        *_links(machine),
        *_launch(machine),
        *_latency(machine),
    )
    return MachineFigures(machine, figures)


def _chip(machine: Hardware) -> Iterator[Figure]:
    source = machine.sources.get("chip", "")
    if machine.sm_count:
        yield Figure("chip", "sm_count", float(machine.sm_count), "", source=source)
    for engine, clock in machine.clocks_hz.items():
        yield Figure("chip", f"{engine}_clock", clock, "Hz", source=source)
    for name, number in machine.chip.items():
        yield Figure("chip", name, number, "", source=source)
    if machine.tdp_w:
        yield Figure("chip", "tdp", machine.tdp_w, "W", source=source)


def _measured(sustained: float | None, machine: Hardware) -> str:
    return machine.sustained_source if sustained else ""


def _level(level: MemoryLevel, machine: Hardware) -> Iterator[Figure]:
    table = f"memory.{level.name}"
    if level.capacity_bytes:
        yield Figure(table, "capacity", level.capacity_bytes, "B", source=level.source)
    if level.bandwidth_bytes_per_s or level.sustained_bytes_per_s:
        yield Figure(
            table,
            "bandwidth",
            level.bandwidth_bytes_per_s,
            "B/s",
            level.sustained_bytes_per_s,
            level.source,
            sustained_source=_measured(level.sustained_bytes_per_s, machine),
        )


def _peak(peak: Peak, machine: Hardware) -> Iterator[Figure]:
    yield Figure(
        f"peak.{peak.engine}",
        peak.dtype,
        peak.flop_per_s,
        "FLOP/s",
        peak.sustained_flop_per_s,
        peak.source,
        peak.note,
        _measured(peak.sustained_flop_per_s, machine),
    )
    if peak.sparse_2to4_flop_per_s:
        yield Figure(
            f"peak.{peak.engine}",
            f"{peak.dtype} sparse_2to4",
            peak.sparse_2to4_flop_per_s,
            "FLOP/s",
            source=peak.source,
        )


def _links(machine: Hardware) -> Iterator[Figure]:
    for link in machine.links:
        sustained = machine.sustained_links.get(link.name)
        yield Figure(
            f"link.{link.name}",
            "per_direction",
            link.bandwidth_bytes_per_s,
            "B/s",
            sustained,
            link.source,
            sustained_source=_measured(sustained, machine),
        )
    named = {link.name for link in machine.links}
    for name, rate in machine.sustained_links.items():
        if name not in named:
            yield Figure(f"link.{name}", "per_direction", None, "B/s", rate, sustained_source=_measured(rate, machine))


def _launch(machine: Hardware) -> Iterator[Figure]:
    for key, value in (("floor", machine.launch.floor_s), ("overhead", machine.launch.overhead_s)):
        if value:
            yield Figure("launch", key, value, "s", source=machine.launch.source)


def _latency(machine: Hardware) -> Iterator[Figure]:
    """Yield the constants of the latency model. They are fitted, so they are sustained figures only."""
    for name, table in machine.latency.items():
        units = {constant.name: constant.unit for constant in family(name).all_constants}
        source = ", ".join(part for part in (table.source, table.date) if part)
        for library, values in (("", table.constants), *table.libraries.items()):
            place = f"latency.{name}" + (f".{library}" if library else "")
            for key, value in values.items():
                yield Figure(place, key, None, units[key], value, sustained_source=source)
