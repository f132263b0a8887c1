"""The command `plot`: plots of analyses and benchmark records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel import storage
from perfmodel.cli._options import MeasuredMachinesOption, option
from perfmodel.cli._output import check_plot, save_plot
from perfmodel.errors import UsageError
from perfmodel.render.plots.records import check_kind, kind_names, usual_kind

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.records.schema import Record

    Pairs = list[tuple[Hardware, list[dict[str, Any]]]]


def command(
    records: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORD...",
            help="JSON records of `analyze` or `bench`, all drawn into one plot; or a record of `monitor`.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write the plot to FILE (.png, .svg or .pdf).")
    ],
    kind: Annotated[
        str | None,
        option(
            "--kind",
            f"Kind of plot: {', '.join(kind_names())}. bandwidth: achieved B/s over the working set; traffic: "
            "expected and measured B/s over size, of collectives the bus bandwidth; sustain: rate and clocks over "
            "time, of `bench --sustain`. Default: roofline, and traffic where no row has a place under one.",
            "KIND",
            parser=check_kind,
            autocompletion=lambda: list(kind_names()),
        ),
    ] = None,
    on: MeasuredMachinesOption = None,
    dtype: Annotated[
        str | None,
        option("--dtype", "Draw only points and ceilings of this dtype.", "DTYPE"),
    ] = None,
    title: Annotated[
        str | None,
        option("--title", "Heading of the plot.", "TEXT"),
    ] = None,
) -> None:
    """Draw records of analyze and bench: roofline [FLOP/s over FLOP/B], bandwidth over size, or rate over time.

    Of a record of monitor, the course of its readings is drawn.

    A machine's ceilings come from --on, else from the specification in the record, else from the catalog.

    Example: perfmodel plot record.json -o roofline.png
    """
    from perfmodel.measure.monitor.record import is_monitored
    from perfmodel.records.record import read_record
    from perfmodel.render.plots.records import record_plot

    check_plot(output)
    records = storage.expand(records)
    if any(is_monitored(path) or storage.suffix_of(path) == ".jsonl" for path in records):
        _draw_monitored(records, output, title)
        return
    read = {path: read_record(path) for path in records}
    pairs = pair_with_machines(read, on or [])
    if dtype is not None:
        _check_dtype(dtype, pairs)
    rows = sum(len(points) for _, points in pairs)
    machines = {str(point["hardware"]) for _, points in pairs for point in points}
    figure = record_plot(kind or usual_kind(pairs), pairs, dtype=dtype, title=title)
    save_plot(figure, output, f"rows: {rows}, machines: {len(machines)}")


def _draw_monitored(records: Sequence[str], output: str, title: str | None) -> None:
    """Draw the course of what a monitor recorded."""
    from perfmodel.core.report import report
    from perfmodel.measure.monitor.record import read_recorded
    from perfmodel.render.plots.panels import panels_plot

    if len(records) > 1:
        raise UsageError("a record of monitor is drawn alone.", place="RECORD", remedy="Give one file.")
    readings = report(read_recorded(records[0]))
    figure = panels_plot(readings.panels, title or readings.title, readings.notes)
    save_plot(figure, output, f"readings: {len(readings.rows)}")


def _check_dtype(dtype: str, pairs: Pairs) -> None:
    """Raise a UsageError if no row has the dtype."""
    from perfmodel.core.dtypes import canonical_dtype

    dtypes = sorted({str(point["dtype"]) for _, points in pairs for point in points})
    if canonical_dtype(dtype, place="--dtype") not in dtypes:
        raise UsageError(f"no row has dtype {dtype}.", place="--dtype", remedy=f"Allowed: {', '.join(dtypes)}.")


def pair_with_machines(records: Mapping[str, Record], on: Sequence[str]) -> Pairs:
    """Return each machine of the records with its rows, in order of appearance; with ``on`` only those machines.

    If several records have measurements, the names of kernels get the name of their record, and so do machines of one
    name whose specifications differ.

    Raises
    ------
    UsageError
        When no record has a row of one of ``on``.
    InputFileError
        When neither ``on``, the record nor the catalog has a machine.
    """
    from perfmodel.api.recorded import machine_of

    chosen = {machine.name: machine for machine in (_named(name, records) for name in on)}
    measured = sum(record.command == "bench" for record in records.values())
    machines: dict[str, Hardware] = {}
    stems: dict[str, str] = {}
    points: dict[str, list[dict[str, Any]]] = {}
    names: list[str] = []
    for path, record in records.items():
        for row in record.rows:
            names.append(row.hardware)
            if chosen and row.hardware not in chosen:
                continue
            # Two records may have different specifications of one name: two computers, or two calibrations of one.
            key = row.hardware if row.hardware in chosen else f"{row.hardware} {record.context.spec}"
            if key not in machines:
                machines[key] = chosen.get(row.hardware) or machine_of(row.hardware, record, path)
                stems[key] = storage.stem_of(path)
            point = row.point()
            if measured > 1 and row.kernel:
                point["kernel"] = f"{row.kernel} ({storage.stem_of(path)})"
            points.setdefault(key, []).append(point)
    for name in chosen:
        if name not in names:
            known = ", ".join(dict.fromkeys(names))
            raise UsageError(f"no row is of {name}.", place="--on", remedy=f"The rows are of {known}.")
    apart = _told_apart(machines, stems)
    return [(apart[key], points[key]) for key in machines]


def _named(name: str, records: Mapping[str, Record]) -> Hardware:
    """Return a machine of --on: of the catalog or a file, else that of the first record with rows of this name."""
    from perfmodel.api.recorded import machine_of
    from perfmodel.hardware_catalog import hardware

    try:
        return hardware(name)
    except UsageError:
        for path, record in records.items():
            if any(row.hardware == name for row in record.rows):
                return machine_of(name, record, path)
        raise


def _told_apart(machines: Mapping[str, Hardware], stems: Mapping[str, str]) -> dict[str, Hardware]:
    """Return the machines by their keys; names and titles that several have get the name of their record."""
    names = Counter(machine.name for machine in machines.values())
    titles = Counter(machine.title or machine.name for machine in machines.values())
    apart = {}
    for key, machine in machines.items():
        title = machine.title or machine.name
        behind = f" ({stems[key]})"
        apart[key] = dataclasses.replace(
            machine,
            name=machine.name + behind * (names[machine.name] > 1),
            title=title + behind * (titles[title] > 1),
        )
    return apart
