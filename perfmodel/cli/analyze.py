"""Bound and prediction of operators, without running anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.prediction.result import Prediction


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
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what each predicted time is the sum of; --plot draws that.")
    ] = False,
    timing: Annotated[
        str,
        typer.Option(
            "--timing",
            metavar="VIEW",
            help="Time to predict: 'kernel', on the device, as a profiler or a CUDA graph sees it; or 'event', between "
            "events round a framework's call, its dispatch included.",
        ),
    ] = "kernel",
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            metavar="STATE",
            help="'cold': inputs come from device memory; 'warm': the same buffers again and again; "
            "'rotating': five sets of weights take turns.",
        ),
    ] = "cold",
    library: Annotated[
        str,
        typer.Option(
            "--library",
            metavar="NAME",
            help="Whose kernels run, as in measurement tables: torch, sglang, trtllm, nccl. Default: whichever.",
            show_default=False,
        ),
    ] = "",
    format_: FormatOption = None,
    output: OutputOption = None,
    plot: PlotOption = None,
) -> None:
    """Bound and expected time of operators on one or more machines, without running anything.

    The expected time comes with its 80 % interval and what limits it; --explain shows the terms it is the sum of.

    Example: perfmodel analyze gemm m=4096 n=4096 k=4096 dtype=fp16 --on a100-sxm4-40gb
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.operators.parse import parse_operators
    from perfmodel.prediction.predict import predict
    from perfmodel.prediction.result import prediction_report
    from perfmodel.prediction.summary import summarize

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
    results = [
        [predict(op, machine, timing=timing, cache=cache, library=library) for op in operators] for machine in machines
    ]
    predictions = [prediction for of_machine in results for prediction in of_machine]
    title = f"Bound and expected time on {', '.join(machine.title for machine in machines)}"
    report = prediction_report(
        predictions,
        context=context(timing=timing, cache=cache, library=library),
        title=title,
        notes=tuple(summarize(predictions)),
    )
    if explain:
        from perfmodel.prediction.explain import explain_report

        report = replace(report, more={"terms": explain_report(predictions)})
    emit(report, format_, output)
    if plot:
        _draw(list(zip(machines, results, strict=True)), explain, plot)


def _draw(results: list[tuple[Hardware, list[Prediction]]], explain: bool, plot: Path) -> None:
    """Draw the terms of the predictions, or where they stand under the machines' rooflines."""
    from perfmodel.render.plots.figure import save_figure

    if explain:
        from perfmodel.render.plots.terms import terms_figure

        figure = terms_figure([prediction for _, of_machine in results for prediction in of_machine])
    else:
        from perfmodel.render.plots.roofline import roofline_figure

        figure = roofline_figure(results)
    save_figure(figure, plot)
    status(f"wrote {plot}")
