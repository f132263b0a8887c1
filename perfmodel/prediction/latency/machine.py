"""What the formulas need to know about a machine, and the groups of machines that share constants."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware, Peak, cached_per_machine


@dataclass(frozen=True)
class Machine:
    """The symbols of the formulas, for one machine and one math engine.

    Attributes
    ----------
    generation : architecture and, within it, the product line ("ampere-8.0"); names the defaults.
    sm_count : streaming multiprocessors (compute units on AMD).
    clock_hz : the clock of the peak [Hz].
    peak_flop_per_s : dense datasheet peak of the engine and dtype that the operator uses [FLOP/s].
    engine, dtype : of that peak.
    vector_flop_per_s : fp32 peak of the vector engine [FLOP/s].
    bandwidth_bytes_per_s : datasheet bandwidth of device memory [B/s].
    l2_bytes : capacity of the last-level cache that all SMs share [B]; 0 where there is none.
    tdp_w : board power limit [W]; infinite where unknown.
    links : datasheet bandwidth per direction by link name [B/s].
    """

    generation: str
    sm_count: float
    clock_hz: float
    peak_flop_per_s: float
    engine: str
    dtype: str
    vector_flop_per_s: float
    bandwidth_bytes_per_s: float
    l2_bytes: float
    tdp_w: float
    links: Mapping[str, float] = field(default_factory=dict)

    @property
    def flop_per_clock_per_sm(self) -> float:
        """Dense FLOP of one SM in one clock, on the engine of the operator."""
        return self.peak_flop_per_s / (self.sm_count * self.clock_hz)

    @functools.cached_property
    def symbols(self) -> tuple[Any, ...]:
        """The fields in their order, but for the links: what products depend on, for a cache to look up."""
        return tuple(getattr(self, item.name) for item in fields(self) if item.name != "links")

    @classmethod
    def of(cls, hardware: Hardware, peak: Peak | None) -> Machine:
        """Return the symbols of a machine; what its specification leaves out is filled with what is usual.

        A machine without an SM count is taken to have one SM per 190 GFLOP/s of fp32, near V100 (80 at 15.7 TFLOP/s)
        and A100 (108 at 19.5); one without a clock runs at 1.5 GHz.
        """
        return _machine(hardware, peak)


@cached_per_machine
def _machine(hardware: Hardware, peak: Peak | None) -> Machine:
    vector = hardware.find_peak("fp32", "vector") or peak
    clock = (peak and peak.clock_hz) or hardware.clocks_hz.get("vector") or 1.5e9
    fp32 = vector.flop_per_s if vector else np.nan
    chosen = peak or vector
    cache = hardware.caches[-1] if hardware.caches else None
    return Machine(
        generation=generation(hardware),
        sm_count=float(hardware.sm_count or max(1.0, fp32 / 0.19e12)),
        clock_hz=float(clock),
        peak_flop_per_s=chosen.flop_per_s if chosen else np.nan,
        engine=chosen.engine if chosen else "",
        dtype=chosen.dtype if chosen else "",
        vector_flop_per_s=fp32,
        bandwidth_bytes_per_s=hardware.main_memory.bandwidth_bytes_per_s or np.nan,
        l2_bytes=(cache.capacity_bytes or 0.0) if cache else 0.0,
        tdp_w=hardware.tdp_w or np.inf,
        links={link.name: link.bandwidth_bytes_per_s for link in hardware.links},
    )


def generation(hardware: Hardware) -> str:
    """Return the name of a machine's generation: "hopper", "ampere-8.6", "cdna-2".

    The compute capability tells the data-centre chip of a generation from the graphics chips that share its name:
    A100 (8.0) has twice the L2 and half the fp32 lanes of A40 (8.6).
    """
    name = hardware.architecture.lower().replace(" ", "-")
    return name if name not in ("ampere", "pascal") else f"{name}-{hardware.compute_capability or '8.0'}"


def vendor(hardware: Hardware) -> str:
    """Return the name of the machines of a vendor: they share the software that dispatches kernels."""
    return hardware.vendor.lower().replace(" ", "-")


def product_line(hardware: Hardware) -> str:
    """Return the name of the machines that share a machine's vendor and kind of memory: "nvidia-hbm", "amd-hbm".

    The kind of memory decides which share of the datasheet bandwidth streams reach, and goes with the kind of chip:
    stacked memory is on data-centre chips, GDDR on those of graphics cards.
    """
    kind = "gddr" if "GDDR" in hardware.main_memory.technology.upper() else "hbm"
    return f"{vendor(hardware)}-{kind}"
