"""Reports of the hardware catalog: the list of machines, one machine, the linter's findings, this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_binary, format_si
from perfmodel.hardware_catalog.amd import AMD_SOURCES
from perfmodel.hardware_catalog.detect import CpuDescription, Detection
from perfmodel.hardware_catalog.figures import Figure, MachineFigures
from perfmodel.hardware_catalog.find import Catalog, suggestion
from perfmodel.hardware_catalog.gpu_reading import GpuReading
from perfmodel.hardware_catalog.lint import CODES, LintResult
from perfmodel.hardware_catalog.match import DeviceMatch
from perfmodel.hardware_catalog.spec_folders import hardware_names

_NO_CONTEXT: Mapping[str, Any] = MappingProxyType({})

_CATALOG_COLUMNS = (
    Column("name"),
    Column("vendor", shown=False),
    Column("architecture", shown=False),
    Column("memory_capacity_bytes", "memory", "iB", digits=3),
    Column("memory_bandwidth_bytes_per_s", "bandwidth", "B/s", digits=3),
    Column("fp32_flop_per_s", "fp32", "FLOP/s", digits=3, drop=1),
    Column("fp16_flop_per_s", "fp16", "FLOP/s", digits=3),
    Column("fp16_ridge_point_flop_per_byte", "fp16 ridge", "FLOP/B", digits=2, drop=2),
    Column("peak_flop_per_s", "peaks", "FLOP/s", shown=False),
    Column("ridge_point_flop_per_byte", "ridge points", "FLOP/B", shown=False),
)
_LINT_COLUMNS = (*map(Column, ("file", "line", "key", "severity", "code")), Column("message", prose=True))
#: tables of the latency model's constants
_FITTED = "latency."
_DETECT_COLUMNS = (
    Column("device"),
    Column("name"),
    Column("hardware", "spec"),
    Column("matched_by", "matched by"),
    Column("compute_capability", "compute capability"),
    Column("sm_count", "SMs"),
    Column("cores"),
    Column("simd_bits", "SIMD bits"),
    Column("clock_hz", "clock", "Hz"),
    Column("memory_clock_hz", "memory clock", "Hz"),
    Column("memory_bytes", "memory", "iB"),
    Column("memory_bandwidth_bytes_per_s", "memory bandwidth", "B/s"),
    Column("ecc", "ECC"),
    Column("l1_bytes", "L1", "iB", shown=False),
    Column("l2_bytes", "L2", "iB"),
    Column("l3_bytes", "L3", "iB"),
    Column("pcie_generation", "PCIe"),
    Column("pcie_width", "lanes"),
    Column("power_limit_w", "power limit", "W"),
    Column("driver"),
    Column("source", shown=False),
)


@report.register
def _(catalog: Catalog, *, context: Mapping[str, Any] = _NO_CONTEXT) -> Report:
    """Return one row for each machine: memory, dense peaks, ridge points."""
    rows = [_catalog_row(machine) for machine in catalog.machines]
    notes = ("Dense peaks: of the tensor engine where it supports the dtype, otherwise of the vector engine.",)
    return Report("hardware list", _CATALOG_COLUMNS, rows, context, notes=notes, title="Hardware catalog")


def _catalog_row(machine: Hardware) -> dict[str, Any]:
    peaks, ridges = machine.peak_flop_per_s, machine.ridge_point_flop_per_byte
    return {
        "name": machine.name,
        "vendor": machine.vendor,
        "architecture": machine.architecture,
        "memory_capacity_bytes": machine.memory_capacity_bytes,
        "memory_bandwidth_bytes_per_s": machine.memory_bandwidth_bytes_per_s,
        "fp32_flop_per_s": peaks.get("fp32"),
        "fp16_flop_per_s": peaks.get("fp16"),
        "fp16_ridge_point_flop_per_byte": ridges.get("fp16"),
        "peak_flop_per_s": peaks,
        "ridge_point_flop_per_byte": ridges,
    }


@report.register
def _(result: MachineFigures, *, context: Mapping[str, Any] = _NO_CONTEXT) -> Report:
    """Return one row for each figure, and the sources as a numbered list below the table.

    People see what the machine has. The hundreds of constants of the latency model, most of them without a unit, mean
    something only beside its formulas.
    """
    machine, figures = result.machine, result.figures
    shown = [item for item in figures if not item.table.startswith(_FITTED)]
    rows = [_figure_row(figure) for figure in figures]
    numbers = _numbers(rows)
    names = ", ".join((*machine.aliases, *machine.device_names))
    notes = (
        *([f"Also known as: {names}."] if names else []),
        *(f"{key}: {fact}." for key, fact in result.facts.items()),
        *(f"{number} {source}" for source, number in numbers.items()),
        *dict.fromkeys(f"{item.table} {item.key}: {item.note}" for item in shown if item.note),
        *dict.fromkeys(f"{table}: {note}" for table, note in machine.notes.items()),
    )
    table = Report(
        "hardware show",
        _figure_columns(numbers),
        rows,
        {**context, "hardware": machine.name, "file": machine.path},
        notes=notes,
        title=f"{machine.title} ({machine.vendor}, {machine.architecture})",
    )
    return _without_fitted(table)


def _without_fitted(table: Report) -> Report:
    """Return the figures of a machine of which people see those that are not constants of the latency model."""
    shown = [row for row in table.rows if not row["table"].startswith(_FITTED)]
    fitted = len(table.rows) - len(shown)
    if not fitted:
        return table
    unlisted = f"{fitted} constants that measurements set: JSON and CSV have them, each with its source."
    return replace(table, people_rows=shown, unlisted=unlisted)


def _figure_columns(numbers: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of figures whose sources have some numbers."""
    return (
        Column("table", merge=True),
        Column("key"),
        Column("value", "datasheet", show_row=lambda row: _quantity(row["value"], row["unit"])),
        Column("unit", shown=False),
        Column("sustained", show_row=lambda row: _quantity(row["sustained"], row["unit"])),
        Column("fraction", unit="fraction", drop=1),
        Column("source", show_row=lambda row: _references(row, numbers)),
        Column("sustained_source", shown=False),
        Column("note", shown=False),
    )


