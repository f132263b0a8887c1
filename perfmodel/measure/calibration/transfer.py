"""Copies between host and GPU by size: bandwidth, latency, and the size at which half of the bandwidth is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Status

DIRECTIONS = ("h2d", "d2h")
#: 4 KiB to 256 MiB in steps of four: from sizes at which only latency counts to those at which only bandwidth does
SIZES = tuple(2**power for power in range(12, 29, 2))
#: sizes up to this show the latency [B]: at 64 GB/s they take a quarter of a microsecond
_SMALL = 2**14


@dataclass(frozen=True)
class Transfer:
    """The time of copies in one direction, by size.

    Attributes
    ----------
    direction : "h2d" (host to device) or "d2h".
    pinned : whether the host's memory is page-locked.
    sizes_bytes : sizes of the copies [B], ascending.
    times_s : median time of each [s], between two events on the stream.
    """

    direction: str
    pinned: bool
    sizes_bytes: tuple[float, ...]
    times_s: tuple[float, ...]

    @property
    def name(self) -> str:
        """The name for people: "h2d pinned"."""
        return f"{self.direction} {'pinned' if self.pinned else 'pageable'}"

    @property
    def rates_bytes_per_s(self) -> tuple[float, ...]:
        """Bandwidth at each size [B/s]."""
        return tuple(size / time for size, time in zip(self.sizes_bytes, self.times_s, strict=True))

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """The best bandwidth of any size [B/s]."""
        return max(self.rates_bytes_per_s)

    @property
    def latency_s(self) -> float:
        """The time of a copy beyond that of its bytes at full bandwidth [s]: the median of the small copies."""
        rest = [
            time - size / self.bandwidth_bytes_per_s
            for size, time in zip(self.sizes_bytes, self.times_s, strict=True)
            if size <= max(_SMALL, self.sizes_bytes[0])
        ]
        return max(0.0, float(np.median(rest)))

    @property
    def half_bandwidth_bytes(self) -> float:
        """The smallest size that reaches half of the bandwidth [B]; the time is interpolated linearly between sizes.

        With t = L + s / B it is L B (R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko
        CS-2", Parallel Computing 20, 1994: n_1/2).
        """
        half, sizes, times = self.bandwidth_bytes_per_s / 2, self.sizes_bytes, self.times_s
        last = max((index for index, rate in enumerate(self.rates_bytes_per_s) if rate < half), default=-1)
        if last < 0:
            return sizes[0]
        # s = half t(s), with t = times[last] + slope (s - sizes[last])
        slope = (times[last + 1] - times[last]) / (sizes[last + 1] - sizes[last])
        return half * (times[last] - slope * sizes[last]) / (1 - half * slope)


def transfers(device: Device, plan: CalibrationPlan, status: Status) -> list[Transfer]:
    """Return the times of copies in both directions, from and to pinned and pageable memory."""
    copies = []
    for pinned in (True, False):
        for direction in DIRECTIONS:
            status(f"measuring copies {direction}, {'pinned' if pinned else 'pageable'}")
            copies.append(measured_transfer(device, plan, direction=direction, pinned=pinned))
    return copies


def measured_transfer(
    device: Device, plan: CalibrationPlan, *, direction: str, pinned: bool, sizes: Sequence[int] = SIZES
) -> Transfer:
    """Return the times of copies in one direction.

    Unlike for kernels, the GPU is not held busy first: a copy from pageable memory waits for the host.
    """
    from perfmodel.kernels.torch._bandwidth import transfer_probes

    times = []
    for probe in transfer_probes(list(sizes), direction=direction, pinned=pinned):
        medians = []
        for _ in range(plan.rounds):
            probe.call()
            medians.append(float(np.median([_interval_s(probe.call, device) for _ in range(plan.samples)])))
        times.append(min(medians))
    return Transfer(direction, pinned, tuple(map(float, sizes)), tuple(times))


def _interval_s(call: Callable[[], Any], device: Device) -> float:
    """Return the time between two events around a call [s]."""
    device.synchronize()
    watch = device.stopwatch()
    watch.start()
    call()
    watch.stop()
    return watch.elapsed_s()
