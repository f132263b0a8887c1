"""The command `analyze`: bound and prediction of operators, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli import _algorithms
from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import (
    AlgorithmsOption,
    CacheOption,
    FormatOption,
    LibraryOption,
    LoadOption,
    MachinesOption,
    OutputOption,
    PlotOption,
    SchedulerOption,
    TimingOption,
    WideOption,
    WorkersOption,
    option,
)
from perfmodel.cli._output import Destination, check_plot, context, save_plot, status
from perfmodel.cli._possible import on_each
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.operators import Operator
    from perfmodel.prediction.measured import Measured
    from perfmodel.prediction.result import Prediction


def command(
    ctx: typer.Context,
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OPS",
            help="Operators: a name and its dimensions (gemm m=4096 n=4096 k=4096 dtype=fp16), with ranges (m=64..8192 "
            "doubles, m=64..512+64 steps, m=64/96/128 and dtype=bf16/fp8 lists), or TOML, YAML or JSON files of them.",
        ),
    ],
    on: MachinesOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="List the terms that add up to each predicted time; --plot draws them.")
    ] = False,
    algorithms: AlgorithmsOption = False,
    measured: Annotated[
        str | None,
        option(
            "--measured",
            "What you measured for one call of the one operator: a time (14.5ms) or a rate (38TFLOP/s, 1.2TB/s; "
            "of a collective the bus bandwidth of nccl-tests). Adds a verdict against bound and expectation, with the "
            "likely causes.",
            "VALUE",
        ),
    ] = None,
    timing: TimingOption = Timing.KERNEL,
    cache: CacheOption = CacheState.COLD,
    library: LibraryOption = "",
    load: LoadOption = Load.BURST,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
    plot: PlotOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
) -> None:
    """Predict the time of operators on one or more machines, and its physical bound, without running anything.

    The predicted time has an 80 % interval and a limiter; --explain lists the terms that add up to it.

    Example: perfmodel analyze gemm m=4096 n=4096 k=4096 dtype=fp16 --on a100-sxm4-40gb
    """
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog import machines_apart
    from perfmodel.operators.parse import parse_operators
    from perfmodel.prediction.conditions import Conditions
    from perfmodel.prediction.summary import summarize
    from perfmodel.prediction.sweep import predict_shared
    from perfmodel.workers import ahead, executor

    destination = Destination.of("analyze", format_, output, wide=wide)
    check_plot(plot)
    refuse_idle(ctx, (
        Idle(algorithms, ("explain", "measured", "timing", "cache", "library", "load", "workers", "scheduler"),
             "--algorithms compares a library's algorithms by their kernels, cold and in a burst"),
        Idle(measured is not None, ("workers", "scheduler"), "a measured value belongs to one call"),
    ))  # fmt: skip
    if not on:
        raise UsageError(
            "--on is missing.", remedy="Add --on a100-sxm4-80gb; `perfmodel hardware list` shows the names."
        )
    machines = machines_apart(on)
    if algorithms:
        _algorithms.run(ops, machines, destination, plot)
        return
    operators = parse_operators(ops)
    if measured is not None:
        given = {"timing": timing, "cache": cache, "library": library, "load": load}
        _judge(operators, machines, measured, destination, explain, plot, **given)
        return
    conditions = Conditions.parse(timing, cache, library, load)
    with executor(workers, scheduler, here=True) as pool:
        results = on_each(
            machines,
            operators,
            lambda op, machine: predict_shared(op, machine, conditions, pool, ahead(workers, scheduler)),
            _label,
        )
    machines = [machine for machine, _ in results]
    predictions = [prediction for _, of_machine in results for prediction in of_machine]
    title = f"Bound and expected time on {', '.join(machine.title for machine in machines)}"
    table = report(
        predictions,
        context=context(timing=timing, cache=cache, library=library, load=load),
        title=title,
        notes=tuple(summarize(predictions, sources=explain)),
    )
    _write(table, predictions, machines, destination, explain)
    if plot and explain:
        _draw_terms(predictions, plot)
    elif plot:
        _draw(results, plot)


def epilog() -> str:
    """Return the operators with their dimensions, for the end of the help."""
    from perfmodel.core.report import report
    from perfmodel.operators.listing import list_operators

    lines = [f"- {row['op']}: {row['dimensions']}" for row in report(list_operators()).rows]
    return "\n".join(["Operators and their dimensions (`perfmodel operators NAME` explains them):\n", *lines])


def _write(
    table: Report, predictions: list[Prediction], machines: list[Hardware], destination: Destination, explain: bool
) -> None:
    """Write a table of predictions, explained if asked for, after warnings of what nobody measured."""
    from perfmodel.core.report import report
    from perfmodel.prediction import explain as explanation
    from perfmodel.prediction.summary import unmeasured_library

    if explain:
        parts = {"terms": explanation.explain(predictions), "interval": explanation.explain_intervals(predictions)}
        table = replace(table, more={name: report(part) for name, part in parts.items()})
    for warning in unmeasured_library(predictions, {machine.name: machine for machine in machines}):
        status(f"warning: {warning}")
    destination.write(table)


def _judge(
    operators: list[Operator],
    machines: list[Hardware],
    measured: str,
    destination: Destination,
    explain: bool,
    plot: str | None,
    **conditions: Any,
) -> None:
    """Report the verdict on what the user measured for one call of the only operator, and draw it."""
    from perfmodel.core.report import report
    from perfmodel.prediction.measured import judge_measured, measured_time

    if len(operators) != 1:
        raise UsageError("a measured value belongs to one operator.", place="--measured", remedy="Name one operator.")
    time_s = measured_time(measured, operators[0])
    results = on_each(
        machines, operators, lambda op, machine: judge_measured(op, machine, time_s, **conditions), _label
    )
    machines = [machine for machine, _ in results]
    judged = [item for _, of_machine in results for item in of_machine]
    title = f"{measured} measured, against {', '.join(machine.title for machine in machines)}"
    predictions = [item.prediction for item in judged]
    table = report(judged, context=context(measured=measured, **conditions), title=title)
    _write(table, predictions, machines, destination, explain)
    if plot and explain:
        _draw_terms(predictions, plot)
    elif plot:
        _draw(results, plot)


def _draw_terms(predictions: list[Prediction], plot: str) -> None:
    """Draw the terms of the predictions as stacked bars."""
    from perfmodel.render.plots.prediction import terms_plot

    save_plot(terms_plot(predictions), plot)


def _label(op: Operator) -> str:
    """Return the name of an operator for messages."""
    return op.name or op.op


def _draw(results: Sequence[tuple[Hardware, Sequence[Prediction | Measured]]], plot: str) -> None:
    """Draw what was found on each machine as a record of it is drawn."""
    from perfmodel.render.plots.records import record_plot, usual_kind

    pairs = [(machine, [row for one in found for row in one.rows()]) for machine, found in results]
    save_plot(record_plot(usual_kind(pairs), pairs), plot)
