"""Taking the readings of a device that its health is judged by; the judging is in `perfmodel.measure.health.judge`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.memory import main_memory
from perfmodel.measure.calibration.plan import Effort, Status
from perfmodel.measure.calibration.products import library_call, product_rates
from perfmodel.measure.calibration.transfer import DIRECTIONS, measured_transfer
from perfmodel.measure.health.judge import Readings
from perfmodel.measure.machine_facts import load_average
from perfmodel.measure.telemetry.nvml import Telemetry
from perfmodel.measure.telemetry.sampler import Sampler
from perfmodel.operators.gemm import Gemm

#: about ten seconds
CHECK = Effort(rounds=2, samples=7, product_s=0.1)
#: large enough for the bandwidth of any link [B]
_COPY_BYTES = 2**27
#: how long a device works before and while its clocks are read [s]: a GPU's are up within a quarter of a second
_WARM_UP_S, _LOAD_S = 0.3, 1.2
_LOAD_SIZE = {"cpu": 1024, "cuda": 8192}
_CPU_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")


def take_readings(
    device: Device, telemetry: Telemetry, dtypes: Sequence[str], status: Status, effort: Effort = CHECK
) -> Readings:
    """Return the readings of a device: at rest, its bandwidth, its products, its clocks under load, its link at work.

    Parameters
    ----------
    device : what to read.
    telemetry : of the device.
    dtypes : dtypes of matrix products; those that the device cannot run are left out.
    status : is told what is being measured.
    effort : how long it may take.
    """
    before, load = telemetry.read(), load_average()
    status("measuring memory bandwidth")
    memory = main_memory(device, effort)
    rates, _ = product_rates(device, dtypes, effort, status)
    status("reading the clocks under load")
    loaded = _under_load(device, telemetry, next(iter(rates), "fp32"), _LOAD_S if effort is CHECK else 0.0)
    copies: dict[str, float] = {}
    facts = {**device.facts(), **telemetry.facts()}
    if device.kind == "cuda":
        status("measuring copies to and from the host")
        # Telemetry's facts once more, right behind the copies: a link that rests shows a lower generation.
        for direction in DIRECTIONS:
            copy = measured_transfer(device, effort, direction=direction, pinned=True, sizes=(_COPY_BYTES,))
            copies[direction] = copy.bandwidth_bytes_per_s
            facts |= telemetry.facts()
    return Readings(
        kind=device.kind,
        bandwidth_bytes_per_s={pattern: rate.sustained for pattern, rate in memory.items()},
        flop_per_s=rates,
        transfer_bytes_per_s=copies,
        facts=facts,
        before=before,
        loaded=loaded,
        load_average=load,
        cpu_count=os.cpu_count() or 1,
    )


def _under_load(device: Device, telemetry: Telemetry, dtype: str, load_s: float) -> dict[str, Any]:
    """Return what telemetry reads while matrix products run: the medians, and every throttle reason."""
    size = _LOAD_SIZE[device.kind]
    with device.precision(dtype):
        call = library_call(Gemm(m=size, n=size, k=size, dtype=dtype), device)
        with Sampler(telemetry) as sampler:
            _work(device, call, _WARM_UP_S if load_s else 0.0)
            sampler.mark()
            _work(device, call, load_s)
            found = plain(sampler.summary())
    clock = _cpu_clock_hz() if device.kind == "cpu" else None
    return {**found, "sm_clock_hz": clock} if clock else found


def _work(device: Device, call: Any, time_s: float) -> None:
    """Call for some time [s], never many calls ahead of the device; at least once."""
    end = time.monotonic() + time_s
    while True:
        for _ in range(4):
            call()
        device.synchronize()
        if time.monotonic() >= end:
            return


def plain(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of readings with the median in place of {median, min, max}.

    >>> plain({"power_w": {"median": 690.0, "min": 500.0, "max": 700.0}, "throttle_reasons": ["sync boost"]})
    {'power_w': 690.0, 'throttle_reasons': ['sync boost']}
    """
    return {key: value["median"] if isinstance(value, Mapping) else value for key, value in summary.items()}


def _cpu_clock_hz() -> float | None:
    """Return the clock of the first core right after work [Hz], None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        return float(_CPU_CLOCK.read_text()) * 1e3
    return None
