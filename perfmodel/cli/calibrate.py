"""Measured ceilings of this machine, as a specification file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._common import ComparedOnOption, FormatOption, check_destination, context, emit, status
from perfmodel.cli._device import DeviceOption, ThreadsOption, base_machine, measured_machine, warn_if_busy
from perfmodel.errors import UnavailableError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.measure.calibrate import Figures

#: dtypes of the matrix products that a calibration measures, by kind of device
_DTYPES = {"cpu": ("fp32", "fp64", "bf16", "fp16"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")}


def command(
    device: DeviceOption = None,
    on: ComparedOnOption = None,
    threads: ThreadsOption = None,
    format_: FormatOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="SPEC.toml", help="Write the machine's specification to this file."),
    ] = None,
) -> None:
    """Measure what this machine sustains: memory bandwidth, matrix products, the cost of a call; under 20 s.

    The file that -o names is a specification that --on takes. Without -o the figures are only printed.

    Example: perfmodel calibrate --device cpu -o cpu.toml
    """
    from perfmodel.hardware_catalog.write import write_spec
    from perfmodel.kernels.device import open_device
    from perfmodel.measure.calibrate import THOROUGH

    if output is not None:
        check_destination(output, ".toml")
    opened = open_device(device, threads=threads)
    base = base_machine(opened, on)
    warn_if_busy()
    machine, figures = measured_machine(opened, base, _DTYPES[opened.kind], THOROUGH)
    emit(_report(machine, base, figures), format_)
    if output is not None:
        write_spec(machine, output)
        status(f"wrote {output}; use it with --on {output}")


def _report(machine: Hardware, base: Hardware | None, figures: Figures) -> Report:
    """Return the datasheet, or the CPU's arithmetic, beside what was measured."""
    from perfmodel.core.report import Column, Report

    sheet = base or _arithmetic()
    main = machine.main_memory
    bandwidth = sheet.main_memory.bandwidth_bytes_per_s if sheet else None
    rows = [
        _row(f"{main.name} {pattern}", rate, bandwidth, "B/s")
        for pattern, rate in figures.bandwidth_bytes_per_s.items()
    ]
    rows.append(_row(f"{main.name} fastest sample", figures.fastest_bytes_per_s, bandwidth, "B/s"))
    for dtype, rate in figures.flop_per_s.items():
        peak = sheet.native_peak(dtype) if sheet and dtype in sheet.dtypes() else None
        engine = machine.native_peak(dtype).engine
        rows.append(_row(f"{dtype} {engine} product", rate, peak.flop_per_s if peak else None, "FLOP/s"))
    overhead = sheet.launch.overhead_s if sheet else None
    rows.append(_row("call overhead", figures.call_overhead_s, overhead, "s"))
    columns = (
        Column("figure"),
        Column("datasheet", shown=False),
        Column("sustained", shown=False),
        Column("unit", shown=False),
        Column("datasheet_text", "datasheet" if base else "arithmetic"),
        Column("sustained_text", "sustained"),
        Column("fraction", unit="fraction"),
    )
    return Report(
        "calibrate",
        columns,
        rows,
        context(hardware=[machine.name]),
        (f"{figures.source}. {figures.method}.",),
        machine.title,
    )


def _arithmetic() -> Hardware | None:
    """Return this CPU with what arithmetic alone says of it, or None where its clock is not known."""
    from perfmodel.hardware_catalog.detect import cpu_hardware, detect_cpu

    try:
        return cpu_hardware(detect_cpu())
    except UnavailableError:
        return None


def _row(figure: str, sustained: float, datasheet: float | None, unit: str) -> dict[str, Any]:
    from perfmodel.core.units import format_si

    return {
        "figure": figure,
        "datasheet": datasheet,
        "sustained": sustained,
        "unit": unit,
        "datasheet_text": format_si(datasheet, unit) if datasheet else "-",
        "sustained_text": format_si(sustained, unit),
        "fraction": sustained / datasheet if datasheet and unit != "s" else None,
    }
