"""Reference kernels, run and compared with bound and prediction."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._common import (
    ComparedOnOption,
    FormatOption,
    OutputOption,
    PlotOption,
    check_destination,
    context,
    emit,
    output_format,
    status,
)
from perfmodel.cli._device import DeviceOption, ThreadsOption, base_machine, measured_machine, warn_if_busy
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.kernels.device import Device
    from perfmodel.operators import Operator

#: time limit of one kernel for operators that are given by name [s]
_TIME_LIMIT_S = 5.0


def command(
    ops: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPS",
            help="Operators inline or files of them, as in analyze; without any, a preset.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = None,
    on: ComparedOnOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="quick|full", help="A ready set of operators; default, without OPS: quick."),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="NAME",
            help="Only kernels of this name (naive, torch.*); may be repeated.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        str,
        typer.Option("--cache", metavar="flushed|warm", help="State of the caches before each sample."),
    ] = "flushed",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random inputs.")] = 0,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help="Longest time to sample one kernel [s]; default: the preset's, or 5.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    plot: PlotOption = None,
) -> None:
    """Run reference kernels and compare the measured time with bound and prediction.

    Each kernel is checked against float64, then timed until the mean is known to 1 %. With -o the record is
    written after every row. Ctrl-C keeps what was measured.

    Example: perfmodel bench gemm m=256..1024 n=512 k=512 layer_norm rows=4096 cols=1024 --device cpu -o record.json
    """
    from perfmodel.kernels.device import open_device
    from perfmodel.measure.runner import Settings, collect, plan, run, with_time_limit
    from perfmodel.measure.stopping import StandardErrorRule
    from perfmodel.measure.telemetry import open_telemetry

    if output is not None:
        check_destination(output)
        output_format(format_, output)
    if plot is not None:
        check_destination(plot, ".png", ".svg", ".pdf")
    opened = open_device(device, threads=threads)
    operators, preset_limit = _operators(ops, preset, opened)
    rule = with_time_limit(StandardErrorRule(), preset_limit if time_limit is None else time_limit)
    settings = Settings(cache=cache, seed=seed, rule=rule)
    warning = warn_if_busy()
    machine = _machine(opened, on, operators)
    if not ops:
        operators = _runnable(operators, machine)
    jobs = plan(operators, machine, kernel or (), settings.cache)
    telemetry = open_telemetry(opened)
    facts = _context(opened, machine, telemetry, settings)
    make = _report_maker(machine, facts, warning)
    with _progress(len(jobs)) as advance:
        rows, interrupted = collect(
            run(jobs, opened, machine, settings, telemetry), _keeper(output, format_, make, advance)
        )
    emit(make(rows), format_, output)
    if plot and not interrupted:
        _draw(machine, rows, plot)
    if interrupted:
        status(f"interrupted: {len(rows)} of {len(jobs)} rows were measured and are kept")
        raise KeyboardInterrupt


def _operators(ops: list[str] | None, preset: str | None, device: Device) -> tuple[list[Operator], float]:
    """Return what to run, and the time limit of one kernel that goes with it [s]."""
    from perfmodel.measure import presets
    from perfmodel.operators._parse import parse_operators

    if ops and preset:
        raise UsageError("operators and a preset are both given.", remedy="Leave one of them out.")
    if ops:
        return parse_operators(ops), _TIME_LIMIT_S
    chosen = presets.preset(preset or "quick", device.kind)
    return parse_operators(chosen.tokens(device.cache_bytes)), chosen.time_limit_s


def _machine(device: Device, on: Sequence[str] | None, operators: Sequence[Operator]) -> Hardware:
    """Return the machine to compare with: by --on, by the GPU's name, or this CPU, calibrated now."""
    from perfmodel.measure.calibrate import QUICK

    base = base_machine(device, on)
    if base is not None:
        if (base.kind == "cpu") != (device.kind == "cpu"):
            status(f"warning: the kernels run on {device.kind}, and are compared with {base.title}")
        return base
    status("no --on is given: calibrating this CPU first, a few seconds")
    dtypes = ["fp32", *(op.dtype for op in operators if op.preferred_engine == "tensor")]
    return measured_machine(device, None, dtypes, QUICK)[0]


def _runnable(operators: list[Operator], machine: Hardware) -> list[Operator]:
    """Leave out the operators of a preset whose dtype the machine lacks, and say so."""
    from perfmodel.measure.runner import split_by_peak

    kept, reasons = split_by_peak(operators, machine)
    for reason in reasons:
        status(f"left out of the preset: {reason}")
    return kept


def _context(device: Device, machine: Hardware, telemetry: Any, settings: Any) -> Mapping[str, Any]:
    """Return the context of the record, with the whole specification that was compared with."""
    import tomllib

    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.hardware_catalog.write import spec_text
    from perfmodel.measure.machine import machine_facts

    facts = machine_facts(device, telemetry)
    facts["machine"]["cpu"] = detect_cpu().model
    if device.kind == "cpu":
        facts["device"]["name"] = facts["machine"]["cpu"]
    return context(
        hardware=[machine.name],
        **facts,
        cache=settings.cache,
        seed=settings.seed,
        time_limit_s=settings.rule.time_limit_s,
        spec=tomllib.loads(spec_text(machine)),
    )


def _report_maker(
    machine: Hardware, facts: Mapping[str, Any], warning: str
) -> Callable[[Sequence[Mapping[str, Any]]], Report]:
    """Return a function that makes the report of some rows."""
    from perfmodel.core.report import Report
    from perfmodel.measure.findings import findings
    from perfmodel.measure.rows import bench_columns

    title = f"Measured on {facts['device']['name']}, compared with {machine.title}"
    columns = bench_columns()
    warnings = (warning,) if warning else ()
    return lambda rows: Report("bench", columns, list(rows), facts, (*warnings, *findings(rows)), title)


def _keeper(
    output: Path | None,
    format_: Any,
    make: Callable[[Sequence[Mapping[str, Any]]], Report],
    advance: Callable[[Mapping[str, Any]], None],
) -> Callable[[list[dict[str, Any]]], None]:
    """Return what is done after each row: the record is written, where one is asked for, and the bar moves."""
    from perfmodel.files import write_atomic
    from perfmodel.render import json_format

    writes = output is not None and str(output) != "-" and output_format(format_, output) == "json"

    def keep(rows: list[dict[str, Any]]) -> None:
        if writes and output is not None:
            write_atomic(output, json_format.render(make(rows)))
        advance(rows[-1])

    return keep


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a progress bar on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda row: bar.update(task, advance=1, description=f"{row['name']} {row['kernel'] or ''}")


def _draw(machine: Hardware, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    from perfmodel.render.roofline_plot import roofline_plot, save_figure

    save_figure(roofline_plot(machine, rows), path)
    status(f"wrote {path}")