def _numbers(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the sources of figures, and their numbers in the list below the table."""
    shown = [row for row in rows if not row["table"].startswith(_FITTED)]
    sources = dict.fromkeys(text for row in shown for text in (row["source"], row["sustained_source"]) if text)
    return {source: f"[{number}]" for number, source in enumerate(sources, start=1)}


def saved(table: Report) -> Report:
    """Return machines, one, or findings that were read from JSON as the commands of `hardware` show them."""
    if table.command == "hardware show":
        return _without_fitted(with_columns(table, _figure_columns(_numbers(table.rows))))
    if table.command == "hardware lint":
        return with_columns(table, _LINT_COLUMNS, nothing="(no findings)")
    return with_columns(table, _CATALOG_COLUMNS if table.command == "hardware list" else _DETECT_COLUMNS)


def _figure_row(figure: Figure) -> dict[str, Any]:
    return {**asdict(figure), "fraction": figure.fraction}


def _quantity(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return format_binary(value) if unit == "B" else format_si(value, unit)


def _references(row: Mapping[str, Any], numbers: Mapping[str, str]) -> str:
    """Return the numbers of a row's sources in the list below the table."""
    return " ".join(numbers[row[key]] for key in ("source", "sustained_source") if row[key])


@report.register
def _(result: LintResult, *, context: Mapping[str, Any] = _NO_CONTEXT) -> Report:
    """Return one row for each finding."""
    rows = [asdict(finding) for finding in result.findings]
    other = len(result.findings) - result.num_errors
    note = f"files: {len(result.files)}, errors: {result.num_errors}, other findings: {other}"
    file = storage.name_of(result.files[0]) if len(result.files) == 1 else f"{len(result.files)} files"
    nothing = (
        f"Nothing found in {file}: checked for {len(CODES)} kinds of mistakes, in the form of the file, peaks, chip, "
        "memory, links, launch and sustained figures."
    )
    return Report("hardware lint", _LINT_COLUMNS, rows, context, notes=(note,), nothing=nothing)


@report.register
def _(detection: Detection, *, context: Mapping[str, Any] = _NO_CONTEXT) -> Report:
    """Return one row for each device of this machine."""
    rows = [*(_gpu_row(gpu, match) for gpu, match in detection.gpus), _cpu_row(detection.cpu)]
    notes = (
        *(f"{_device(gpu)}: {_advice(gpu, match)}" for gpu, match in detection.gpus),
        "cpu: measure its ceilings with: perfmodel calibrate --device cpu",
    )
    return Report("hardware detect", _DETECT_COLUMNS, rows, context, notes=notes, title="This machine")


def _gpu_row(gpu: GpuReading, match: DeviceMatch | None) -> dict[str, Any]:
    return {
        "device": _device(gpu),
        "name": gpu.name or None,
        "hardware": match.hardware.name if match else None,
        "matched_by": match.by if match else None,
        "clock_hz": gpu.sm_clock_hz,
        "compute_capability": gpu.compute_capability or None,
        "sm_count": gpu.sm_count,
        "memory_clock_hz": gpu.memory_clock_hz,
        "memory_bytes": gpu.memory_bytes,
        "memory_bandwidth_bytes_per_s": gpu.memory_bandwidth_bytes_per_s,
        "ecc": gpu.ecc,
        "l2_bytes": gpu.l2_bytes,
        "pcie_generation": gpu.pcie_generation,
        "pcie_width": gpu.pcie_width,
        "power_limit_w": gpu.power_limit_w,
        "driver": gpu.driver or None,
        "source": gpu.source,
    }


def _device(gpu: GpuReading) -> str:
    """Return the name of a GPU here: torch's, also for AMD's, or its number in a list that counts in its own order."""
    return f"{'gpu' if gpu.source in AMD_SOURCES else 'cuda'}:{gpu.index}"


def _advice(gpu: GpuReading, match: DeviceMatch | None) -> str:
    if match is None:
        advice = suggestion(gpu.name)
        return f"no spec has this name. {advice}{'. ' if advice else ''}" + (
            "Write one, starting from that of a similar machine "
            "(perfmodel hardware show h100 --format toml -o FILE), and pass --on FILE."
        )
    if match.memory_differs:
        return f"the name is that of {match.hardware.name}, the memory size is not: a partition (MIG, vGPU)?"
    return f"pass --on {match.hardware.name}"


def _cpu_row(cpu: CpuDescription) -> dict[str, Any]:
    # `calibrate` may have written a file of this name into a folder of PERFMODEL_HARDWARE.
    in_catalog = cpu.slug in hardware_names()
    return {
        "device": "cpu",
        "name": cpu.model,
        "hardware": cpu.slug if in_catalog else None,
        "matched_by": "name" if in_catalog else None,
        "cores": cpu.cores,
        "simd_bits": cpu.simd_bits,
        "clock_hz": cpu.max_clock_hz,
        "memory_bytes": cpu.memory_bytes,
        "l1_bytes": cpu.l1_bytes,
        "l2_bytes": cpu.l2_bytes,
        "l3_bytes": cpu.l3_bytes,
    }
