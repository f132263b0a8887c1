"""The command `show`: a record as a table or in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel import storage
from perfmodel.cli._options import FormatOption, OutputOption, WideOption
from perfmodel.cli._output import Destination


def command(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="JSON record of analyze or bench.")],
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Print a record of analyze or bench as a table, or in another format.

    Example: perfmodel show record.json --format markdown
    """
    import dataclasses

    from perfmodel.core.report import report
    from perfmodel.records.record import read_record

    destination = Destination.of("show", format_, output, wide=wide)
    content = read_record(record)
    destination.write(report(dataclasses.replace(content, title=f"{content.command} record {storage.name_of(record)}")))
