"""The command `models`: which models the catalog has, by name."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import FormatOption, OutputOption, WideOption
from perfmodel.cli._output import Destination, context


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Parts of a name: qwen, 70b.", show_default=False),
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """List the models that `train`, `serve` and `search` know by name: parameters, layers and sizes.

    Example: perfmodel models qwen3
    """
    from perfmodel.core.report import report
    from perfmodel.workloads.listing import list_models

    destination = Destination.of("models", format_, output, wide=wide)
    destination.write(report(list_models(words or ()), context=context()))
