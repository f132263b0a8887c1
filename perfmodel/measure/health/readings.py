"""Readings of a device by which its health is judged; `perfmodel.measure.health.judge` judges them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.memory import main_memory
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.products import library_call, product_rates
from perfmodel.measure.calibration.rates import Status
from perfmodel.measure.calibration.transfer import DIRECTIONS, measured_transfer
from perfmodel.measure.machine_facts import load_average
from perfmodel.measure.telemetry.nvml import Telemetry
from perfmodel.measure.telemetry.sampler import Sampler
from perfmodel.operators.gemm import Gemm

#: about ten seconds
CHECK = CalibrationPlan(rounds=2, samples=7, product_s=0.1)
#: large enough for the bandwidth of any link [B]
_COPY_BYTES = 2**27
#: how long a device works before and while its clocks are read [s]: those of a GPU rise within a quarter of a second
_WARM_UP_S, _LOAD_S = 0.3, 1.2
_LOAD_SIZE = {"cpu": 1024, "cuda": 8192}
_CPU_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")


@dataclass(frozen=True)
class Readings:
    """Readings of a device, in SI units; those that it does not give are absent.

    Attributes
    ----------
    kind : "cpu" or "cuda".
    bandwidth_bytes_per_s : pattern of main memory ("copy") -> rate [B/s].
    flop_per_s : dtype -> rate of matrix products [FLOP/s].
    transfer_bytes_per_s : "h2d", "d2h" -> rate of large pinned copies [B/s].
    facts : `Telemetry.facts` and `Device.facts` under load.
    before : `Telemetry.read` before anything was started.
    loaded : `Telemetry.read` under load: clocks and power as medians, and every throttle reason that occurred.
    load_average, cpu_count : of the machine.
    """

    kind: str
    bandwidth_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    transfer_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    loaded: Mapping[str, Any] = field(default_factory=dict)
    load_average: float | None = None
    cpu_count: int = 1


def take_readings(
    device: Device, telemetry: Telemetry, dtypes: Sequence[str], status: Status, plan: CalibrationPlan = CHECK
) -> Readings:
    """Return the readings of a device at rest, its bandwidth, its products, its clocks under load, and its link.

    Parameters
    ----------
    device : what to read.
    telemetry : of the device.
    dtypes : dtypes of matrix products; those that the device cannot run are left out.
    status : receives a line on what is being measured.
    plan : how thorough the measurements are.
    """
    before, load = telemetry.read(), load_average()
    status("measuring memory bandwidth")
    memory = main_memory(device, plan)
    rates, _ = product_rates(device, dtypes, plan, status)
    status("reading the clocks under load")
    loaded = _under_load(device, telemetry, next(iter(rates), "fp32"), _LOAD_S if plan is CHECK else 0.0)
    copies: dict[str, float] = {}
    facts = {**device.facts(), **telemetry.facts()}
    if device.kind == "cuda":
        status("measuring copies to and from the host")
        # Telemetry's facts again, right after the copies: an idle link shows a lower generation.
        for direction in DIRECTIONS:
            copy = measured_transfer(device, plan, direction=direction, pinned=True, sizes=(_COPY_BYTES,))
            copies[direction] = copy.bandwidth_bytes_per_s
            facts |= telemetry.facts()
    return Readings(
        kind=device.kind,
        bandwidth_bytes_per_s={pattern: rate.sustained for pattern, rate in memory.items()},
        flop_per_s={dtype: rate.sustained for dtype, rate in rates.items()},
        transfer_bytes_per_s=copies,
        facts=facts,
        before=before,
        loaded=loaded,
        load_average=load,
        cpu_count=os.cpu_count() or 1,
    )


def _under_load(device: Device, telemetry: Telemetry, dtype: str, load_s: float) -> dict[str, Any]:
    """Return the telemetry while matrix products run: the medians, and every throttle reason."""
    size = _LOAD_SIZE[device.kind]
    with device.precision(dtype):
        call = library_call(Gemm(m=size, n=size, k=size, dtype=dtype), device)
        with Sampler(telemetry) as sampler:
            _work(device, call, _WARM_UP_S if load_s else 0.0)
            sampler.mark()
            _work(device, call, load_s)
            summary = medians(sampler.summary())
    clock = _cpu_clock_hz() if device.kind == "cpu" else None
    return {**summary, "sm_clock_hz": clock} if clock else summary


def _work(device: Device, call: Any, time_s: float) -> None:
    """Call for some time [s], at least once, and wait for the device after every few calls."""
    end = time.monotonic() + time_s
    while True:
        for _ in range(4):
            call()
        device.synchronize()
        if time.monotonic() >= end:
            return


def medians(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of readings with the median instead of {median, min, max}.

    >>> medians({"power_w": {"median": 690.0, "min": 500.0, "max": 700.0}, "throttle_reasons": ["sync boost"]})
    {'power_w': 690.0, 'throttle_reasons': ['sync boost']}
    """
    return {key: value["median"] if isinstance(value, Mapping) else value for key, value in summary.items()}


def _cpu_clock_hz() -> float | None:
    """Return the clock of the first core right after work [Hz], None where the system does not give it."""
    with contextlib.suppress(OSError, ValueError):
        return float(_CPU_CLOCK.read_text()) * 1e3
    return None
