"""The command `validate`: the error of predictions against measurements, and a gate on it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._held import ROOMS
from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import (
    FormatOption,
    MeasuredMachinesOption,
    OutputOption,
    PlotOption,
    SchedulerOption,
    WideOption,
    WorkersOption,
    option,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status
from perfmodel.cli._recorded import recorded_machine
from perfmodel.cli._sharing import Sharing, end_code
from perfmodel.core.lists import list_items
from perfmodel.errors import InputFileError, UsageError
from perfmodel.workers.lost import ENDS

if TYPE_CHECKING:
    from perfmodel.accuracy.published import PublishedRuns
    from perfmodel.accuracy.validate import Accuracy
    from perfmodel.cli._judging import JudgedFile, Judging
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
    on: MeasuredMachinesOption = None,
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
    from perfmodel.cli._judging import Judging
    from perfmodel.hardware_catalog import hardware

    destination = Destination.of("validate", format_, output, wide=wide)
    check_plot(plot)
    if worst < 0:
        raise UsageError(f"{worst} is below 0.", place="--worst", remedy="Give the number of rows to list.")
    gates = [Gate.parse(text) for text in fail_on or []]
    given = list(dict.fromkeys(storage.expand(tables)))
    keys = None if by is None else _keys(by)
    room = _room_of(given)
    refuse_idle(ctx, (
        Idle(room is not None, ("flagged",), "tables of published runs flag no rows"),
        Idle(room is not None, ("plot",), "published runs have no plot", "Leave it out, or use --worst 10."),
    ))  # fmt: skip
    judging = Judging(tuple(given), tuple(map(hardware, on or [])), flagged, Sharing(workers, scheduler))
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
    files, accuracy = _judged(judging)
    places = [file.place for file in files]
    _check_rows(accuracy, places)
    table = report(
        accuracy,
        by=keys,
        worst=worst,
        context=context(tables=places, by=list(keys), flagged=judging.flagged),
        notes=[note for file in files for note in file.notes],
    )
    if plot:
        from perfmodel.render.plots.accuracy import accuracy_plot

        save_plot(accuracy_plot(accuracy), plot)
    return table


def _judged(judging: Judging) -> tuple[list[JudgedFile], Accuracy]:
    """Judge measured calls; without ``--on``, on the specification in a record whose machine the catalog lacks."""
    from perfmodel.accuracy.measured import Skips
    from perfmodel.accuracy.validate import Accuracy

    found = {} if judging.machines else {path: recorded_machine(path) for path in judging.paths}
    own = {path: machine for path, machine in found.items() if machine is not None}
    if not own:
        return judging.calls()
    others = tuple(path for path in judging.paths if path not in own)
    parts = [judging._replace(paths=others)] if others else []
    parts += [judging._replace(paths=(path,), machines=(machine,)) for path, machine in own.items()]
    files: list[JudgedFile] = []
    for part in parts:
        if judging.sharing.ended is not None:
            break
        try:
            files += part.calls()[0]
        except ENDS as error:
            if not files:
                raise
            judging.sharing.end(error, f"{len(files)} of {len(judging.paths)} files were read")
    skips = Skips()
    for file in files:
        skips.update(file.skipped)
    return files, Accuracy(tuple(one for file in files for one in file.judged), skips.all())


def _runs_report(room: ModuleType, judging: Judging, keys: tuple[str, ...] | None, worst: int) -> Report:
    """Judge published runs of whole models by the room that predicts them."""
    from perfmodel.accuracy.published import PUBLISHED_BY, check_keys
    from perfmodel.core.report import report

    keys = PUBLISHED_BY if keys is None else keys
    check_keys(keys, room.KEYS)  # before minutes of predictions
    places, runs = judging.runs(room)
    _check_rows(runs, list(places))
    return report(runs, by=keys, worst=worst, context=context(tables=list(places), by=list(keys)))


def _check_rows(judged: Accuracy | PublishedRuns, places: list[str]) -> None:
    if not len(judged):
        unknown = "unknown hardware" in judged.main_reasons
        raise InputFileError(
            f"holds no row that can be judged: {judged.main_reasons}.",
            place=", ".join(places),
            remedy="Name the machine's file with --on FILE.toml; calibrate -o writes one." if unknown else "",
        )


def _room_of(paths: list[str]) -> ModuleType | None:
    """Return the module that predicts the runs of some tables; None for measured calls of operators.

    Raises
    ------
    UsageError
        When the tables are of several kinds.
    """
    rooms = [_published_room(path) for path in paths]
    firsts: dict[ModuleType | None, str] = {}  # kind -> its first table
    for room, path in zip(rooms, paths, strict=True):
        firsts.setdefault(room, path)
    if len(firsts) > 1:
        held = ", ".join(f"{path} holds {_HOLDS[_name_of(room)]}" for room, path in firsts.items())
        raise UsageError(
            f"the tables are of several kinds: {held}.", place="TABLE", remedy="Validate one kind at a time."
        )
    return rooms[0]


#: package of the module that judges a table -> what the table holds
_HOLDS = {"": "measured calls", "training": "runs of training", "serving": "runs of serving"}


def _name_of(room: ModuleType | None) -> str:
    """Return the package of a module that judges tables; "" for that of measured calls."""
    return room.__name__.split(".")[1] if room else ""


def _published_room(path: str) -> ModuleType | None:
    """Return the module that predicts the runs of a table; None where it holds measured calls.

    Raises
    ------
    InputFileError
        When the table looks like one of training runs and lacks columns that those need.
    """
    from perfmodel.accuracy.run_table import run_columns
    from perfmodel.training.published import missing

    if storage.name_of(path).removesuffix(".gz").endswith((".json", ".parquet")) or not storage.is_file(path):
        return None  # a record of bench, or what the reader of measurements explains
    columns = frozenset(run_columns(path))
    found = next((module for module in map(import_module, ROOMS) if module.recognises(columns)), None)
    if found is None and (lacking := missing(columns)):
        raise InputFileError(
            f"looks like a table of training runs, and has no column {', '.join(lacking)}.",
            place=path,
            remedy='docs/data_formats.md, "Tables of training runs", lists the columns.',
        )
    return found


def _keys(text: str) -> tuple[str, ...]:
    """Return the grouping keys of a list with commas; "none" means no grouping."""
    keys = tuple(dict.fromkeys(part.replace("-", "_") for part in list_items(text, ",", place="--by")))
    if not all(keys):
        raise UsageError("names no key.", place="--by", remedy="Write --by family,hardware, or --by none.")
    return tuple(key for key in keys if key != "none")
