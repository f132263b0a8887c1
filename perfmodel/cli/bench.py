"""Reference kernels, run and compared with bound and prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli._bench_files import BenchFormat
from perfmodel.cli._common import ComparedOnOption, OutputOption, PlotOption, check_destination, status
from perfmodel.cli._device import DeviceOption, ThreadsOption
from perfmodel.errors import UsageError


def command(
    ops: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPS",
            help="Operators inline or files of them, as in analyze; without any, a preset.",
            show_default=False,
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="NAME", help="The operator of the dimensions that follow.", show_default=False),
    ] = None,
    device: DeviceOption = None,
    on: ComparedOnOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="quick|full", help="A ready set of operators; default, without OPS: quick."),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="NAME",
            help="Only kernels of this name (naive, torch.*), or a function of yours (module:function), which takes "
            "the operator's input tensors and returns its output; may be repeated.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            metavar="flushed|warm|rotating",
            help="Caches before each sample: flushed, as the last call left them, or copies of the inputs in turn.",
        ),
    ] = "flushed",
    timing: Annotated[
        str,
        typer.Option(
            "--timing",
            metavar="auto|event|graph",
            help="Events round calls, or round the replay of a CUDA graph of several; auto: graphs below 50 us.",
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random inputs.")] = 0,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help="Longest time to sample one kernel [s]; default: the preset's, or 5.",
        ),
    ] = None,
    min_time: Annotated[
        float | None,
        typer.Option(
            "--min-time",
            metavar="SECONDS",
            help="Shortest time to sample one kernel [s]; default: the preset's, or 0.1.",
        ),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(
            "--error", metavar="SHARE", help="Sample until the mean's relative standard error is below; default: 1%."
        ),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Keep the time of every sample in the record.")] = False,
    sustain: Annotated[
        float,
        typer.Option(
            "--sustain",
            metavar="SECONDS",
            help="Then run each kernel back to back for so long [s]: its rate as the device heats; --plot draws it.",
        ),
    ] = 0.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the record in -o FILE: keep its rows, measure the others.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Judge this device: bandwidth, compute, clocks, links; exit 1 if wrong.")
    ] = False,
    threads: ThreadsOption = None,
    format_: Annotated[
        BenchFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="Output format; measurements is the table that validate and calibrate --from read. Default: table, "
            "or by the suffix of --output (.csv.gz: measurements).",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = None,
    plot: PlotOption = None,
) -> int:
    """Run reference kernels and compare the measured time with bound and prediction.

    Each kernel is checked against float64, then timed until the mean is known to 1 %. With -o the record is
    written after every row. Ctrl-C keeps what was measured.

    Example: perfmodel bench gemm m=256..1024 n=512 k=512 layer_norm rows=4096 cols=1024 --device cpu -o record.json

    Example: perfmodel bench --kernel my_module:my_function --op gemm m=4096 n=4096 k=4096 dtype=bf16
    """
    from perfmodel.cli import _bench, _bench_files
    from perfmodel.kernels.device import open_device

    for path, suffixes in ((output, ()), (plot, (".png", ".svg", ".pdf"))):
        if path is not None:
            check_destination(path, *suffixes)
    form = _bench_files.bench_format(format_, output)
    opened = open_device(device, threads=threads)
    if check:
        _refuse_beside_check(ops or op or preset or kernel, resume, plot)
        return _bench.check_device(opened, on, form, output)
    if resume:
        _bench_files.check_resumable(form, output)
    wanted = _bench.wanted_operators(ops, op, preset, opened)
    settings = _bench.settings_of(
        wanted.preset,
        time_limit,
        min_time,
        error,
        cache=cache,
        seed=seed,
        timing=timing,
        keep_samples=samples,
        sustain_s=sustain,
    )
    session = _bench.open_session(opened, on, wanted, kernel or (), settings, output if resume else None)
    rows, stopped = session.measure(form, output)
    if stopped:
        cause = "interrupted: " if isinstance(stopped, KeyboardInterrupt) else ""
        status(f"{cause}{len(rows)} of {session.planned} rows were measured and are kept")
        raise stopped
    if plot:
        _bench_files.draw(session.machine, rows, plot, sustained=sustain > 0)
    return 0


def _refuse_beside_check(what: Any, resume: bool, plot: Path | None) -> None:
    """Refuse what a check of the device would pass over in silence: it measures what it needs."""
    given = {"operators, kernels or a preset": what, "--resume": resume, "--plot": plot}
    for name, value in given.items():
        if value:
            raise UsageError(
                f"a check of the device takes no {name}.", place="--check", remedy="Leave one of them out."
            )
