"""Options of `serve` that say which requests come, and what is told of them."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import option

ConcurrencyOption = Annotated[
    str | None,
    option(
        "--concurrency",
        "Users who each wait for their answer: 64, 1..512 (doubling), 16/32. Default: 1, 2, 4, ... that fit.",
        "LIST",
    ),
]
QpsOption = Annotated[
    str | None,
    option("--qps", "Requests a second: 4, 1..32, 0.5/1; inf: all at once.", "LIST"),
]
SpacingOption = Annotated[
    str, typer.Option("--spacing", metavar="NAME", help="Arrivals of --qps: poisson, gamma or uniform.")
]
BurstinessOption = Annotated[
    float,
    typer.Option("--burstiness", metavar="X", help="Squared coefficient of variation of gamma gaps; 1: Poisson."),
]
SpreadStartOption = Annotated[
    bool, typer.Option("--spread-start", help="Users start over the time of a request, not all at once.")
]
SteadyOption = Annotated[
    bool, typer.Option("--steady", help="Use the formula of the steady state: means only, no queue, no percentile.")
]
PercentilesOption = Annotated[str, typer.Option("--percentiles", metavar="LIST", help="Percentiles of the latencies.")]
ForQpsOption = Annotated[
    float | None,
    option("--for-qps", "Add the GPUs that serve so many requests a second.", "RATE", min=0),
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Add the terms of the mean step, and the memory of one GPU.")
]
PlotKindOption = Annotated[
    str | None,
    option(
        "--plot-kind",
        "pareto: tokens/s a GPU against a user; load: latencies "
        "against load; steps: terms of a step against batch. Default: by the load.",
        "KIND",
    ),
]
TimelineOption = Annotated[
    str | None,
    option("--timeline", "Draw KV use, running and queued over time of the last load.", "FILE"),
]
