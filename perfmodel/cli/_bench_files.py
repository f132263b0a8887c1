"""How the result of `perfmodel bench` leaves the process: formats, files written after every row, bar, plots."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli._output import Destination, save_plot
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report

    Rows = Sequence[Mapping[str, Any]]


def check_resumable(destination: Destination) -> None:
    """Check that there can be a record to go on with.

    Raises
    ------
    UsageError
        When no JSON file is named.
    """
    if destination.path is None or destination.renderer.name != "json":
        raise UsageError(
            "a run goes on with the JSON record that it is to complete.", place="--resume", remedy="Give -o FILE.json."
        )


def keeper(
    destination: Destination,
    make: Callable[[Rows], Report],
    advance: Callable[[Mapping[str, Any]], None],
    before: Rows,
) -> Callable[[list[dict[str, Any]]], None]:
    """Return what is done after each row: the record is written, where one is asked for, and the bar moves."""

    def keep(rows: list[dict[str, Any]]) -> None:
        if destination.path is not None:
            destination.write(make([*before, *rows]), quiet=True)
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
    if sustained:
        from perfmodel.render.plots.records.sustain import sustain_plot

        save_plot(sustain_plot(rows), path)
    else:
        from perfmodel.render.plots.roofline import roofline_plot

        save_plot(roofline_plot(machine, rows), path)
