"""Reports of the results of measurements: a calibrated machine, and the health of a device."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.measure.algorithms import Contests
from perfmodel.measure.algorithms_report import contests_report
from perfmodel.measure.calibration.calibrate import Figures
from perfmodel.measure.calibration.sustained import CalibratedMachine, sustained_links
from perfmodel.measure.collectives.links import LinkCalibration
from perfmodel.measure.health.verdict import DeviceHealth, Verdict
from perfmodel.measure.machine_facts import now_utc
from perfmodel.measure.monitor.record import Recorded
from perfmodel.measure.monitor.report import READING_COLUMNS, monitor_report
from perfmodel.measure.monitor.session import Monitor
from perfmodel.prediction.topology import NETWORK_LINK


def _quantity(row: Mapping[str, Any], key: str) -> str:
    """Return a value of a row for people, in the unit that the row names."""
    return Column(key, unit=row["unit"]).text(row[key])


report.register(Contests)(contests_report)


@report.register
def _(recorded: Recorded, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return what a monitor recorded, one row for each metric."""
    readings = monitor_report(recorded.series, recorded.findings, context=context)
    return dataclasses.replace(readings, title=f"Readings of {storage.name_of(recorded.place)}")


@report.register
def _(watched: Monitor, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return what a monitor has seen so far, one row for each metric."""
    return monitor_report(watched.session.series, watched.findings, context=context)


# --- a calibrated machine

_LINK_COLUMNS = (
    Column("collective"),
    Column("alpha_s", "step", "s"),
    Column("beta_bytes_per_s", "bandwidth", "B/s"),
    Column("fastest_bytes_per_s", "fastest message", "B/s", drop=1),
    Column("error", "fit error", "fraction"),
    Column("left_out", "left out", "fraction"),
)


def _figure_columns(reference: str) -> tuple[Column, ...]:
    """Return the columns of sustained figures beside those of some reference."""
    return (
        Column("figure"),
        Column("datasheet", reference, show_row=lambda row: _quantity(row, "datasheet")),
        Column("sustained", show_row=lambda row: _quantity(row, "sustained")),
        Column("unit", shown=False),
        Column("fraction", unit="fraction"),
    )


@report.register
def _(calibrated: CalibratedMachine, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the figures of a calibration beside those of the datasheet, or of a CPU's arithmetic."""
    figures, reference = calibrated.figures, calibrated.reference_name
    rows = [_figure_row(*figure) for figure in _figures(calibrated.machine, calibrated.reference, figures)]
    above = [
        f"{row['figure']}: {100 * row['fraction']:.0f} % of the {reference}. "
        "Is that figure another product's, or of a lower clock?"
        for row in rows
        if row["fraction"] is not None and row["fraction"] > 1
    ]
    notes = (
        f"{figures.source}. {figures.method}.",
        *above,
        *(f"Left out: {reason}." for reason in figures.left_out),
        *(f"Warning: {doubt}." for doubt in [". ".join(figures.doubts)] if doubt),
    )
    tables = {"working_sets": _working_sets(figures), "transfers": _transfers(figures)}
    more = {key: table for key, table in tables.items() if table.rows}
    columns = _figure_columns(reference)
    return Report("calibrate", columns, rows, context or {}, notes, calibrated.machine.title, more)


@report.register
def _(calibration: LinkCalibration, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return latency and bandwidth of the link: of all collectives together, and of each."""
    rows = [
        {"collective": name, **dataclasses.asdict(fit)}
        for name, fit in {"all": calibration.together, **calibration.parts}.items()
    ]
    of_line = (
        "t = alpha steps + V / beta: alpha is the latency of a step of the ring, beta the bandwidth of a rank, "
        "and V the bytes that it sends."
    )
    of_network = "A step between nodes, and the rate of a GPU's network; what a node itself takes is as it was."
    notes = (
        f"{of_network if calibration.link == NETWORK_LINK else of_line} The last column is "
        "half of the 80 % interval of ln(measured / predicted) of sizes that were left out of the fit.",
        f"Link {calibration.link}: {calibration.source}.",
        *_rough_note(calibration),
    )
    title = f"Link between {calibration.num_gpus} ranks of {calibration.machine.title}"
    return Report("calibrate", _LINK_COLUMNS, rows, context or {}, notes, title)


def _rough_note(calibration: LinkCalibration) -> tuple[str, ...]:
    """Return a sentence about lines that say little, and none where each fits its messages."""
    if not calibration.rough:
        return ()
    worst = max(calibration.parts[name].error for name in calibration.rough)
    return (
        f"Warning: up to {100 * worst:.0f} % off their messages are the lines of {', '.join(calibration.rough)}, as on "
        "a busy machine. Measure again when nothing else runs.",
    )


def _figures(
    machine: Hardware, reference: Hardware | None, figures: Figures
) -> Iterator[tuple[str, float, float | None, str]]:
    """Yield name, measured figure, the reference's, and unit."""
    main = machine.main_memory
    bandwidth = reference.main_memory.bandwidth_bytes_per_s if reference else None
    for pattern, rate in figures.bandwidth_bytes_per_s.items():
        yield f"{main.name} {pattern}", rate, bandwidth, "B/s"
    yield f"{main.name} fastest sample", figures.fastest_bytes_per_s, None, "B/s"
    for name, rate in figures.levels_bytes_per_s.items():
        level = reference.level(name) if reference else None
        yield f"{name} read", rate, level.bandwidth_bytes_per_s if level else None, "B/s"
    for dtype, rate in figures.flop_per_s.items():
        peak = reference.native_peak(dtype) if reference and dtype in reference.dtypes() else None
        engine = machine.native_peak(dtype).engine
        yield f"{dtype} {engine} product", rate, peak.flop_per_s if peak else None, "FLOP/s"
    for dtype, rate in figures.vector_flop_per_s.items():
        peak = reference.find_peak(dtype, "vector") if reference else None
        yield f"{dtype} vector multiply-adds", rate, peak.flop_per_s if peak else None, "FLOP/s"
    yield from _costs(reference, figures)


def _costs(reference: Hardware | None, figures: Figures) -> Iterator[tuple[str, float, float | None, str]]:
    launch = reference.launch if reference else None
    if not figures.empty_kernel_s:
        yield "call overhead", figures.call_overhead_s, launch.overhead_s if launch else None, "s"
    for way, time_s in figures.empty_kernel_s.items():
        known = (launch.floor_s if way == "graph" else launch.overhead_s) if launch else None
        yield f"empty kernel, {way}", time_s, known, "s"
    links = {link.name: link.bandwidth_bytes_per_s for link in reference.links} if reference else {}
    rates = sustained_links(figures.transfers)
    for copy in figures.transfers:
        rate = rates[f"{'pcie' if copy.pinned else 'pcie_pageable'}_{copy.direction}"]
        yield f"pcie {copy.name}", rate, links.get("pcie"), "B/s"
        yield f"pcie {copy.name}, latency", copy.latency_s, None, "s"
        yield f"pcie {copy.name}, half of the bandwidth at", copy.half_bandwidth_bytes, None, "B"


def _figure_row(figure: str, sustained: float, datasheet: float | None, unit: str) -> dict[str, Any]:
    return {
        "figure": figure,
        "datasheet": datasheet,
        "sustained": sustained,
        "unit": unit,
        "fraction": sustained / datasheet if datasheet and unit != "s" else None,
    }


def _working_sets(figures: Figures) -> Report:
    """Return the bandwidth of a CPU by working set."""
    columns = (
        Column("bytes_per_thread", "working set of a thread", "iB"),
        Column("bytes_per_s", "read by all threads", "B/s"),
    )
    rows = [{"bytes_per_thread": s.bytes_per_thread, "bytes_per_s": s.bytes_per_s} for s in figures.working_sets]
    return Report("working sets", columns, rows, title="Bandwidth by working set")


def _transfers(figures: Figures) -> Report:
    """Return the copies between host and GPU by size, one column for each direction and kind of memory."""
    columns = (Column("bytes", "size", "iB"), *(Column(copy.name, unit="B/s") for copy in figures.transfers))
    sizes = figures.transfers[0].sizes_bytes if figures.transfers else ()
    rows = [
        {"bytes": size, **{copy.name: copy.rates_bytes_per_s[index] for copy in figures.transfers}}
        for index, size in enumerate(sizes)
    ]
    return Report("transfers", columns, rows, title="Copies over PCIe by size")


# --- the health of a device


@report.register
def _(health: DeviceHealth, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the verdict on each figure of a device, with the range that was expected and the likely cause."""
    rows = [
        {
            "area": check.area,
            "figure": check.figure,
            "verdict": str(check.verdict),
            "measured": check.measured,
            "expected_low": check.low,
            "expected_high": check.high,
            "unit": check.unit,
            "source": check.source,
            "cause": check.cause,
        }
        for check in health.checks
    ]
    machine = health.machine
    facts = {
        **(context or {}),
        "hardware": [machine.name] if machine else [],
        "date": now_utc(),
        "device": {"kind": health.kind, "name": health.device, **health.readings.facts},
    }
    title = f"Health of {machine.title if machine else health.device}"
    return Report("bench --check", _CHECK_COLUMNS, rows, facts, tuple(_health_notes(health)), title)


def _expected(row: Mapping[str, Any]) -> str:
    """Return the expected range for people: "4.1 TB/s to 4.9 TB/s", "at least 665 W", "16"."""
    low, high = row["expected_low"], row["expected_high"]
    if low is None:
        return "-"
    if high is None:
        return f"at least {_quantity(row, 'expected_low')}" if low else "0"
    if low == high:
        return _quantity(row, "expected_low")
    return f"{_quantity(row, 'expected_low')} to {_quantity(row, 'expected_high')}"


_CHECK_COLUMNS = (
    Column("area"),
    Column("figure"),
    Column("verdict"),
    Column("measured", show_row=lambda row: _quantity(row, "measured")),
    Column("expected_low", "expected", show_row=_expected),
    Column("cause", "likely cause", prose=True),
    Column("expected_high", shown=False),
    Column("unit", shown=False),
    Column("source", "source of the range", shown=False),
)


def saved(table: Report) -> Report:
    """Return a calibration, a health check or readings that were read from JSON as their command shows them."""
    if table.command == "monitor":
        return with_columns(table, READING_COLUMNS)
    if table.command == "bench --check":
        return with_columns(table, _CHECK_COLUMNS)
    links = any("collective" in row for row in table.rows)
    return with_columns(table, _LINK_COLUMNS if links else _figure_columns("datasheet"))


def _health_notes(health: DeviceHealth) -> Iterator[str]:
    counts = Counter(check.verdict for check in health.checks)
    yield ", ".join(f"{verdict}: {counts[verdict]}" for verdict in Verdict) + "."
    figures: dict[str, list[str]] = {}
    for check in health.checks:
        if check.source:
            figures.setdefault(check.source, []).append(check.figure)
    yield from (f"Range of {', '.join(names)}: {source}." for source, names in figures.items())
