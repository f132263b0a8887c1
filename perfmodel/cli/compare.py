"""The command `compare`: rows of two benchmark records that became slower or faster, and a gate on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import FormatOption, OutputOption, PlotOption, WideOption, fraction_option, option
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status

if TYPE_CHECKING:
    from perfmodel.comparison.compare import Comparison


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
    from perfmodel.api.records import compare_runs, read_runs
    from perfmodel.comparison.compare import Rules
    from perfmodel.comparison.pairing import check_across
    from perfmodel.core.report import report

    rules = Rules.of(threshold=threshold, limit=fail_on, drift=drift)
    chosen = check_across(_settings(across or []))
    destination = Destination.of("compare", format_, output, wide=wide)
    check_plot(plot)
    sides = (read_runs([before, *(repeat_before or ())]), read_runs([after, *(repeat_after or ())]))
    comparison = compare_runs(*sides, rules, chosen)
    facts = context(fail_on=fail_on, across=chosen)
    destination.write(report(comparison, context=facts, everything=everything))
    if plot:
        _draw(comparison, plot)
    broken = comparison.gate_failures()
    for sentence in broken:
        status(sentence)
    return BAD_FINDING if broken else 0


def _settings(texts: list[str]) -> list[str]:
    """Return the settings that some texts list with commas."""
    from perfmodel.core.lists import list_items

    return [name for text in texts for name in list_items(text, ",", place="--across")]


def _draw(comparison: Comparison, plot: str) -> None:
    from perfmodel.render.plots.comparison import comparison_plot

    save_plot(comparison_plot(comparison), plot)
