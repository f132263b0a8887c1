"""The command `validate`: the error of predictions against measurements, and a gate on it."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import (
    FormatOption,
    JudgedMachinesOption,
    OutputOption,
    PlotOption,
    SchedulerOption,
    WideOption,
    WorkersOption,
    option,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status
from perfmodel.cli._sharing import Sharing, end_code
from perfmodel.core.lists import list_items
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.api.judging import Judging
    from perfmodel.core.report import Report


def command(
    ctx: typer.Context,
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="Measurements: CSV, plain or gzip, with hardware, op, dtype, the operator's dimensions, time_s [s], "
            "timing, cache, load, implementation; JSON records of bench; or tables of published runs of training or "
            "serving. Also addresses and patterns.",
        ),
    ],
    on: JudgedMachinesOption = None,
    by: Annotated[
        str | None,
        option(
            "--by",
            "Group the rows by these keys: family, hardware, dtype, regime, calibration, op, implementation, "
            "library, timing, cache, load, source, table, or a dimension (bias, kind); none: one group. Published runs "
            "have table, source, quantity, hardware, model and more; their quantities are never merged. "
            "Default: family,hardware, or table,quantity.",
            "KEY,KEY",
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
        option(
            "--fail-on",
            "Exit with code 1 if a group violates the limit: 'mape>8%', 'coverage_80<75%'. May be repeated.",
            "LIMIT",
        ),
    ] = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Compare predicted with measured times: the error of each group, beside that of the datasheet roofline.

    Each row is predicted for its own conditions (columns timing, cache, load and implementation). A record whose
    machine is not in the catalog is judged with the specification in it.

    Example: perfmodel validate measurements.csv.gz --by family,regime --worst 5 --fail-on "mape>8%"
    """
    from perfmodel.accuracy.gate import Gate
    from perfmodel.api.judging import Judging, room_of
    from perfmodel.hardware_catalog import hardware

    destination = Destination.of("validate", format_, output, wide=wide)
    check_plot(plot)
    if worst < 0:
        raise UsageError(f"{worst} is below 0.", place="--worst", remedy="Give the number of rows to list.")
    gates = [Gate.parse(text) for text in fail_on or []]
    given = list(dict.fromkeys(storage.expand(tables)))
    keys = None if by is None else _keys(by)
    machines = tuple(map(hardware, on or []))
    room = room_of(given, machines)
    refuse_idle(ctx, (
        Idle(room is not None, ("flagged",), "tables of published runs flag no rows"),
        Idle(room is not None, ("plot",), "published runs have no plot", "Leave it out, or use --worst 10."),
    ))  # fmt: skip
    judging = Judging(tuple(given), machines, flagged, Sharing(workers, scheduler))
    table = _runs_report(room, judging, keys, worst) if room else _calls_report(judging, keys, worst, plot)
    destination.write(table)
    broken = [finding for gate in gates for finding in gate.findings(table)]
    for finding in broken:
        status(finding)
    return end_code(judging.sharing.ended) or (BAD_FINDING if broken else 0)


def _calls_report(judging: Judging, keys: tuple[str, ...] | None, worst: int, plot: str | None) -> Report:
    """Judge measured calls of single operators."""
    from perfmodel.accuracy.validate import ALWAYS
    from perfmodel.core.report import report

    keys = ALWAYS if keys is None else keys
    places, accuracy = judging.calls()
    facts = context(tables=list(places), by=list(keys), flagged=judging.flagged)
    table = report(accuracy, by=keys, worst=worst, context=facts)
    if plot:
        from perfmodel.render.plots.accuracy import accuracy_plot

        save_plot(accuracy_plot(accuracy), plot)
    return table


def _runs_report(room: ModuleType, judging: Judging, keys: tuple[str, ...] | None, worst: int) -> Report:
    """Judge published runs of whole models by the room that predicts them."""
    from perfmodel.accuracy.published import PUBLISHED_BY, check_keys
    from perfmodel.core.report import report

    keys = PUBLISHED_BY if keys is None else keys
    check_keys(keys, room.KEYS)  # before minutes of predictions
    places, runs = judging.runs(room)
    return report(runs, by=keys, worst=worst, context=context(tables=list(places), by=list(keys)))


def _keys(text: str) -> tuple[str, ...]:
    """Return the grouping keys of a list with commas; "none" means no grouping."""
    keys = tuple(dict.fromkeys(part.replace("-", "_") for part in list_items(text, ",", place="--by")))
    if not all(keys):
        raise UsageError("names no key.", place="--by", remedy="Write --by family,hardware, or --by none.")
    return tuple(key for key in keys if key != "none")
