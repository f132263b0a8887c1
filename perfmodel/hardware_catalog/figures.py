"""Every figure of a machine in one list: the datasheet's beside the sustained one, each with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.core.report import Reportable
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.nearest_tables import fitted_table


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

    @property
    def facts(self) -> dict[str, str]:
        """Facts that are not figures, by their keys in the file."""
        machine, kernels = self.machine, self.machine.kernels
        facts: dict[str, Any] = {
            "chip process": machine.process,
            "chip matrix_instruction": machine.matrix_instruction,
            **{f"link.{link.name} reduces_in_switch": link.reduces_in_switch for link in machine.links},
            **{f"link.{link.name} domain": link.domain for link in machine.links},
            "kernels gemm_tiles": _sizes(kernels.gemm_tiles),
            "kernels gemm_batched_tiles": _sizes(kernels.gemm_batched_tiles),
            **{f"kernels.fp8_tiles {library}": _sizes(tiles) for library, tiles in kernels.fp8_tiles.items()},
            "kernels winograd_patches": _sizes(kernels.winograd_patches),
            "kernels winograd_tiles": _sizes(kernels.winograd_tiles),
            "kernels widens_fp8_keys": kernels.widens_fp8_keys,
        }
        return {key: "yes" if value is True else str(value) for key, value in facts.items() if value}


def machine_figures(machine: Hardware) -> MachineFigures:
    """Return all figures of a machine."""
    figures = (
        *_chip(machine),
        *(figure for level in machine.memory for figure in _level(level, machine)),
        *(figure for peak in machine.peaks for figure in _peak(peak, machine)),
        *_links(machine),
        *_launch(machine),
        *_kernels(machine),
        *_cluster(machine),
        *_latency(machine),
    )
    return MachineFigures(machine, figures)


def _sizes(tiles: Iterable[tuple[float, ...]]) -> str:
    """Return tiles as text: "64 x 64, 128 x 128"."""
    return ", ".join(" x ".join(f"{size:g}" for size in tile if math.isfinite(size)) for tile in tiles)


def _chip(machine: Hardware) -> Iterator[Figure]:
    source = machine.sources.get("chip", "")
    if machine.sm_count:
        yield Figure("chip", "sm_count", float(machine.sm_count), "", source=source)
    for engine, clock in machine.clocks_hz.items():
        yield Figure("chip", f"{engine}_clock", clock, "Hz", source=source)
    if machine.max_clock_hz:
        yield Figure("chip", "max_clock", machine.max_clock_hz, "Hz", source=source)
    for name, number in machine.chip.items():
        yield Figure("chip", name, number, "", source=source)
    if machine.tdp_w:
        yield Figure("chip", "tdp", machine.tdp_w, "W", source=source)
    if machine.tdp_alone_w:
        yield Figure("chip", "tdp_alone", machine.tdp_alone_w, "W", source=source)


def _measured(sustained: float | None, machine: Hardware) -> str:
    return machine.sustained_source if sustained else ""


def _level(level: MemoryLevel, machine: Hardware) -> Iterator[Figure]:
    table = f"memory.{level.name}"
    if level.capacity_bytes:
        yield Figure(table, "capacity", level.capacity_bytes, "B", source=level.source)
    if level.copies > 1:
        yield Figure(table, "copies", float(level.copies), "", source=level.source)
    if level.delivered < 1.0:
        yield Figure(table, "delivered", level.delivered, "", source=level.source)
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
    if peak.packed != 1.0:
        yield Figure(f"peak.{peak.engine}", f"{peak.dtype} packed", peak.packed, "", source=peak.source)
    others = {"sparse_2to4": peak.sparse_2to4_flop_per_s, "microscaled": peak.microscaled_flop_per_s}
    for name, rate in others.items():
        if rate:
            yield Figure(f"peak.{peak.engine}", f"{peak.dtype} {name}", rate, "FLOP/s", source=peak.source)


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
        if link.per_peer_bytes_per_s:
            yield Figure(f"link.{link.name}", "per_peer", link.per_peer_bytes_per_s, "B/s", source=link.source)
        if link.latency_s:
            yield Figure(f"link.{link.name}", "latency", link.latency_s, "s", source=link.source)
        for op, line in link.lines.items():
            table = f"link.{link.name}.collective.{op}"
            yield Figure(table, "latency", line.latency_s, "s", source=link.source)
            yield Figure(table, "bandwidth", line.bandwidth_bytes_per_s, "B/s", source=link.source)
    named = {link.name for link in machine.links}
    for name, rate in machine.sustained_links.items():
        if name not in named:
            yield Figure(f"link.{name}", "per_direction", None, "B/s", rate, sustained_source=_measured(rate, machine))


def _kernels(machine: Hardware) -> Iterator[Figure]:
    if machine.kernels.softmax_threads:
        threads = float(machine.kernels.softmax_threads)
        yield Figure("kernels", "softmax_threads", threads, "", source=machine.sources.get("kernels", ""))
    if machine.kernels.gemm_batched_share < 1.0:
        share = machine.kernels.gemm_batched_share
        yield Figure("kernels", "gemm_batched_share", share, "", source=machine.sources.get("kernels", ""))
    for name in ("translation_cost", "channel_cost", "reread_cost", "small_batch_cost", "ragged_batch_cost"):
        if cost := getattr(machine.kernels, name):
            yield Figure("kernels", name, cost, "", source=machine.sources.get("kernels", ""))


def _cluster(machine: Hardware) -> Iterator[Figure]:
    if machine.fabric is None:
        return
    fabric, source = machine.fabric, machine.fabric.source
    yield Figure("cluster", "gpus_per_node", float(fabric.gpus_per_node), "", source=source)
    yield Figure("cluster", "nic", fabric.nic_bytes_per_s, "B/s", source=source)
    yield Figure("cluster", "nic_efficiency", fabric.nic_efficiency, "", source=source)
    yield Figure("cluster", "alpha", fabric.alpha_s, "s", source=source)
    yield Figure("cluster", "oversubscription", fabric.oversubscription, "", source=source)
    if fabric.host_memory_bytes:
        yield Figure("cluster", "host_memory", fabric.host_memory_bytes, "B", source=source)
    if fabric.deviation:
        yield Figure("cluster", "deviation", fabric.deviation, "", source=source)


def _launch(machine: Hardware) -> Iterator[Figure]:
    for key, value in machine.launch.known.items():
        if value:
            yield Figure("launch", key, value, "s", source=machine.launch.source)


def _latency(machine: Hardware) -> Iterator[Figure]:
    """Yield the constants of the latency model. They are fitted, so they are sustained figures only."""
    for name in machine.latency:
        table = fitted_table(name, machine)
        if table is None:
            continue
        units = {constant.name: constant.unit for constant in family(name).table_constants}
        source = ", ".join(part for part in (table.source, table.date) if part)
        for library, values in (("", table.constants), *table.libraries.items()):
            place = f"latency.{name}" + (f".{library}" if library else "")
            for key, value in values.items():
                yield Figure(place, key, None, units[key], value, sustained_source=source)
