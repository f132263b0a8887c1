"""Running a benchmark: each kernel of each operator is checked, timed, and reported as a row. Failures are rows too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UnavailableError
from perfmodel.kernels.device import Device
from perfmodel.measure.benchmark.jobs import Job
from perfmodel.measure.benchmark.kernel_runner import KernelRunner
from perfmodel.measure.benchmark.rows import build_row
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.telemetry.clock_guard import ClockGuard
from perfmodel.measure.telemetry.nvml import NoTelemetry, Telemetry, default_clock_hz
from perfmodel.measure.telemetry.sampler import Sampler


def run(
    jobs: Sequence[Job],
    device: Device,
    hardware: Hardware,
    settings: BenchSettings,
    telemetry: Telemetry | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the row of each job as soon as it is done.

    Only an interrupt ends it early, or an UnavailableError once a kernel has broken the device.
    """
    telemetry = telemetry or NoTelemetry()
    with Sampler(telemetry) as sampler:
        guard = ClockGuard(sampler, default_clock_hz(telemetry.facts()))
        runner = KernelRunner(device, settings, sampler, guard)
        for job in jobs:
            yield build_row(job, runner.outcome(job), hardware, settings)


def collect(
    rows: Iterator[dict[str, Any]], keep: Callable[[list[dict[str, Any]]], None]
) -> tuple[list[dict[str, Any]], KeyboardInterrupt | UnavailableError | None]:
    """Return all rows, and what cut them short: Ctrl-C, a device that is lost, or None.

    ``keep`` is called with all rows so far after each one.
    """
    collected: list[dict[str, Any]] = []
    try:
        for row in rows:
            collected.append(row)
            keep(collected)
    except (KeyboardInterrupt, UnavailableError) as stopped:
        return collected, stopped
    return collected, None


class Pace:
    """Calls something now and then, so that it takes no more than a share of the time.

    Parameters
    ----------
    share : the largest share of the time.
    clock : a monotonic clock [s].
    """

    def __init__(self, share: float = 0.05, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._clock = share, clock
        self._next_s = -math.inf

    def call(self, function: Callable[[], None]) -> None:
        """Call it, unless the last call was so recent that this one would exceed the share."""
        begin = self._clock()
        if begin >= self._next_s:
            function()
            end = self._clock()
            self._next_s = end + (end - begin) / self._share
