"""The command `compare`: rows of two benchmark records that became slower or faster, and a gate on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel import storage
from perfmodel.cli._options import FormatOption, OutputOption, PlotOption, WideOption, fraction_option, option
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status
from perfmodel.errors import InputFileError, unknown_name

if TYPE_CHECKING:
    from perfmodel.comparison.compare import Comparison
    from perfmodel.comparison.pairing import BenchRun


def command(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Record before the change: JSON of bench, nvbench and others. Of a pattern "
            "('before*.json') the first is A, the others are its repeats.",
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Record after the change.")],
    fail_on: Annotated[
        float | None,
        fraction_option(
            "--fail-on",
            "Exit with code 1 if a row is significantly slower by more than this (5%, 0.05), or has a time only in A.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        fraction_option("--threshold", "Smallest change that matters. Default: 2%, or --fail-on if that is smaller."),
    ] = None,
    repeat_before: Annotated[
        list[str] | None,
        option(
            "--repeat-before", "Another run of the code of A, to measure how much runs differ. May be repeated.", "FILE"
        ),
    ] = None,
    repeat_after: Annotated[
        list[str] | None,
        option("--repeat-after", "Another run of the code of B. May be repeated.", "FILE"),
    ] = None,
    drift: Annotated[
        float | None,
        fraction_option(
            "--drift",
            "Standard deviation of a row's median from run to run. Default: measured from the repeats, else 1.8% for a "
            "GPU and 15% for a CPU, and 5% and 45% where the machine was busy.",
        ),
    ] = None,
    across: Annotated[
        list[str] | None,
        option(
            "--across",
            "Compare although this setting differs: device, dtype, cache, timing, kernel, or all. May be repeated.",
            "SETTING",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List unchanged rows too.")] = False,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Compare two benchmark records: the rows that are significantly slower or faster in B than in A.

    The change is after / before - 1. Its significance follows from the samples (bench --samples) or the intervals in
    the records, with an allowance for drift between runs. Tables list the rows that changed; JSON and CSV have every
    row.

    Example: perfmodel compare before.json after.json --fail-on 5%
    """
    from perfmodel.comparison.compare import THRESHOLD, Rules, compare
    from perfmodel.core.report import report

    least = THRESHOLD if fail_on is None else min(THRESHOLD, fail_on)
    rules = Rules(threshold=least if threshold is None else threshold, limit=fail_on, drift=drift)
    chosen = _across(across or [])
    destination = Destination.of("compare", format_, output, wide=wide)
    check_plot(plot)
    first = _read([before, *(repeat_before or ())])
    second = _read([after, *(repeat_after or ())])
    for side in (first, second):
        _check_repeats(side)
    comparison = compare(first, second, rules, chosen)
    facts = context(fail_on=fail_on, across=chosen)
    destination.write(report(comparison, context=facts, everything=everything))
    if plot:
        _draw(comparison, plot)
    broken = [] if fail_on is None else comparison.gate_failures(fail_on)
    for sentence in broken:
        status(sentence)
    return BAD_FINDING if broken else 0


def _read(paths: list[str]) -> list[BenchRun]:
    """Return benchmark records; the error for a profile says what compares those."""
    from perfmodel.formats.detect import find_format
    from perfmodel.formats.table import NAME as TABLE
    from perfmodel.records.runs import read_bench_run

    runs = []
    for path in storage.expand(paths):
        try:
            runs.append(read_bench_run(path))
        except InputFileError:
            if (name := find_format(path).reader.NAME) == TABLE:
                raise
            remedy = "Compare profiles by: perfmodel diagnose BEFORE --against AFTER"
            raise InputFileError(f"is a profile ({name}), not a benchmark record.", place=path, remedy=remedy) from None
    return runs


def _check_repeats(runs: Sequence[BenchRun]) -> None:
    """Raise an InputFileError for a repeat that has the very rows of another run: it would show no drift at all."""
    for number, run in enumerate(runs):
        same = next((other for other in runs[:number] if run.rows and other.rows == run.rows), None)
        if same is not None:
            what = "is named twice" if same.place == run.place else f"is a copy of {same.place}"
            raise InputFileError(f"{what}, which is no repeat.", place=run.place, remedy="Give a run of its own.")


def _across(settings: list[str]) -> tuple[str, ...]:
    """Return the settings that may differ."""
    from perfmodel.comparison.pairing import ACROSS
    from perfmodel.core.lists import list_items

    names = [name for text in settings for name in list_items(text, ",", place="--across")]
    for name in names:
        if name not in (*ACROSS, "all"):
            raise unknown_name("setting", name, (*ACROSS, "all"), place="--across")
    return ACROSS if "all" in names else tuple(dict.fromkeys(names))


def _draw(comparison: Comparison, plot: str) -> None:
    from perfmodel.render.plots.comparison import comparison_plot

    save_plot(comparison_plot(comparison), plot)
