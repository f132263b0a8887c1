"""Plots of analyses and benchmark records: roofline, bandwidth over size, rate over time."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._options import MeasuredMachinesOption
from perfmodel.cli._output import status
from perfmodel.errors import InputFileError, UsageError, nearest, unknown_name

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.records.schema import Record

    Pairs = list[tuple[Hardware, list[dict[str, Any]]]]


class Kind(enum.StrEnum):
    """The plots of a record."""

    roofline = "roofline"
    bandwidth = "bandwidth"
    sustain = "sustain"


def command(
    records: Annotated[
        list[Path], typer.Argument(metavar="RECORD...", help="JSON written by `analyze` or `bench`; drawn together.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The plot to write: .png, .svg or .pdf.")
    ],
    kind: Annotated[
        Kind,
        typer.Option(
            "--kind",
            help="roofline; bandwidth: achieved B/s over the working set; sustain: rate and clocks over time, of "
            "`bench --sustain`.",
        ),
    ] = Kind.roofline,
    on: MeasuredMachinesOption = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Draw only this dtype's points and ceilings.", show_default=False)
    ] = None,
    title: Annotated[
        str | None,
        typer.Option("--title", help="A heading: above a roofline's machine, or in place of it.", show_default=False),
    ] = None,
) -> None:
    """Plot of analyses and benchmark records: roofline [FLOP/s over FLOP/B], bandwidth over size, or rate over time.

    The ceilings are those of the record's own specification, else of the catalog; --on gives other files.

    Example: perfmodel plot record.json -o roofline.png
    """
    from perfmodel.records.record import read_record
    from perfmodel.render.plots.figure import figure_format, save_figure

    figure_format(output)
    read = {path: read_record(path) for path in records}
    pairs = pair_with_machines(read, on or [])
    if dtype is not None:
        _check_dtype(dtype, pairs)
    save_figure(_DRAWN[kind](pairs, dtype, title), output)
    rows = sum(len(points) for _, points in pairs)
    status(f"wrote {output} (rows: {rows}, machines: {len(pairs)})")


def _roofline(pairs: Pairs, dtype: str | None, title: str | None) -> Any:
    from perfmodel.render.plots.roofline import roofline_figure

    return roofline_figure(pairs, dtype=dtype, title=title)


def _bandwidth(pairs: Pairs, dtype: str | None, title: str | None) -> Any:
    from perfmodel.render.plots.records.bandwidth import bandwidth_plot

    if len(pairs) > 1:
        names = ", ".join(machine.name for machine, _ in pairs)
        raise UsageError(
            f"the records are of several machines: {names}.", place="--kind bandwidth", remedy="Draw one at a time."
        )
    ((machine, points),) = pairs
    return bandwidth_plot(_of_dtype(points, dtype), machine, title)


def _sustain(pairs: Pairs, dtype: str | None, title: str | None) -> Any:
    from perfmodel.render.plots.records.sustain import sustain_plot

    return sustain_plot(_of_dtype([point for _, points in pairs for point in points], dtype), title)


_DRAWN: dict[Kind, Callable[[Pairs, str | None, str | None], Any]] = {
    Kind.roofline: _roofline,
    Kind.bandwidth: _bandwidth,
    Kind.sustain: _sustain,
}


def _of_dtype(points: Sequence[dict[str, Any]], dtype: str | None) -> list[dict[str, Any]]:
    """Return the points of a dtype, or all of them."""
    from perfmodel.core.dtypes import canonical_dtype

    wanted = canonical_dtype(dtype, place="--dtype") if dtype else None
    return [point for point in points if wanted in (None, point["dtype"])]


def _check_dtype(dtype: str, pairs: Pairs) -> None:
    """Check that some row has the dtype that is asked for."""
    from perfmodel.core.dtypes import canonical_dtype

    found = sorted({str(point["dtype"]) for _, points in pairs for point in points})
    if canonical_dtype(dtype, place="--dtype") not in found:
        raise UsageError(f"no row has dtype {dtype}.", place="--dtype", remedy=f"The records have: {', '.join(found)}.")


def pair_with_machines(records: Mapping[Path, Record], on: Sequence[str]) -> Pairs:
    """Return each machine of the records with its rows, in order of appearance.

    Where several records hold measurements, the record's name is added to its kernels' names.

    Raises
    ------
    UsageError
        When one of ``on`` is in no record.
    InputFileError
        When a machine is neither in ``on``, in its record, nor in the catalog.
    """
    from perfmodel.hardware_catalog import hardware

    given = {machine.name: machine for machine in map(hardware, on)}
    measured = sum(record.command == "bench" for record in records.values())
    machines: dict[str, Hardware] = {}
    points: dict[str, list[dict[str, Any]]] = {}
    names: list[str] = []
    for path, record in records.items():
        for row in record.rows:
            names.append(row.hardware)
            # Two records may describe one name differently: two computers, or two calibrations of one.
            key = row.hardware if row.hardware in given else f"{row.hardware} {record.context.spec}"
            if key not in machines:
                machines[key] = given.get(row.hardware) or machine_of(row.hardware, record, path)
            point = row.point()
            if measured > 1 and row.kernel:
                point["kernel"] = f"{row.kernel} ({path.stem})"
            points.setdefault(key, []).append(point)
    for name in given:
        if name not in names:
            raise unknown_name("machine of the records", name, dict.fromkeys(names))
    return [(machines[key], points[key]) for key in machines]


def machine_of(name: str, record: Record, path: Path) -> Hardware:
    """Return the machine of a row: from the specification in the record's context, or the catalog.

    Raises
    ------
    InputFileError
        When neither has it.
    """
    from perfmodel.hardware_catalog import hardware, hardware_names
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware

    document = record.context.spec
    if document and document.get("name") == name:
        place = f"{path}: context.spec"
        return to_hardware(parse_spec(document, place), place)
    try:
        return hardware(name)
    except UsageError:
        known = nearest(name, hardware_names())
        raise InputFileError(
            f"holds no specification of its machine {name!r}, and the catalog has none.",
            place=str(path),
            remedy=f"{known} Give the machine's file with --on.".strip(),
        ) from None
