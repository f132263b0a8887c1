"""What every latency family is made of: constants, the machine's symbols, the view of time, and the terms of a sum.

A *family* is a closed form for one kind of kernel: it takes an operator, a machine and a few constants, and gives
the terms whose sum is the time of the kernel. Scalars and arrays go through the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware, Peak, cached_per_machine
from perfmodel.core.work import Number, maximum
from perfmodel.operators.base import Operator

#: values of a family's constants by name, in SI units
Values = Mapping[str, float]


@dataclass(frozen=True)
class Constant:
    """One scalar of a family: what it means, where it starts, and how far it can go.

    Attributes
    ----------
    name, unit, meaning : for people; the unit is SI, "" for a share.
    default : a typical value, and where a fit starts when no defaults file has a better one.
    low, high : what physics allows; a fit stays inside.
    spread : how much machines differ in it, as a standard deviation of the logarithm; the weight of the
        default against the rows of a fit.
    library : whether it belongs to the software (launch path, kernel choice), so that each library may have its own.
    """

    name: str
    unit: str
    default: float
    low: float
    high: float
    spread: float
    meaning: str
    library: bool = False


@dataclass(frozen=True)
class View:
    """What a time means.

    Attributes
    ----------
    timing : "kernel", the time on the device as a profiler or a CUDA graph sees it; or "event", the time between
        events round a call of a framework, its dispatch included.
    cache : "cold", every input comes from device memory; "warm", the same buffers are used again and again, so
        that what fits the L2 cache may lie there; or "rotating", copies of a product's weights take turns.
    library : whose kernels run ("torch", "sglang", "trtllm", ...), or "" for whichever.
    """

    timing: str = "kernel"
    cache: str = "cold"
    library: str = ""


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


def kin(hardware: Hardware) -> str:
    """Return the name of the machines that share a machine's vendor and kind of memory: "nvidia-hbm", "amd-hbm".

    The kind of memory decides which share of the datasheet bandwidth streams reach, and goes with the kind of chip:
    stacked memory is on data-centre chips, GDDR on those of graphics cards.
    """
    kind = "gddr" if "GDDR" in hardware.main_memory.technology.upper() else "hbm"
    return f"{vendor(hardware)}-{kind}"


@dataclass(frozen=True)
class Terms:
    """The time of one kernel as a sum.

    Attributes
    ----------
    adds : what limits -> the time that it adds [s], in the order in which people read it; the sum is the time.
    alone : resource -> the time that it alone would take [s], for terms that overlap with others.
    """

    adds: Mapping[str, Number]
    alone: Mapping[str, Number] = field(default_factory=dict)

    @property
    def time_s(self) -> Number:
        """The sum of the terms [s]."""
        total: Number = 0.0
        for value in self.adds.values():
            total = total + value
        return total


def smooth_max(power: float, *times: Number) -> Number:
    """Return the smooth maximum (a^p + b^p + ...)^(1/p): resources that overlap, but not perfectly [s].

    At least the largest, at most the largest times n^(1/p). Scaled by the largest, so that nothing underflows.

    >>> round(float(smooth_max(4, 3.0, 3.0)), 3)
    3.568
    """
    largest = times[0]
    for time in times[1:]:
        largest = maximum(largest, time)
    scale = maximum(largest, 1e-300)
    total = sum((time / scale) ** power for time in times)
    return scale * total ** (1.0 / power)


def overlapped(power: float, **times: Number) -> Terms:
    """Return the smooth maximum of some resources as a sum: the largest one's own time, and "contention".

    Contention is what the others add because resources do not overlap perfectly.
    """
    total = smooth_max(power, *times.values())
    largest: Number = 0.0
    for time in times.values():
        largest = np.maximum(largest, time)
    adds: dict[str, Number] = {}
    free: Number | np.ndarray = True
    for name, time in times.items():
        here = np.logical_and(time >= largest, free)
        free = np.logical_and(free, np.logical_not(here))
        adds[name] = np.where(here, time, 0.0)
    adds["contention"] = total - largest
    return Terms(adds, dict(times))


@dataclass(frozen=True, eq=False)
class Family:
    """A closed form for one kind of kernel.

    Attributes
    ----------
    name : its key in the ``[latency.NAME]`` tables.
    constants : its scalars, at most 12 with the two of the host.
    terms : the formula: (operator, machine, values, view) -> terms of the time on the device, for ``timing="kernel"``.
    dispatched : whether an event round a framework's call also sees the host's dispatch. Collectives are
        measured in queues, where it does not show.
    by_dtype : whether constants fitted on one dtype say less of another; not of kernels that move bytes only.
    calls : (operator, values) -> the dispatch of this very call over a plain one's, where calls differ: through
        a layer of the framework, or with a scalar that it turns into a tensor. 1 where None.
    """

    name: str
    constants: tuple[Constant, ...]
    terms: Callable[[Operator, Machine, Values, View], Terms]
    dispatched: bool = True
    by_dtype: bool = True
    calls: Callable[[Operator, Values], Number] | None = None

    @functools.cached_property
    def all_constants(self) -> tuple[Constant, ...]:
        """The family's own constants, and those of the host where it is dispatched."""
        return (*self.constants, *HOST) if self.dispatched else self.constants

    def seen(self, op: Operator, machine: Machine, values: Values, view: View) -> Terms:
        """Return the terms of the time that ``view.timing`` sees.

        Between events round a framework's call the host dispatches for ``host``, and starts the kernel ``hidden``
        before it is done; the second event waits for both: t = ||host, host - hidden + t_kernel||. A call that
        takes more dispatch than a plain one (``calls``) takes it before it starts the kernel.
        """
        kernel = self.terms(op, machine, values, view)
        if view.timing != "event" or not self.dispatched:
            return kernel
        host = values["host"] * (self.calls(op, values) if self.calls else 1.0)
        # A kernel cannot hide behind more of the dispatch than there is.
        before = maximum(0.0, host - values["hidden"])
        total = smooth_max(CORNER, host, before + kernel.time_s)
        return Terms({**kernel.adds, "host": total - kernel.time_s}, kernel.alone)


#: exponent of the smooth maximum of dispatch and kernel: measured corners are within 3 % of the larger one
CORNER = 20.0
HOST = (
    Constant("host", "s", 26e-6, 2e-6, 300e-6, 0.4, "dispatch of a framework's call, as events round it see", True),
    Constant("hidden", "s", 13e-6, 3e-6, 100e-6, 0.5, "end of the dispatch that the running kernel hides", True),
)
