"""The command `bench`: run reference kernels and compare them with bound and prediction."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._device import DeviceOption, ThreadsOption
from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import (
    AlgorithmsOption,
    CacheOption,
    MachineOption,
    OutputOption,
    PlotOption,
    WideOption,
    format_option,
    fraction_option,
    option,
    seconds_option,
)
from perfmodel.cli._output import Destination, check_plot, status
from perfmodel.core.vocabulary import CacheState


def command(
    ctx: typer.Context,
    ops: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPS",
            help="Operators, or files of them, as in analyze. Default: those of --preset.",
            show_default=False,
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        option("--op", "Operator; OPS are then its dimensions.", "NAME"),
    ] = None,
    device: DeviceOption = None,
    on: MachineOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="quick|full", help="Predefined set of operators. Default without OPS: quick."),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        option(
            "--kernel",
            "Run only kernels with this name (naive, torch.*), or your own function (module:function), which "
            "takes the operator's input tensors and returns its output. May be repeated.",
            "NAME",
        ),
    ] = None,
    cache: CacheOption = CacheState.COLD,
    timing: Annotated[
        str,
        typer.Option(
            "--timing",
            metavar="INTERVAL",
            help="Interval that a time covers. kernel: execution on the device; graph: one call of a replayed CUDA "
            "graph; do-bench: between events around a single call behind others; event: between events around the "
            "call, with its dispatch; auto: graph below 50 us, else kernel.",
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random inputs.")] = 0,
    time_limit: Annotated[
        float | None,
        seconds_option("--time-limit", "Longest sampling time of one kernel [s]. Default: the preset's, else 5."),
    ] = None,
    min_time: Annotated[
        float | None,
        seconds_option("--min-time", "Shortest sampling time of one kernel [s]. Default: the preset's, else 0.1."),
    ] = None,
    error: Annotated[
        float | None,
        fraction_option("--error", "Sample until the mean's relative standard error is below this. Default: 1%."),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Keep the time of every sample in the record.")] = False,
    sustain: Annotated[
        float,
        seconds_option(
            "--sustain",
            "Afterwards run each kernel back to back for this long [s] and record its rate while the device heats up; "
            "--plot draws it.",
            show_default=True,
        ),
    ] = 0.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the record in --output: keep its rows and measure the others.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file of --output.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check bandwidth, compute, clocks and links of this device. Exit code 1 if something is wrong.",
        ),
    ] = False,
    num_gpus: Annotated[
        int | None,
        option(
            "--num-gpus",
            "Measure collectives among N ranks of this machine: one GPU each (nccl), or processes with --device "
            "cpu (gloo). Under torchrun or srun its processes join, and N is theirs by default.",
        ),
    ] = None,
    rank_timeout: Annotated[
        float,
        seconds_option("--rank-timeout", "How long a rank waits for the others [s].", show_default=True),
    ] = 120.0,
    algorithms: AlgorithmsOption = False,
    threads: ThreadsOption = None,
    format_: Annotated[str | None, format_option("bench")] = None,
    output: OutputOption = None,
    wide: WideOption = False,
    plot: PlotOption = None,
) -> int:
    """Measure operators with reference kernels, and compare the times with their bounds and predictions.

    Each kernel's output is checked against float64; then the kernel is timed until the mean is known to 1 %. With -o
    the record is written row by row, so that Ctrl-C loses nothing.

    Example: perfmodel bench gemm m=256..1024 n=512 k=512 layer_norm rows=4096 cols=1024 --device cpu -o record.json

    Example: perfmodel bench --algorithms sort topk --device cpu

    Example: perfmodel bench --kernel my_module:my_function --op gemm m=4096 n=4096 k=4096 dtype=bf16

    Example: perfmodel bench all_reduce bytes=1KiB..64MiB --num-gpus 2 --device cpu
    """
    from perfmodel.cli import _bench, _bench_algorithms, _bench_files
    from perfmodel.cli._bench_collectives import ranks_of_job, refuse_unmeasured
    from perfmodel.cli._check import run_check
    from perfmodel.kernels.device import open_device
    from perfmodel.measure.benchmark import presets

    destination = Destination.of("bench", format_, output, wide=wide)
    check_plot(plot)
    words = (*(op or ()), *(ops or ()))
    num_gpus = ranks_of_job(words) if num_gpus is None else num_gpus
    _refuse_idle(ctx, ranks=num_gpus is not None, check=check, algorithms=algorithms)
    if num_gpus is not None:
        from perfmodel.cli._bench_ranks import RanksRequest, run_request

        rule = (time_limit, min_time, error)
        return run_request(
            RanksRequest(
                words, num_gpus, device, tuple(on or ()), rule, seed, samples, rank_timeout, resume, overwrite,
                destination,
            )
        )  # fmt: skip
    opened = open_device(device, threads=threads)
    if check:
        return run_check(opened, on, Destination.of("bench --check", format_, output, wide=wide))
    if algorithms:
        limit = _bench_algorithms.TIME_LIMIT_S if time_limit is None else time_limit
        chosen = _bench.settings_of(None, limit, min_time or 0.0, error, cache=cache, seed=seed, timing=timing)
        if preset is not None:
            presets.preset(preset, opened.kind)  # its name is checked; sizes are those of the problems
        long = preset == "full"
        with _bench_files.claimed(destination, resume=False, overwrite=overwrite):
            return _bench_algorithms.run(ops or (), opened, on, chosen, destination, plot, long=long)
    refuse_unmeasured(words)
    selection = _bench.selected_operators(ops, op, preset, opened)
    settings = _bench.settings_of(
        selection.preset,
        time_limit,
        min_time,
        error,
        cache=cache,
        seed=seed,
        timing=timing,
        keep_samples=samples,
        sustain_s=sustain,
    )
    with _bench_files.claimed(destination, resume=resume, overwrite=overwrite):
        session = _bench.open_session(opened, on, selection, kernel or (), settings, output if resume else None)
        rows, stopped = session.measure(destination)
    if stopped:
        cause = "interrupted: " if isinstance(stopped, KeyboardInterrupt) else ""
        status(f"{cause}{len(rows)} of {session.planned} rows are measured and kept")
        raise stopped
    if plot:
        _bench_files.draw(session.machine, rows, plot, sustained=sustain > 0)
    return 0


def _refuse_idle(ctx: typer.Context, *, ranks: bool, check: bool, algorithms: bool) -> None:
    """Raise a UsageError for options without effect on what is measured: ranks, the device or algorithms."""
    refuse_idle(ctx, (
        Idle(ranks, ("preset", "kernel", "check", "sustain", "plot", "algorithms", "cache", "timing", "threads"),
             "--num-gpus measures collectives, among ranks that each start anew"),
        Idle(not ranks, ("rank_timeout",), "there are no ranks", "Add --num-gpus 2, say."),
        Idle(check, ("ops", "op", "preset", "kernel", "algorithms", "cache", "timing", "seed", "time_limit", "min_time",
                     "error", "samples", "sustain", "resume", "overwrite", "plot"),
             "--check has measurements of its own"),
        Idle(algorithms, ("op", "kernel", "samples", "sustain", "resume"),
             "--algorithms runs the algorithms of a problem and writes a table of them"),
    ))  # fmt: skip
