"""What a calibration found as a table: the datasheet, or a CPU's arithmetic, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.measure.calibration.calibrate import Figures
from perfmodel.measure.calibration.sustained import sustained_links

_COLUMNS = (
    Column("figure"),
    Column("datasheet", shown=False),
    Column("sustained", shown=False),
    Column("unit", shown=False),
    Column("datasheet_text", "datasheet"),
    Column("sustained_text", "sustained"),
    Column("fraction", unit="fraction"),
)


def calibration_report(
    machine: Hardware, sheet: Hardware | None, figures: Figures, context: Mapping[str, Any], heading: str
) -> Report:
    """Return the figures beside the datasheet's.

    Parameters
    ----------
    machine : the machine with the figures.
    sheet : the machine without them: its datasheet, or what arithmetic says of a CPU; None where nothing is known.
    figures : what was measured.
    context : of the report.
    heading : of the column with the sheet's figures.
    """
    rows = [_row(*found) for found in _figures(machine, sheet, figures)]
    columns = [Column(c.key, heading, c.unit, c.shown) if c.key == "datasheet_text" else c for c in _COLUMNS]
    beaten = [
        f"{row['figure']}: {100 * row['fraction']:.0f} % of the {heading}. "
        "Is that figure another product's, or of a lower clock?"
        for row in rows
        if row["fraction"] is not None and row["fraction"] > 1
    ]
    notes = (f"{figures.source}. {figures.method}.", *beaten, *(f"Left out: {reason}." for reason in figures.left_out))
    more = {
        key: table for key, table in (("working_sets", _sets(figures)), ("transfers", _copies(figures))) if table.rows
    }
    return Report("calibrate", tuple(columns), rows, context, notes, machine.title, more)


def _figures(
    machine: Hardware, sheet: Hardware | None, figures: Figures
) -> Iterator[tuple[str, float, float | None, str]]:
    """Yield name, measured figure, the sheet's, and unit."""
    main = machine.main_memory
    bandwidth = sheet.main_memory.bandwidth_bytes_per_s if sheet else None
    for pattern, rate in figures.bandwidth_bytes_per_s.items():
        yield f"{main.name} {pattern}", rate, bandwidth, "B/s"
    yield f"{main.name} fastest sample", figures.fastest_bytes_per_s, None, "B/s"
    for name, rate in figures.levels_bytes_per_s.items():
        level = sheet.level(name) if sheet else None
        yield f"{name} read", rate, level.bandwidth_bytes_per_s if level else None, "B/s"
    for dtype, rate in figures.flop_per_s.items():
        peak = sheet.native_peak(dtype) if sheet and dtype in sheet.dtypes() else None
        engine = machine.native_peak(dtype).engine
        yield f"{dtype} {engine} product", rate, peak.flop_per_s if peak else None, "FLOP/s"
    for dtype, rate in figures.vector_flop_per_s.items():
        peak = sheet.find_peak(dtype, "vector") if sheet else None
        yield f"{dtype} vector multiply-adds", rate, peak.flop_per_s if peak else None, "FLOP/s"
    yield from _costs(sheet, figures)


def _costs(sheet: Hardware | None, figures: Figures) -> Iterator[tuple[str, float, float | None, str]]:
    launch = sheet.launch if sheet else None
    if not figures.empty_kernel_s:
        yield "call overhead", figures.call_overhead_s, launch.overhead_s if launch else None, "s"
    for way, time_s in figures.empty_kernel_s.items():
        known = (launch.floor_s if way == "graph" else launch.overhead_s) if launch else None
        yield f"empty kernel, {way}", time_s, known, "s"
    links = {link.name: link.bandwidth_bytes_per_s for link in sheet.links} if sheet else {}
    rates = sustained_links(figures.transfers)
    for copy in figures.transfers:
        rate = rates[f"{'pcie' if copy.pinned else 'pcie_pageable'}_{copy.direction}"]
        yield f"pcie {copy.name}", rate, links.get("pcie"), "B/s"
        yield f"pcie {copy.name}, latency", copy.latency_s, None, "s"
        yield f"pcie {copy.name}, half of the bandwidth at", copy.half_bandwidth_bytes, None, "B"


def _row(figure: str, sustained: float, datasheet: float | None, unit: str) -> dict[str, Any]:
    return {
        "figure": figure,
        "datasheet": datasheet,
        "sustained": sustained,
        "unit": unit,
        "datasheet_text": format_si(datasheet, unit) if datasheet else "-",
        "sustained_text": format_si(sustained, unit),
        "fraction": sustained / datasheet if datasheet and unit != "s" else None,
    }


def _sets(figures: Figures) -> Report:
    """Return the bandwidth of a CPU by working set."""
    columns = (
        Column("bytes_per_thread", "working set of a thread", "iB"),
        Column("bytes_per_s", "read by all threads", "B/s"),
    )
    rows = [{"bytes_per_thread": s.bytes_per_thread, "bytes_per_s": s.bytes_per_s} for s in figures.working_sets]
    return Report("working sets", columns, rows, title="Bandwidth by working set")


def _copies(figures: Figures) -> Report:
    """Return the copies between host and GPU by size, one column for each way."""
    columns = (Column("bytes", "size", "iB"), *(Column(copy.name, unit="B/s") for copy in figures.transfers))
    sizes = figures.transfers[0].sizes_bytes if figures.transfers else ()
    rows = [
        {"bytes": size, **{copy.name: copy.rates_bytes_per_s[index] for copy in figures.transfers}}
        for index, size in enumerate(sizes)
    ]
    return Report("transfers", columns, rows, title="Copies over PCIe by size")
