"""Measured ceilings of this machine, as a specification file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._common import ComparedOnOption, FormatOption, context, emit, status
from perfmodel.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.kernels.device import Device
    from perfmodel.measure.calibrate import Effort, Figures

#: dtypes of the matrix products that a calibration measures, by kind of device
_DTYPES = {"cpu": ("fp32", "fp64", "bf16", "fp16"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")}

DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda", help="Where to run; default: the GPU if there is one, else the CPU."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="CPU threads; default: torch's choice, one a core.")
]


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


def warn_if_busy() -> str:
    """Say on stderr that other processes disturb the measurement, where they do; return what was said."""
    from perfmodel.measure.machine import disturbance

    warning = disturbance()
    if warning:
        status(f"warning: {warning}")
    return warning


def base_machine(device: Device, on: Sequence[str] | None) -> Hardware | None:
    """Return the machine with datasheet figures that a device is: by ``--on``, else by its name; None for a CPU.

    Raises
    ------
    UsageError
        When several machines are named, or the catalog has none of the GPU's name.
    """
    from perfmodel.hardware_catalog import hardware

    if on and len(on) > 1:
        raise UsageError("one machine is measured at a time.", place="--on", remedy="Give --on once.")
    if on:
        return hardware(on[0])
    if device.kind == "cpu":
        return None
    try:
        return hardware(device.name)
    except UsageError:
        raise UsageError(
            f"the catalog has no machine that calls itself {device.name!r}.",
            remedy="Name the one that it is with --on, or write a specification file and give that.",
        ) from None


def measured_machine(
    device: Device, base: Hardware | None, dtypes: Sequence[str], effort: Effort
) -> tuple[Hardware, Figures]:
    """Return a machine with ceilings measured now; without a base, this CPU as the system describes it."""
    from perfmodel.hardware_catalog.detect import cpu_hardware, detect_cpu
    from perfmodel.measure.calibrate import calibrate, with_figures

    if base is not None:
        dtypes = [dtype for dtype in dtypes if dtype in base.dtypes()]
    figures = calibrate(device, dtypes, effort, lambda message: status(f"calibrating: {message}"))
    if base is not None:
        measured = base.kind == "cpu"
        return with_figures(base, figures, memory_is_measured=measured), figures
    base = cpu_hardware(
        detect_cpu(),
        bandwidth_bytes_per_s=figures.fastest_bytes_per_s,
        sustained_flop_per_s=figures.flop_per_s,
        launch_overhead_s=figures.call_overhead_s,
        source=figures.source,
    )
    return with_figures(base, figures, memory_is_measured=True), figures


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
        peak = sheet.best_peak(dtype) if sheet and dtype in sheet.dtypes() else None
        engine = machine.best_peak(dtype).engine
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


def check_destination(path: Path, *suffixes: str) -> None:
    """Check before a long measurement that its result can be written.

    Raises
    ------
    UsageError
        When the suffix is not one of ``suffixes`` (if any are given), the folder does not exist, or the path is
        a folder itself.
    """
    if suffixes and path.suffix.lower() not in suffixes and str(path) != "-":
        raise UsageError(
            f"the suffix {path.suffix!r} is not known.", place=str(path), remedy=f"Use {', '.join(suffixes)}."
        )
    if path.is_dir():
        raise UsageError("is a directory.", place=str(path), remedy="Name a file in it.")
    if not path.parent.is_dir():
        raise UsageError("its folder does not exist.", place=str(path), remedy=f"Make {path.parent} first.")
