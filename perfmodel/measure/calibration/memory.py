"""Sustained bandwidth of the memory levels: main memory by access pattern, and the caches of a GPU.

The caches of a CPU are in `perfmodel.measure.calibration.cpu_caches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Rate, Status, attempt, measured_rate
from perfmodel.measure.memory_limit import MemoryLimit

if TYPE_CHECKING:
    from perfmodel.kernels.torch._bandwidth import Probe

#: elements of a buffer are a multiple of this: rows that are summed, blocks of the Triton kernels
_ELEMENTS = 2**16
#: buffers of one size that the memory limit has to hold: the three of a triad, and some for outputs and temporaries
_BUFFERS = 3.5
#: working sets in the L2: half of it, and a quarter, since the halves of a divided L2 keep copies for each other
_SHARES_OF_L2 = (0.25, 0.5)


def main_memory(device: Device, plan: CalibrationPlan) -> dict[str, Rate]:
    """Return the bandwidth of read, write, copy and triad on buffers beyond the caches, all directions counted [B/s].

    On a GPU with Triton, torch's sum and fill compete with a read and a write of our own, and the faster counts.
    """
    from perfmodel.kernels.torch._bandwidth import memory_probes

    elements = buffer_elements(device, plan)
    rates: dict[str, Rate] = {}
    with device.precision("fp32"):
        for pattern, make in memory_probes(device.kind, elements).items():
            probe = make()
            rates[pattern] = measured_rate(probe.call, probe.amount, device, plan)
    for pattern, other in _triton_memory(device, plan, elements).items():
        rates[pattern] = max(rates[pattern], other, key=lambda rate: rate.sustained)
    return rates


def gpu_levels(device: Device, plan: CalibrationPlan, status: Status) -> tuple[dict[str, Rate], list[str]]:
    """Return the bandwidth of the caches of a GPU by level [B/s], and what was left out and why.

    "l2" is read, since writes may be combined on their way. "l1" is what all SMs together read from rings of 16 KiB,
    "shared" the same from shared memory. All of them use Triton.
    """
    from perfmodel.kernels.triton._base import multiprocessors, unavailable

    reason = unavailable(device, ("fp32",), "fp32")
    if reason:
        return {}, [f"bandwidth of l2, l1 and shared memory: {reason}"]
    from perfmodel.kernels.triton import _bandwidth

    programs = _bandwidth.programs_that_fill(multiprocessors())
    status("measuring the L2, the L1 and shared memory")
    levels: list[tuple[str, Callable[[], Probe]]] = [
        *(("l2", partial(_l2_read, share * device.cache_bytes, programs)) for share in _SHARES_OF_L2),
        ("l1", lambda: _bandwidth.l1_probes(programs)["read"]),
        ("shared", lambda: _shared_read(programs)),
    ]
    rates: dict[str, Rate] = {}
    left_out: list[str] = []
    with device.precision("fp32"):
        for level, make in levels:
            rate = attempt(f"bandwidth of {level}", partial(_probe_rate, make, device, plan), left_out)
            if rate:
                rates[level] = max(rates.get(level, rate), rate, key=lambda one: one.sustained)
    return rates, left_out


def _probe_rate(make: Callable[[], Probe], device: Device, plan: CalibrationPlan) -> Rate:
    probe = make()
    return measured_rate(probe.call, probe.amount, device, plan)


def _l2_read(ring_bytes: float, programs: int) -> Probe:
    from perfmodel.kernels.triton._bandwidth import l2_probes

    return l2_probes(ring_bytes, programs)["read"]


def _shared_read(programs: int) -> Probe:
    from perfmodel.kernels.triton._shared_memory import shared_probe

    return shared_probe(programs)


def _triton_memory(device: Device, plan: CalibrationPlan, elements: int) -> dict[str, Rate]:
    """Return the rates of our own read and write of device memory; none where Triton cannot run."""
    if device.kind != "cuda":
        return {}
    from perfmodel.kernels.triton._base import multiprocessors, unavailable

    if unavailable(device, ("fp32",), "fp32"):
        return {}
    from perfmodel.kernels.triton import _bandwidth

    programs = _bandwidth.programs_that_fill(multiprocessors())
    rates = {}
    with device.precision("fp32"):
        for pattern, probe in _bandwidth.memory_probes(elements, programs).items():
            # torch has measured a read and a write already: a failure of the second one needs no mention
            rate = attempt(pattern, partial(measured_rate, probe.call, probe.amount, device, plan), [])
            if rate:
                rates[pattern] = rate
    return rates


def buffer_elements(device: Device, plan: CalibrationPlan) -> int:
    """Return the float32 elements of each buffer: beyond the caches, and within the memory limit."""
    wanted = max(plan.cache_multiple * device.cache_bytes, plan.least_buffer_bytes[device.kind])
    limit = MemoryLimit.of(device, plan.most_memory_bytes, flush=False)
    block = 4 * _ELEMENTS
    rows = min(math.ceil(wanted / block), int(limit.usable_bytes / _BUFFERS / block))
    return max(1, rows) * _ELEMENTS
