"""The command `operators`: which operators there are, and the dimensions of each."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import FormatOption, OutputOption, WideOption
from perfmodel.cli._output import Destination, context


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An operator; without one, all are listed.")
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """List the operators with their dimensions and defaults, or explain those of one.

    Example: perfmodel operators attention
    """
    from perfmodel.core.report import report
    from perfmodel.operators.listing import describe_operator, list_operators

    destination = Destination.of("operators", format_, output, wide=wide)
    result = list_operators() if name is None else describe_operator(name)
    destination.write(report(result, context=context()))
