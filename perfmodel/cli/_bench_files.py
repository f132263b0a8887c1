"""How the result of `perfmodel bench` leaves the process: formats, files written after every row, bar, plots."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli._common import Format, emit, output_format, status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report

    Rows = Sequence[Mapping[str, Any]]


class BenchFormat(enum.StrEnum):
    """The output formats of `perfmodel bench`: those of every command, and the table of measurements."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    measurements = "measurements"


def bench_format(format_: BenchFormat | None, output: Path | None) -> BenchFormat:
    """Return the format of the result: the one asked for, or what the suffix of its file says.

    Raises
    ------
    UsageError
        When the suffix names no format, or a packed file is asked for in another format than measurements.
    """
    packed = output is not None and output.suffix.lower() == ".gz"
    if packed and format_ in (None, BenchFormat.measurements):
        return BenchFormat.measurements
    if packed:
        raise UsageError(
            f"only measurements are written packed, not {format_}.",
            place=str(output),
            remedy="Leave .gz out, or give --format measurements.",
        )
    if format_ is not None:
        return format_
    return BenchFormat.table if output is None else BenchFormat(output_format(None, output))


def check_resumable(format_: BenchFormat, output: Path | None) -> None:
    """Check that there can be a record to go on with.

    Raises
    ------
    UsageError
        When no JSON file is named.
    """
    if output is None or str(output) == "-" or format_ is not BenchFormat.json:
        raise UsageError(
            "a run goes on with the JSON record that it is to complete.", place="--resume", remedy="Give -o FILE.json."
        )


def write_result(report: Report, format_: BenchFormat, output: Path | None, *, quiet: bool = False) -> None:
    """Print the result, or write it to its file; ``quiet`` says nothing of the file."""
    from perfmodel.files import write_atomic
    from perfmodel.records.measurement_table import measurement_bytes
    from perfmodel.render import json as json_format

    to_file = output is not None and str(output) != "-"
    if format_ is BenchFormat.measurements:
        data = measurement_bytes(report.rows, packed=to_file and str(output).lower().endswith(".gz"))
        write_atomic(output if output is not None and to_file else "-", data)
    elif quiet and output is not None:
        write_atomic(output, json_format.render(report))
    else:
        emit(report, Format(format_), output)
        return
    if to_file and not quiet:
        status(f"wrote {output}")


def keeper(
    output: Path | None,
    format_: BenchFormat,
    make: Callable[[Rows], Report],
    advance: Callable[[Mapping[str, Any]], None],
    before: Rows,
) -> Callable[[list[dict[str, Any]]], None]:
    """Return what is done after each row: the record is written, where one is asked for, and the bar moves."""
    writes = output is not None and str(output) != "-" and format_ in (BenchFormat.json, BenchFormat.measurements)

    def keep(rows: list[dict[str, Any]]) -> None:
        if writes:
            write_result(make([*before, *rows]), format_, output, quiet=True)
        advance(rows[-1])

    return keep


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
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


def draw(machine: Hardware, rows: Rows, path: Path, *, sustained: bool) -> None:
    """Draw the roofline, or the time series of a sustained run."""
    from perfmodel.render.plots.roofline import roofline_plot, save_figure

    if sustained:
        from perfmodel.render.plots.sustain import sustain_plot

        save_figure(sustain_plot(rows), path)
    else:
        save_figure(roofline_plot(machine, rows), path)
    status(f"wrote {path}")
