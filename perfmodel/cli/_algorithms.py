"""`perfmodel analyze --algorithms`: what each algorithm takes, and where the choice changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.cli._output import Destination, context, save_plot
from perfmodel.cli._possible import on_each
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware


def run(ops: Sequence[str], machines: Sequence[Hardware], destination: Destination, plot: str | None) -> None:
    """Write the algorithms of each problem on each machine; with ``plot`` draw their times over size."""
    from perfmodel.core.report import report
    from perfmodel.prediction.algorithms.choice import choose_for
    from perfmodel.prediction.algorithms.parse import parse_problems

    stated = parse_problems(ops)
    if not stated:
        raise UsageError("no problem is named.", place="--algorithms", remedy="Write analyze sort --algorithms.")
    results = on_each(machines, stated, lambda asked, machine: choose_for(*asked, machine), lambda asked: asked[0].name)
    choices = [choice for _, of_machine in results for choice in of_machine]
    destination.write(report(choices, context=context(timing="kernel", cache="cold")))
    if plot:
        from perfmodel.render.plots.algorithms import algorithms_plot

        save_plot(algorithms_plot(choices), plot)
