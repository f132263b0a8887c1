"""The command `validate`: the error of predictions against measurements, and a gate on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import FormatOption, MeasuredMachinesOption, OutputOption, PlotOption, WideOption
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status
from perfmodel.errors import InputFileError, UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.accuracy.measured import Measurements
    from perfmodel.accuracy.validate import Accuracy
    from perfmodel.core.hardware import Hardware


def command(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Measurements: CSV, plain or gzip, with hardware, op, dtype, the operator's dimensions, time_s [s], "
            "timing, cache, implementation; or JSON records of bench.",
        ),
    ],
    on: MeasuredMachinesOption = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="KEY,KEY",
            help="Group the rows by these keys: family, hardware, dtype, regime, calibration, op, implementation, "
            "library, timing, cache, table, or a dimension (bias, kind); none: one group. Default: family,hardware.",
            show_default=False,
        ),
    ] = None,
    worst: Annotated[
        int, typer.Option("--worst", metavar="N", help="List the N worst rows, with the terms of their predictions.")
    ] = 0,
    flagged: Annotated[
        bool, typer.Option("--flagged", help="Include rows that the author of the table flagged as doubtful.")
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="LIMIT",
            help="Exit with code 1 if a group violates the limit: 'mape>8%', 'coverage_80<75%'. May be repeated.",
            show_default=False,
        ),
    ] = None,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Compare predicted with measured times: the error of each group, beside that of the datasheet roofline.

    Each row is predicted for its own conditions (columns timing, cache and implementation).

    Example: perfmodel validate measurements.csv.gz --by family,regime --worst 5 --fail-on "mape>8%"
    """
    from perfmodel.accuracy.gate import Gate
    from perfmodel.accuracy.validate import ALWAYS, judge
    from perfmodel.core.report import report
    from perfmodel.records.calls import read_calls

    destination = Destination.of("validate", format_, output, wide=wide)
    check_plot(plot)
    if worst < 0:
        raise UsageError(f"{worst} is below 0.", place="--worst", remedy="Give the number of rows to list.")
    keys = ALWAYS if by is None else _keys(by)
    gates = [Gate.parse(text) for text in fail_on or []]
    read = [read_calls(path) for path in dict.fromkeys(tables)]
    accuracy = judge(read, _finder(on or [], read), flagged=flagged)
    if not len(accuracy):
        places = ", ".join(table.place for table in read)
        raise InputFileError(f"holds no row that can be judged: {accuracy.main_reasons}.", place=places)
    table = report(
        accuracy,
        by=keys,
        worst=worst,
        context=context(tables=[table.place for table in read], by=list(keys), flagged=flagged),
        notes=[note for table in read for note in table.notes],
    )
    destination.write(table)
    if plot:
        _draw(accuracy, plot)
    broken = [finding for gate in gates for finding in gate.findings(table)]
    for finding in broken:
        status(finding)
    return BAD_FINDING if broken else 0


def _keys(text: str) -> tuple[str, ...]:
    """Return the grouping keys of a list with commas; "none" means no grouping."""
    keys = tuple(dict.fromkeys(part.strip().replace("-", "_") for part in text.split(",") if part.strip()))
    if not keys:
        raise UsageError("names no key.", place="--by", remedy="Write --by family,hardware, or --by none.")
    return tuple(key for key in keys if key != "none")


def _finder(on: Sequence[str], read: Sequence[Measurements]) -> Callable[[str], Hardware]:
    """Return a function from a name in the tables to its machine, in the catalog or among those of ``--on``.

    Raises
    ------
    UsageError
        When no row was measured on a machine of ``--on``.
    """
    from perfmodel.hardware_catalog import hardware, same_machine

    if not on:
        return hardware
    chosen = [hardware(name) for name in on]

    def find(name: str) -> Hardware:
        for machine in chosen:
            if same_machine(name, machine):
                return machine
        raise UsageError(f"hardware {name!r} is not among the machines of --on.")

    names = dict.fromkeys(calls.hardware for table in read for calls in table.calls)
    if names and not any(same_machine(name, machine) for name in names for machine in chosen):
        raise unknown_name("machine of the tables", chosen[0].name, names, place="--on")
    return find


def _draw(accuracy: Accuracy, plot: Path) -> None:
    from perfmodel.render.plots.accuracy import accuracy_plot

    save_plot(accuracy_plot(accuracy), plot)
