"""Options of several commands, each defined once: one name, one meaning, one syntax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.core.lists import list_items
from perfmodel.core.saved import SEEN
from perfmodel.core.units import parse_fraction, parse_quantity
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.render import format_names, renderer

_MACHINE = "a catalog name, alias or spec file"


def option(name: str, help_: str, metavar: str = "N", **more: Any) -> Any:
    """Return an option whose default is explained in its help, or is none."""
    return typer.Option(name, metavar=metavar, help=help_, show_default=False, **more)


def _price(value: float | None) -> float | None:
    """Return a price as it is, and refuse one that is none before any work is done."""
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"a price of {value:g} is not above 0.", place="--price-per-gpu-hour", remedy="Write 2.5.")
    return value


PriceOption = Annotated[
    float | None,
    option(
        "--price-per-gpu-hour",
        "Price of one GPU (not of the fleet) for an hour, in any currency.",
        "X",
        callback=_price,
    ),
]


def format_option(command: str = "") -> Any:
    """Return ``--format`` for the formats that can hold the reports of a command."""
    names = format_names(command)
    return typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help=f"Output format: {', '.join(names)}. Default: table, or by the suffix of --output.",
        parser=lambda text: renderer(text, command).name,
        autocompletion=lambda: list(names),
        show_default=False,
    )


def fraction_option(name: str, help_: str, *, show_default: bool = False) -> Any:
    """Return an option whose value is a percentage or a fraction: 5% equals 0.05; a bare 5 is an error."""

    def parse(value: str | float) -> float:
        # a default comes here too, and is a number already
        return parse_fraction(value, name) if isinstance(value, str) else value

    return typer.Option(name, metavar="PERCENT", help=help_, parser=parse, show_default=show_default)


def seconds_option(name: str, help_: str, *, show_default: bool = False) -> Any:
    """Return an option whose value is a time: a bare number is seconds, and 500ms or 10min are taken as they say."""

    def parse(value: str | float) -> float:
        # a default comes here too, and is a number already
        return parse_quantity(value, "s", place=name)

    return typer.Option(name, metavar="SECONDS", help=help_, parser=parse, show_default=show_default)


def only_machine(on: Sequence[str] | None, option: str = "--on") -> str | None:
    """Return the machine of ``--on``, or another option, or None without the option.

    Raises
    ------
    UsageError
        When the option names more than one; otherwise the last one would silently win.
    """
    if on and len(on) > 1:
        raise UsageError("the command takes one machine.", place=option, remedy=f"Name one machine after {option}.")
    return on[0] if on else None


def machine_names(texts: Sequence[str] | None) -> list[str] | None:
    """Return the machines that ``--on`` names, each once: they are divided by commas, or the option is repeated.

    >>> machine_names(["h100,h200", "a100-sxm4-80gb"])
    ['h100', 'h200', 'a100-sxm4-80gb']
    """
    if texts is None:
        return None
    # The path of a file may contain commas.
    lists = ([text] if Path(text).is_file() else list_items(text, ",", place="--on") for text in texts)
    names = (name.strip() for names in lists for name in names)
    return list(dict.fromkeys(name for name in names if name))


FormatOption = Annotated[str | None, format_option()]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the result to FILE instead of stdout.", show_default=False
    ),
]
AlgorithmsOption = Annotated[
    bool,
    typer.Option(
        "--algorithms",
        help="Compare the algorithms that solve a problem, predicted by analyze and measured by bench, with the sizes "
        "at which the fastest changes. OPS are then operators or problems: sort, convolution, gradient_compression. "
        "--plot draws time over size.",
    ),
]
#: rows of a ranking that people see where nobody says how many
TopOption = Annotated[
    int | None,
    option(
        "--top",
        f"List only the first N rows. Default: all in JSON, CSV and HTML; text has the first {SEEN} of long lists.",
        min=1,
    ),
]
WideOption = Annotated[bool, typer.Option("--wide", help="Show every column of the table, in lines of any length.")]
PlotOption = Annotated[
    str | None,
    option("--plot", "Draw a plot into FILE (.png, .svg or .pdf).", "FILE"),
]
#: ``--on`` of commands for several machines, for measured rows, for one machine, and for a profile
MachinesOption = Annotated[
    list[str] | None,
    option("--on", f"Machine: {_MACHINE}; several by commas or by repeating it.", "HW", callback=machine_names),
]
MeasuredMachinesOption = Annotated[
    list[str] | None,
    option(
        "--on",
        f"Machine: {_MACHINE}. Only rows measured on it are used, with its figures; several by commas "
        "or by repeating it. Default: the machine that each row names.",
        "HW",
        callback=machine_names,
    ),
]
JudgedMachinesOption = Annotated[
    list[str] | None,
    option(
        "--on",
        f"Machine: {_MACHINE}. Only rows measured on it are used, with its figures; several by commas or by repeating "
        "it. A single one stands for a column hardware that a table lacks, and for its blank cells. Default: the "
        "machine that each row names.",
        "HW",
        callback=machine_names,
    ),
]
MachineOption = Annotated[
    list[str] | None,
    option("--on", f"Machine: {_MACHINE}. Default: this machine.", "HW", callback=machine_names),
]
ExpectedMachineOption = Annotated[
    list[str] | None,
    option("--on", f"Machine to predict times for: {_MACHINE}. Default: none.", "HW", callback=machine_names),
]
ProfiledMachineOption = Annotated[
    list[str] | None,
    option(
        "--on",
        f"Machine that was profiled: {_MACHINE}. Default: the device that the profile names.",
        "HW",
        callback=machine_names,
    ),
]
#: a list, so that a second machine is refused, and does not silently take the place of the first
TargetMachinesOption = Annotated[
    list[str] | None,
    option("--to", f"Another machine to which the profile is projected: {_MACHINE}.", "HW", callback=machine_names),
]
HostOption = Annotated[
    float | None,
    option("--host", "Time of the other machine's host over that of this one's. Default: 1, unknown within 40 %.", "X"),
]
AssumeOption = Annotated[
    bool,
    typer.Option("--assume", help="Take the named machine although the profile names another device."),
]
JobArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PROFILE...",
        help="A trace, an export of nsys, ncu, nvprof or rocprof, key_averages, or a table with a name, a time with "
        "its unit (time_ms, 'Time (ns)', or cells like '12 ms') and optionally calls. Several traces are the ranks of "
        "one job. Also addresses (s3://, gs://, https://) and patterns ('s3://bucket/run/rank*.json.gz').",
    ),
]
RanksOption = Annotated[
    bool, typer.Option("--ranks", help="Take the GPUs of one file as the ranks of a job, as several files are.")
]
GroupEntriesOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="KEY",
        help="Group the entries of a trace by shape, op or kernel. By op and kernel sizes are lost: limiters follow "
        "from names, and there are fewer bounds, predictions and pieces of advice.",
    ),
]
WholeTraceOption = Annotated[
    bool, typer.Option("--whole-trace", help="Include work outside the profiler's steps (torch.profiler).")
]
EffortOption = Annotated[
    list[str] | None,
    option(
        "--effort",
        "Development days of a kind of change, and its risk (low, medium, high): fuse=3, cuda-graph=5:high. "
        "May be repeated.",
        "KIND=DAYS[:RISK]",
    ),
]
NicOption = Annotated[
    str | None,
    option("--nic", "Network of one GPU in one direction: 400Gb/s or 50GB/s. Default: the machine's.", "RATE"),
]
NodeOption = Annotated[int | None, option("--gpus-per-node", "GPUs that share a host. Default: the machine's.", min=1)]
HostMemoryOption = Annotated[
    str | None,
    option("--host-memory", "Memory of a host, for what lives there: 1TiB. Default: the machine's, if known.", "SIZE"),
]
HostBandwidthOption = Annotated[
    str | None,
    option(
        "--host-bandwidth",
        "What a host's CPUs, and copies of all its GPUs, reach of its memory: 200GB/s. Default: assumed.",
        "RATE",
    ),
]
NoBridgeOption = Annotated[
    bool,
    typer.Option("--no-bridge", help="Cards in slots have no bridge of NVLink or xGMI.", show_default=False),
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes that share the work; the result is the same. An address is that of a --scheduler.",
    ),
]
SchedulerOption = Annotated[
    str,
    option(
        "--scheduler",
        "Share the work among the workers of a Dask scheduler instead: tcp://HOST:8786 (extra dask).",
        "ADDRESS",
    ),
]
_CACHES = "cold: inputs come from device memory; warm: all calls use the same buffers; rotating: calls cycle through "
CacheOption = Annotated[
    CacheState,
    typer.Option(
        "--cache",
        metavar="STATE",
        help=f"Contents of the caches. {_CACHES}several sets of weights.",
        parser=lambda text: CacheState.parse(text, place="--cache"),
    ),
]
TimingOption = Annotated[
    Timing,
    typer.Option(
        "--timing",
        metavar="INTERVAL",
        help="Interval that a time covers. kernel: execution on the device, as in a profiler; graph: one call of a "
        "replayed CUDA graph; do-bench: between events around a call that waits in the queue, as Triton's do_bench has "
        "it; event: between events around a call of --library, with its dispatch.",
        parser=lambda text: Timing.parse(text, place="--timing"),
    ),
]
LoadOption = Annotated[
    Load,
    typer.Option(
        "--load",
        metavar="LOAD",
        help="How long the device has been at work. burst: milliseconds, as in benchmarks; sustained: minutes, where "
        "the power limit leaves less of the clock to matrix products.",
        parser=lambda text: Load.parse(text, place="--load"),
    ),
]


def _library(name: str) -> str:
    """Return the name of a library, and refuse one whose release would not be found."""
    from perfmodel.prediction.implementations import check_library  # which numpy comes with

    return check_library(name, "--library")


LibraryOption = Annotated[
    str,
    option(
        "--library",
        "Library whose kernels run, as in measurement tables: torch, sglang, trtllm, vllm, nccl, or with a "
        "release, torch-2.4 or torch==2.4; for attention also a kernel: fa2, fa3, flashinfer, triton, cudnn, "
        "efficient, or torch/fa2. Default: any.",
        "NAME",
        callback=_library,
    ),
]
SpreadOption = Annotated[
    float,
    fraction_option(
        "--length-spread",
        "Lengths are uniform within this share of their means (20%, 0.2): of documents, or of answers and prompts "
        "(without --prefix).",
        show_default=True,
    ),
]
