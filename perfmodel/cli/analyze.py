"""Bound and prediction of operators, without running anything."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._common import (
    FormatOption,
    OnOption,
    OutputOption,
    PlotOption,
    check_destination,
    context,
    emit,
    status,
)
from perfmodel.errors import UsageError


def command(
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OPS",
            help="Operators inline (gemm m=4096 n=4096 k=4096 dtype=fp16; ranges m=64..8192, m=64..512+64, "
            "m=64/96/128), or TOML, YAML or JSON files of them.",
        ),
    ],
    on: OnOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    plot: PlotOption = None,
) -> None:
    """Bound and expected time of operators on one or more machines, without running anything.

    Example: perfmodel analyze gemm m=4096 n=4096 k=4096 dtype=fp16 --on a100-sxm4-40gb
    """
    from perfmodel.analysis.predict import predict
    from perfmodel.analysis.summary import summarize
    from perfmodel.core.results import prediction_report
    from perfmodel.hardware_catalog import hardware
    from perfmodel.operators._parse import parse_operators

    if output is not None:
        check_destination(output)
    if plot is not None:
        check_destination(plot, ".png", ".svg", ".pdf")
    if not on:
        raise UsageError(
            "no machine is given.", remedy="Add --on a100-sxm4-80gb; `perfmodel hardware list` shows the names."
        )
    machines = list({machine.name: machine for machine in map(hardware, on)}.values())
    operators = parse_operators(ops)
    results = [[predict(op, machine) for op in operators] for machine in machines]
    predictions = [prediction for of_machine in results for prediction in of_machine]
    title = f"Bound and expected time on {', '.join(machine.title for machine in machines)}"
    report = prediction_report(predictions, context=context(), title=title, notes=tuple(summarize(predictions)))
    emit(report, format_, output)
    if plot:
        from perfmodel.render.roofline_plot import roofline_figure, save_figure

        save_figure(roofline_figure(list(zip(machines, results, strict=True))), plot)
        status(f"wrote {plot}")
