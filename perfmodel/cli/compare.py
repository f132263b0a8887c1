"""Two benchmark records: what became slower or faster, and a gate on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._common import (
    FormatOption,
    OutputOption,
    PlotOption,
    check_destination,
    context,
    emit,
    output_format,
    status,
)
from perfmodel.core.units import parse_fraction
from perfmodel.errors import unknown_name

if TYPE_CHECKING:
    from perfmodel.comparison.compare import Comparison

EXIT_BAD_FINDING = 1


def command(
    before: Annotated[Path, typer.Argument(metavar="A", help="JSON of bench (or nvbench, ...): before the change.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The same after the change.")],
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="LIMIT",
            help="Exit with 1 if a row is significantly slower by more than this (5%, 0.05), or lost its time.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="SHARE",
            help="Smallest change that matters; default: 2%, or the limit of --fail-on if that is smaller.",
            show_default=False,
        ),
    ] = None,
    repeat_before: Annotated[
        list[Path] | None,
        typer.Option(
            "--repeat-before",
            metavar="FILE",
            help="Another run of the code of A; repeats show how far runs drift; may be repeated.",
            show_default=False,
        ),
    ] = None,
    repeat_after: Annotated[
        list[Path] | None,
        typer.Option("--repeat-after", metavar="FILE", help="Another run of the code of B.", show_default=False),
    ] = None,
    drift: Annotated[
        str | None,
        typer.Option(
            "--drift",
            metavar="SHARE",
            help="Standard deviation of a run's medians from run to run; default: as repeats show, else 0.5% for a "
            "GPU, 15% for a CPU.",
            show_default=False,
        ),
    ] = None,
    across: Annotated[
        list[str] | None,
        typer.Option(
            "--across",
            metavar="WHAT",
            help="Compare although this differs: device, dtype, cache, timing, kernel, or all; may be repeated.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List the rows too that are the same.")] = False,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
) -> int:
    """What is significantly slower or faster in benchmark record B than in A; change is after / before - 1.

    Significance comes from the samples (bench --samples) or the intervals in the records, with an allowance for
    drift from run to run. Tables list what changed; JSON and CSV every row.

    Example: perfmodel compare before.json after.json --fail-on 5%
    """
    from perfmodel.comparison.compare import THRESHOLD, Rules, compare
    from perfmodel.comparison.report import compare_report, gate
    from perfmodel.records.runs import read_bench_run

    limit = None if fail_on is None else parse_fraction(fail_on, "--fail-on")
    least = min(THRESHOLD, THRESHOLD if limit is None else limit)
    rules = Rules(
        threshold=least if threshold is None else parse_fraction(threshold, "--threshold"),
        limit=limit,
        drift=None if drift is None else parse_fraction(drift, "--drift"),
    )
    chosen = _across(across or [])
    if output is not None and str(output) != "-":
        check_destination(output)
        output_format(format_, output)
    if plot is not None:
        check_destination(plot, ".png", ".svg", ".pdf")
    first = [read_bench_run(path) for path in (before, *(repeat_before or ()))]
    second = [read_bench_run(path) for path in (after, *(repeat_after or ()))]
    found = compare(first, second, rules, chosen)
    more = context(fail_on=limit, across=chosen)
    emit(compare_report(found, first, second, more, everything=everything), format_, output)
    if plot:
        _draw(found, plot)
    broken = [] if limit is None else gate(found, limit)
    for sentence in broken:
        status(sentence)
    return EXIT_BAD_FINDING if broken else 0


def _across(given: list[str]) -> tuple[str, ...]:
    """Return what may differ."""
    from perfmodel.comparison.pairing import ACROSS

    names = [name.strip() for text in given for name in text.split(",")]
    for name in names:
        if name not in (*ACROSS, "all"):
            raise unknown_name("setting", name, (*ACROSS, "all"), place="--across")
    return ACROSS if "all" in names else tuple(dict.fromkeys(names))


def _draw(found: Comparison, plot: Path) -> None:
    from perfmodel.render.plots.compare import compare_figure
    from perfmodel.render.plots.figure import save_figure

    save_figure(compare_figure(found), plot)
    status(f"wrote {plot}")
