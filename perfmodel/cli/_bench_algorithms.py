"""`perfmodel bench --algorithms`: the algorithms of a problem against each other, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.cli._device import base_machine, measured_machine, warn_if_busy
from perfmodel.cli._output import Destination, context, save_plot, status

if TYPE_CHECKING:
    from perfmodel.kernels.device import Device
    from perfmodel.measure.benchmark.settings import BenchSettings

#: time limit of one algorithm at one size [s]
TIME_LIMIT_S = 1.0


def run(
    problems: Sequence[str],
    device: Device,
    on: Sequence[str] | None,
    settings: BenchSettings,
    destination: Destination,
    plot: str | None,
    *,
    long: bool,
) -> int:
    """Measure the algorithms of some problems, or of all that have kernels, and write times and crossovers."""
    from perfmodel.core.report import report
    from perfmodel.kernels.algorithms import contests, find_contest
    from perfmodel.measure.algorithms import run_contests
    from perfmodel.measure.calibration.plan import QUICK

    chosen = [find_contest(name) for name in problems] if problems else list(contests().values())
    settings.check_for(device)
    warning = warn_if_busy()
    machine = base_machine(device, on)
    if machine is None:
        status("no --on: calibrating this CPU first, which takes a few seconds")
        machine = measured_machine(device, None, ["fp32"], QUICK).machine
    found = run_contests(chosen, device, machine, settings, long=long, progress=status)
    facts = context(device={"kind": device.kind, "name": device.name, **device.facts()}, cache=str(settings.cache),
                    settings=settings.facts(), **({"warning": warning} if warning else {}))  # fmt: skip
    destination.write(report(found, context=facts))
    if plot:
        from perfmodel.render.plots.algorithms import algorithms_plot

        measured: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for one in found.runs:
            measured.setdefault(one.problem, {}).setdefault(one.algorithm, []).append((one.size, one.least_s))
        save_plot(algorithms_plot(found.choices, measured=measured), plot)
    return 0 if all(not one.message or one.timed is None for one in found.runs) else 1
