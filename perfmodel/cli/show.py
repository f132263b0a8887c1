"""A record again, as a table or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli._common import FormatOption, OutputOption, emit


def command(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="JSON file that analyze or bench wrote.")],
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Show a record of analyze or bench again, as a table or in another format.

    Example: perfmodel show record.json --format markdown
    """
    from perfmodel.core.report import Report
    from perfmodel.measure.benchmark.rows import bench_columns
    from perfmodel.prediction.result import PREDICTION_COLUMNS
    from perfmodel.records.record import read_whole_record

    checked, document = read_whole_record(record)
    emit(
        Report(
            command=checked.command,
            columns=bench_columns() if checked.command == "bench" else PREDICTION_COLUMNS,
            rows=document["rows"],
            context=document.get("context", {}),
            notes=tuple(checked.notes),
            title=f"{checked.command} record {record.name}",
        ),
        format_,
        output,
    )
