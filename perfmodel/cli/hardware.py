"""The hardware catalog: list, show, lint and detect machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._common import FormatOption, OutputOption, context, emit, status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.hardware_catalog.detect import CpuDescription
    from perfmodel.hardware_catalog.figures import Figure
    from perfmodel.hardware_catalog.find import DeviceMatch
    from perfmodel.hardware_catalog.nvml import GpuReading

app = typer.Typer(help="Machines: the catalog, one machine, checks of a spec file, and what this machine is.")


@app.callback(invoke_without_command=True)
def hardware_group(ctx: typer.Context, format_: FormatOption = None, output: OutputOption = None) -> None:
    """Machines: list the catalog (also without a command), show one, lint spec files, detect this machine.

    Example: perfmodel hardware list
    """
    if ctx.invoked_subcommand is None:
        emit(_list_report(), format_, output)
    elif format_ or output:
        raise UsageError(
            "--format and --output stand before the command.",
            remedy=f"Write: perfmodel hardware {ctx.invoked_subcommand} ... --format json",
        )


@app.command("list")
def list_(format_: FormatOption = None, output: OutputOption = None) -> None:
    """All machines of the catalog: memory, bandwidth [B/s], dense peaks [FLOP/s] and ridge points [FLOP/B].

    Example: perfmodel hardware list --format json
    """
    emit(_list_report(), format_, output)


@app.command()
def show(
    machine: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="Catalog name, alias, or a spec file.")],
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Every figure of one machine with its source, the datasheet's beside the sustained one.

    Example: perfmodel hardware show a100-sxm4-80gb
    """
    from perfmodel.hardware_catalog import hardware

    emit(_show_report(hardware(machine)), format_, output)


