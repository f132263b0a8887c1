"""The command `calibrate`: measured ceilings or fitted constants, as a specification file."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._device import DeviceOption, ThreadsOption, machine_to_measure, measured_machine, warn_if_busy
from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import FormatOption, MachineOption, WideOption, only_machine, option
from perfmodel.cli._output import Destination, check_writable, context, status
from perfmodel.errors import InputFileError, PerfModelError, UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.accuracy.measured import MeasuredCalls
    from perfmodel.cli._bench_ranks import RanksRequest
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.measure.collectives.links import LinkCalibration

#: messages of each collective that a link is fitted to, all of them so many times one after the other: what changes
#: meanwhile is an error of the line
_LINK_BYTES, _LINK_ROUNDS = "bytes=1KiB/16KiB/256KiB/1MiB/4MiB/16MiB", 3
#: of each of these messages and rounds, and how long a rank waits for the others [s]
_LINK_LIMIT_S, _RANK_TIMEOUT_S = 0.2, 120.0
#: most machines of the rows that a message names
_NAMED = 4
#: kind of device -> dtypes of the matrix products that are measured
_DTYPES = {
    "cpu": ("fp32", "fp64", "bf16", "fp16", "int8"),
    "cuda": ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"),
}


def command(
    ctx: typer.Context,
    from_: Annotated[
        list[str] | None,
        option(
            "--from",
            "Do not measure; fit the constants of the latency model to this bench record or measurement table. "
            "Needs --on: the machine of the rows, whose specification a record may hold. May be repeated.",
            "FILE",
        ),
    ] = None,
    links: Annotated[
        bool,
        typer.Option(
            "--links",
            help="Measure the link between ranks instead: collectives of 1 KiB to 16 MiB, as the latency of a step and "
            "the time of a byte. Needs --num-gpus.",
        ),
    ] = False,
    num_gpus: Annotated[
        int | None,
        typer.Option("--num-gpus", metavar="N", help="Ranks for --links: GPUs, or processes with --device cpu."),
    ] = None,
    engine: Annotated[
        str | None,
        option(
            "--engine",
            "With --from a table of served runs: fit the host's time, the gaps between kernels and the effect of "
            "sustained load of this serving engine, and write its profile with -o.",
            "ENGINE",
        ),
    ] = None,
    device: DeviceOption = None,
    on: MachineOption = None,
    threads: ThreadsOption = None,
    format_: FormatOption = None,
    wide: WideOption = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a specification of the machine to FILE (.toml)."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file of --output.")] = False,
) -> None:
    """Measure the sustained ceilings of this machine, or fit the latency model to measurements of a GPU.

    Without --from, measure the bandwidth of memory (read, write, copy, triad) and caches, matrix products in every
    dtype, launch latency, and copies over PCIe. This takes one to three minutes.

    With --from, fit the constants of every operator family with at least 10 rows, and report the constants that the
    rows do not identify. Rows of one collective also narrow the intervals of the machine's others.

    With -o, also write a specification file for --on, with the datasheet's figures beside the measured ones. A file
    that exists is replaced with --overwrite only.

    With --links, fit t = alpha steps + bytes / beta to collectives among the ranks of this machine.

    Example: perfmodel calibrate --links --num-gpus 2 --device cpu -o my_cpu.toml

    Example: perfmodel calibrate --from measurements.csv --on a100-sxm4-80gb -o my_gpu.toml

    Example: perfmodel calibrate --from serving.csv --engine vllm -o my_vllm.toml
    """
    from perfmodel.core.report import report
    from perfmodel.kernels.device import open_device
    from perfmodel.measure.calibration.plan import THOROUGH

    _check_output(output, overwrite=overwrite)
    destination = Destination.of("calibrate", format_, None, wide=wide)
    refuse_idle(ctx, (
        Idle(links, ("from_", "engine", "threads"), "--links measures the links between ranks"),
        Idle(engine is not None, ("on", "device", "threads"),
             "--engine is fitted to runs, whose tables name their machines", "Leave it out."),
        Idle(bool(from_), ("device", "threads"), "--from does not measure", "Leave it out."),
    ))  # fmt: skip
    if links or num_gpus is not None:
        if not links or num_gpus is None:
            raise UsageError(
                "--links and --num-gpus belong together.", place="calibrate",
                remedy="Write: perfmodel calibrate --links --num-gpus 2.",
            )  # fmt: skip
        calibrated_links = _measured_links(num_gpus, device, on)
        if calibrated_links is None:
            return
        table = report(calibrated_links, context=context(hardware=[calibrated_links.machine.name]))
        _deliver(table, destination, calibrated_links.machine, output)
        return
    if engine is not None:
        _from_runs(engine, storage.expand(from_ or []), destination, output)
        return
    if from_:
        _from_measurements(storage.expand(from_), on, destination, output)
        return
    opened = open_device(device, threads=threads)
    base = machine_to_measure(opened, on)
    warn_if_busy()
    calibrated = measured_machine(opened, base, _DTYPES[opened.kind], THOROUGH)
    machine = calibrated.machine
    _deliver(report(calibrated, context=context(hardware=[machine.name])), destination, machine, output)


def _check_output(output: str | None, *, overwrite: bool) -> None:
    """Check before the work starts that the file can be written, and that none is replaced unless the user says so."""
    from perfmodel.records.output_file import check_new

    if output is None:
        if overwrite:
            raise UsageError("needs a file.", place="--overwrite", remedy="Give -o FILE.toml.")
        return
    check_writable(output, ".toml", replaces=True)
    if not overwrite:
        check_new(output, "Use --overwrite to replace it, or write to another file.")


def _from_runs(engine: str, paths: list[str], destination: Destination, output: str | None) -> None:
    """Fit the constants of a serving engine to published or own runs, and write its profile."""
    from perfmodel.accuracy.run_table import read_run_table
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog import hardware
    from perfmodel.serving.engine import find_engine
    from perfmodel.serving.engine_file import write_engine
    from perfmodel.serving.fit_engine import engine_cases, fit_engine

    if not paths:
        raise UsageError("needs the runs that were measured.", place="--engine", remedy="Add --from serving.csv.")
    profile = find_engine(engine)
    cases = engine_cases([read_run_table(path) for path in paths], profile)
    status(f"fitting {len(cases)} runs")
    fit = fit_engine(cases, profile, hardware)
    destination.write(report(fit, context=context()))
    if output is not None:
        write_engine(fit.engine, output)
        status(f"wrote {output}; use it with --engine {output}")


def _measured_links(num_gpus: int, device: str | None, on: list[str] | None) -> LinkCalibration | None:
    """Measure collectives among some ranks into a record that is dropped afterwards, and fit the link to it.

    Of the ranks of torchrun or srun only rank 0 has the record; None for the others.
    """
    import tempfile

    from perfmodel.cli._bench_ranks import RanksRequest, run_request
    from perfmodel.cli._output import Destination
    from perfmodel.core.machine_parts import COLLECTIVES
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware
    from perfmodel.kernels.device import open_device
    from perfmodel.kernels.distributed.job import job_rank
    from perfmodel.measure.collectives.links import calibrate_link
    from perfmodel.records.record import read_record

    machine_to_measure(open_device(device), on)
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "links.json")
        destination = Destination.of("bench", "json", record)
        limits = (_LINK_LIMIT_S, None, None)
        request = RanksRequest(
            tuple(word for name in COLLECTIVES for word in (name, _LINK_BYTES)) * _LINK_ROUNDS,
            num_gpus,
            device,
            tuple(on or ()),
            limits,
            0,
            False,
            _RANK_TIMEOUT_S,
            False,
            False,
            destination,
            quiet=True,
        )
        try:
            failed = run_request(request)
        except KeyboardInterrupt:
            _say_what_was_measured(record, request)
            raise
        if failed:
            raise UnavailableError("the collectives could not be measured.", remedy="Try perfmodel bench first.")
        job = job_rank()
        if job is not None and job.rank:
            return None
        measured = read_record(record, ("bench",))
        machine = to_hardware(parse_spec(dict(measured.facts["spec"]), "the record"), "the record")
        return calibrate_link(measured, machine)


def _say_what_was_measured(path: str, request: RanksRequest) -> None:
    """Say how far an interrupted measurement of links came: a part of its rows would make other lines than all do."""
    from perfmodel.cli._bench_collectives import collectives
    from perfmodel.kernels.distributed.job import job_rank
    from perfmodel.records.record import read_record

    job = job_rank()
    if job is not None and job.rank:
        return  # only rank 0 has the record
    rows = 0
    with contextlib.suppress(PerfModelError):
        rows = len(read_record(path, ("bench",)).rows)
    planned = len(collectives(request.words, request.num_gpus))
    status(f"{rows} of {planned} messages were measured; lines are fitted to all of them, so nothing is written")


def _deliver(table: Report, destination: Destination, machine: Hardware, output: str | None) -> None:
    """Print the table, then write the specification; it is also written where the table cannot be printed."""
    from perfmodel.hardware_catalog.write import write_spec

    try:
        destination.write(table)
    finally:
        if output is not None:
            write_spec(machine, output)
            status(f"wrote {output}; use it with --on {output}")


def _from_measurements(paths: list[str], on: list[str] | None, destination: Destination, output: str | None) -> None:
    """Fit the constants of the latency model to the rows of some files, and write the machine with these constants."""
    import datetime

    from perfmodel.accuracy.calibration import FASTER
    from perfmodel.accuracy.own_rows import FEWEST_ROWS, calibrate_calls
    from perfmodel.api.recorded import recorded_machine
    from perfmodel.core.report import report
    from perfmodel.core.units import format_count
    from perfmodel.hardware_catalog import hardware, same_machine

    named = only_machine(on)
    if named is None:
        raise UsageError("--from needs the machine that was measured.", remedy=f"Add {_machines_of_rows(paths)}.")
    recorded = (recorded_machine(path) for path in paths)
    machine = next((one for one in recorded if one and same_machine(named, one)), None) or hardware(named)
    calls, notes = _calls(paths, machine)
    status(f"fitting {format_count(sum(map(len, calls)), 'row')}")
    source = ", ".join(storage.name_of(path) for path in paths)
    today = datetime.date.today().isoformat()
    calibration = calibrate_calls(calls, machine, source, today)
    if not calibration.families and calibration.network is None:
        why = "; ".join(f"{count} {reason}" for reason, count in calibration.unused.items())
        raise InputFileError(
            f"{'hold' if len(paths) > 1 else 'holds'} no family with {FEWEST_ROWS} rows to fit ({why}).",
            place=source,
            remedy="Times are in seconds."
            if FASTER in calibration.unused
            else "A family needs rows of several shapes.",
        )
    _deliver(report(calibration, context=context(), notes=notes), destination, calibration.hardware, output)


def _machines_of_rows(paths: list[str]) -> str:
    """Return the option that names a machine of the rows: "--on t4", or "--on h100 or --on t4"."""
    from perfmodel.records.calls import read_calls

    names = list(dict.fromkeys(call.hardware for path in paths for call in read_calls(path).calls))
    options = [f"--on {shlex.quote(name)}" for name in names[:_NAMED]] + ["..."] * (len(names) > _NAMED)
    return " or ".join(options) or "--on a100-sxm4-80gb"


def _calls(paths: list[str], machine: Hardware) -> tuple[list[MeasuredCalls], list[str]]:
    """Return the rows that were measured on a machine, and notes about the other rows.

    Raises
    ------
    InputFileError
        When no row was measured on this machine.
    """
    from collections import Counter

    from perfmodel.hardware_catalog import same_machine
    from perfmodel.records.calls import read_calls

    calls, notes, others = [], [], Counter[str]()
    for path in paths:
        table = read_calls(path, hardware=machine.name)
        notes += [f"Not used: {skipped.rows} rows, {skipped.reason} ({skipped.place})." for skipped in table.skipped]
        for call in table.calls:
            if same_machine(call.hardware, machine):
                calls.append(call)
            else:
                others[call.hardware] += len(call)
    other_rows = ", ".join(f"{rows} on {name}" for name, rows in others.items())
    if not calls:
        raise InputFileError(
            f"no row was measured on {machine.name}; rows: {other_rows or 'none that can be used'}.",
            place=", ".join(map(str, paths)),
            remedy="Name the machine that was measured with --on.",
        )
    return calls, [*notes, *([f"Not used: rows of other machines: {other_rows}."] if others else [])]
