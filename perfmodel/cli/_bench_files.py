"""The files of `perfmodel bench`: the record, written after every row, the progress bar, and plots."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.cli._output import Destination, save_plot
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware

    Rows = Sequence[Mapping[str, Any]]


@contextlib.contextmanager
def claimed(destination: Destination, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """Lock the file of a result until the end of the block, and protect its content.

    Raises
    ------
    UsageError
        When --resume or --overwrite has no file, the file exists and neither option is present, or another process
        writes the file.
    """
    from perfmodel.records.output_file import output_file

    if resume and (destination.path is None or destination.renderer.name != "json"):
        raise UsageError("only a JSON record can be resumed.", place="--resume", remedy="Give -o FILE.json.")
    if overwrite and (destination.path is None or resume):
        remedy = "Remove one of the two." if resume else "Give -o FILE."
        reason = "excludes --resume." if resume else "needs a file."
        raise UsageError(reason, place="--overwrite", remedy=remedy)
    if destination.path is None:
        yield
        return
    with output_file(destination.path, keep=resume, replace=overwrite):
        yield


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a progress bar if stderr is a terminal; yield a function that advances it by a row."""
    if not sys.stderr.isatty():
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda row: bar.update(task, advance=1, description=f"{row['name']} {row['kernel'] or ''}")


def draw(machine: Hardware, rows: Rows, path: str, *, sustained: bool) -> None:
    """Write a plot of the roofline, or of the time series of a sustained run."""
    if sustained:
        from perfmodel.render.plots.records.sustain import sustain_plot

        save_plot(sustain_plot(rows), path)
    else:
        from perfmodel.render.plots.records import record_plot, usual_kind

        pairs = [(machine, rows)]
        save_plot(record_plot(usual_kind(pairs), pairs), path)
