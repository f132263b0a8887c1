"""The command `show`: what a command wrote as JSON, as its table or in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import FormatOption, OutputOption, WideOption
from perfmodel.cli._output import Destination


def command(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="JSON of any command, or a record of monitor.")],
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Print what a command wrote as JSON: as the table of that command, or in another format.

    Example: perfmodel show record.json --format markdown
    """
    from perfmodel.api.saved import read_saved, titled
    from perfmodel.core.report import report

    destination = Destination.of("show", format_, output, wide=wide)
    destination.write(report(titled(read_saved(record))))