@app.command()
def lint(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Spec files; without one, the whole catalog.")
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Check spec files: arithmetic, dense against sparse, units, known products, sources; exit 1 on an error.

    Example: perfmodel hardware lint my_gpu.toml
    """
    from perfmodel.core.report import Column, Report
    from perfmodel.hardware_catalog.find import spec_files
    from perfmodel.hardware_catalog.lint import lint_file

    paths = list(files) if files else [path for _, path in sorted(spec_files().items())]
    findings = [finding for path in paths for finding in lint_file(path)]
    errors = sum(finding.severity == "error" for finding in findings)
    columns = tuple(Column(key) for key in ("file", "line", "key", "severity", "code", "message"))
    rows = [{column.key: getattr(finding, column.key) for column in columns} for finding in findings]
    said = f"files: {len(paths)}, errors: {errors}, other findings: {len(findings) - errors}"
    emit(Report("hardware lint", columns, rows, context(), notes=(said,)), format_, output)
    if errors:
        raise typer.Exit(1)


@app.command()
def detect(format_: FormatOption = None, output: OutputOption = None) -> None:
    """What this machine is: its GPUs by NVML, its CPU by the operating system, and which spec fits.

    Example: perfmodel hardware detect
    """
    from perfmodel.hardware_catalog.detect import detect_cpu, detect_gpus

    gpus = detect_gpus()
    if not gpus:
        status("no NVIDIA GPU is seen through NVML (package nvidia-ml-py and a driver are needed).")
    emit(_detect_report(gpus, detect_cpu()), format_, output)


def _list_report() -> Report:
    from perfmodel.core.report import Column, Report
    from perfmodel.hardware_catalog import load_all

    columns = (
        Column("name"),
        Column("vendor", shown=False),
        Column("architecture", shown=False),
        Column("memory_capacity_bytes", "memory", "iB", digits=3),
        Column("memory_bandwidth_bytes_per_s", "bandwidth", "B/s"),
        Column("fp32_flop_per_s", "fp32", "FLOP/s"),
        Column("fp16_flop_per_s", "fp16", "FLOP/s"),
        Column("fp16_ridge_point_flop_per_byte", "fp16 ridge", "FLOP/B"),
        Column("peak_flop_per_s", unit="FLOP/s", shown=False),
        Column("ridge_point_flop_per_byte", unit="FLOP/B", shown=False),
    )
    rows = [_list_row(machine) for machine in load_all()]
    notes = ("Dense peaks, of the tensor engine where it has the dtype, otherwise of the vector engine.",)
    return Report("hardware list", columns, rows, context(), notes=notes, title="Hardware catalog")


def _list_row(machine: Hardware) -> dict[str, Any]:
    from perfmodel.core.roofline import ridge_point

    memory = machine.main_memory
    bandwidth = memory.bandwidth_bytes_per_s
    peaks = {dtype: machine.native_peak(dtype).flop_per_s for dtype in machine.dtypes()}
    ridges = {dtype: ridge_point(peak, bandwidth) for dtype, peak in peaks.items()} if bandwidth else {}
    return {
        "name": machine.name,
        "vendor": machine.vendor,
        "architecture": machine.architecture,
        "memory_capacity_bytes": memory.capacity_bytes,
        "memory_bandwidth_bytes_per_s": bandwidth,
        "fp32_flop_per_s": peaks.get("fp32"),
        "fp16_flop_per_s": peaks.get("fp16"),
        "fp16_ridge_point_flop_per_byte": ridges.get("fp16"),
        "peak_flop_per_s": peaks,
        "ridge_point_flop_per_byte": ridges,
    }


def _show_report(machine: Hardware) -> Report:
    from perfmodel.core.report import Column, Report
    from perfmodel.hardware_catalog.figures import figures

    columns = (
        Column("table"),
        Column("key"),
        Column("value", shown=False),
        Column("unit", shown=False),
        Column("sustained", shown=False),
        Column("value_text", "datasheet"),
        Column("sustained_text", "sustained"),
        Column("fraction", unit="fraction"),
        Column("reference", "source"),
        Column("source", shown=False),
        Column("sustained_source", shown=False),
        Column("note", shown=False),
    )
    found = figures(machine)
    sources = list(dict.fromkeys(text for figure in found for text in (figure.source, figure.sustained_source) if text))
    rows = [{**figure.row(), "reference": _reference(figure, sources)} for figure in found]
    said = dict.fromkeys(f"{figure.table} {figure.key}: {figure.note}" for figure in found if figure.note)
    said |= dict.fromkeys(f"{table}: {note}" for table, note in machine.notes.items())
    references = [f"[{number}] {source}" for number, source in enumerate(sources, start=1)]
    names = ", ".join((*machine.aliases, *machine.device_names))
    head = [f"Also known as: {names}."] if names else []
    return Report(
        "hardware show",
        columns,
        rows,
        context(hardware=machine.name, file=machine.path),
        notes=(*head, *references, *said),
        title=f"{machine.title} ({machine.vendor}, {machine.architecture})",
    )


def _reference(figure: Figure, sources: list[str]) -> str:
    """Return the numbers of a figure's sources in the list below the table."""
    numbers = [sources.index(text) + 1 for text in (figure.source, figure.sustained_source) if text]
    return " ".join(f"[{number}]" for number in numbers)


def _detect_report(gpus: tuple[tuple[GpuReading, DeviceMatch | None], ...], cpu: CpuDescription) -> Report:
    from perfmodel.core.report import Column, Report

    columns = (
        Column("device"),
        Column("name"),
        Column("hardware", "spec"),
        Column("matched_by", "by"),
        Column("cores"),
        Column("simd_bits", "SIMD bits"),
        Column("clock_hz", "clock", "Hz"),
        Column("memory_clock_hz", "memory clock", "Hz"),
        Column("memory_bytes", "memory", "iB"),
        Column("l1_bytes", "L1", "iB", shown=False),
        Column("l2_bytes", "L2", "iB"),
        Column("l3_bytes", "L3", "iB"),
        Column("pcie_generation", "PCIe"),
        Column("pcie_width", "lanes"),
        Column("power_limit_w", "power limit", "W"),
        Column("driver"),
    )
    rows = [*(_gpu_row(gpu, match) for gpu, match in gpus), _cpu_row(cpu)]
    notes = [f"cuda:{gpu.index}: {_advice(match)}" for gpu, match in gpus]
    notes.append("cpu: measure its ceilings with: perfmodel calibrate --device cpu")
    return Report("hardware detect", columns, rows, context(), notes=tuple(notes), title="This machine")


def _gpu_row(gpu: GpuReading, match: DeviceMatch | None) -> dict[str, Any]:
    return {
        "device": f"cuda:{gpu.index}",
        "name": gpu.name,
        "hardware": match.hardware.name if match else None,
        "matched_by": match.by if match else None,
        "clock_hz": gpu.sm_clock_hz,
        "memory_clock_hz": gpu.memory_clock_hz,
        "memory_bytes": gpu.memory_bytes,
        "pcie_generation": gpu.pcie_generation,
        "pcie_width": gpu.pcie_width,
        "power_limit_w": gpu.power_limit_w,
        "driver": gpu.driver,
    }


def _advice(match: DeviceMatch | None) -> str:
    if match is None:
        return "no spec fits; write one (`perfmodel hardware show h100` shows the figures) and use --on FILE."
    if match.memory_differs:
        return f"{match.hardware.name} by name, but with another memory size: a partition (MIG, vGPU)?"
    return f"use --on {match.hardware.name}"


def _cpu_row(cpu: CpuDescription) -> dict[str, Any]:
    from perfmodel.hardware_catalog import hardware_names

    return {
        "device": "cpu",
        "name": cpu.model,
        # a file that `calibrate` wrote into a folder of PERFMODEL_HARDWARE
        "hardware": cpu.slug if cpu.slug in hardware_names() else None,
        "matched_by": "name" if cpu.slug in hardware_names() else None,
        "cores": cpu.cores,
        "simd_bits": cpu.simd_bits,
        "clock_hz": cpu.max_clock_hz,
        "memory_bytes": cpu.memory_bytes,
        "l1_bytes": cpu.l1_bytes,
        "l2_bytes": cpu.l2_bytes,
        "l3_bytes": cpu.l3_bytes,
    }
