"""What a machine is: memory levels, peaks, links, launch cost and facts of its chip, in SI units, with their sources.

Its parts are in `perfmodel.core.machine_parts`, and are found here too.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.machine_parts import (
    ENGINES,
    Engine,
    ExchangeLine,
    Fabric,
    Kernels,
    Launch,
    Link,
    MemoryLevel,
    Peak,
    Tiles,
)
from perfmodel.core.report import Reportable
from perfmodel.core.roofline import ridge_point
from perfmodel.errors import UsageError

__all__ = [
    "ENGINES",
    "MAIN_MEMORY",
    "NOWHERE",
    "USUAL_THREADS_PER_SM",
    "Engine",
    "ExchangeLine",
    "Fabric",
    "Hardware",
    "Kernels",
    "Launch",
    "Link",
    "MemoryLevel",
    "Peak",
    "Tiles",
    "cached_per_machine",
    "cached_per_settings",
]

#: the names of the outermost memory level: "hbm" on a GPU, whatever its technology, and "dram" on a CPU
MAIN_MEMORY = ("hbm", "dram")
#: registers of an SM and threads that it holds at once, where a specification states none
USUAL_REGISTERS_PER_SM = 65536.0
USUAL_THREADS_PER_SM = 2048.0
#: bytes of a register of one thread
REGISTER_BYTES = 4.0
#: stands in for a level's name where no level holds the data
NOWHERE = "nothing"


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


# Machines go to other processes, and `pickle` does not know read-only mappings.
copyreg.pickle(MappingProxyType, lambda items: (_read_only, (dict(items),)))


@dataclass(frozen=True, repr=False)
class Hardware(Reportable):
    """One device: what its specification file says, in SI base units.

    Attributes
    ----------
    name, title : the catalog's name, and the product's for people.
    vendor, architecture : as the vendor names itself and the design ("Hopper").
    memory : memory levels, from the outermost (HBM) inwards.
    peaks : rates of arithmetic by dtype and engine.
    kind : "gpu" or "cpu".
    compute_capability : of NVIDIA's design ("9.0"), or the target of AMD's compilers ("gfx942"); "" where unknown.
    aliases : other names that the catalog accepts.
    device_names : the strings that NVML, nvidia-smi and torch report.
    boards : strings that they report for other boards with this chip and memory.
    generation : name of the machines of the same design; "" means architecture and compute capability.
    sm_count : SMs, compute units or cores; None where unknown.
    process : the chip's manufacturing process as its foundry names it ("TSMC 4N").
    matrix_instruction : the tensor engine's instruction: "mma.sync", "wgmma", "tcgen05", "mfma", "wmma", "dpas"; ""
        where unknown.
    tdp_w, tdp_alone_w : power limit [W]; of a device that shares it with others of its module, while they idle.
    clocks_hz : the clocks of the peaks by engine [Hz].
    max_clock_hz : highest clock that the driver allows, where boards exceed those of the peaks [Hz]; None where they do
        not.
    chip : other figures of the ``[chip]`` table by their keys, as ``max_threads_per_sm``.
    links : links off the device (PCIe, NVLink, xGMI), each per direction.
    launch : what starting a kernel costs.
    sustained_links : link -> measured bandwidth [B/s].
    sustained_source : where the measured figures come from.
    run_deviation : standard deviation of ln(measured / predicted) of whole runs; None for that of all machines.
    latency : constants of the latency model that were fitted on this machine, by family.
    fitted_with : family -> the figures of the machine that its constants were fitted on
        (`perfmodel.core.fitted_with`), which may be another one that has lent them to a copy of its file.
    fabric : how these devices are joined to a cluster; None where the specification does not say.
    kernels : how the libraries' kernels for this machine are cut.
    sources, notes : table of the specification -> its source, and its note.
    path : the specification's file; "" for a machine that was made in code.
    """

    name: str
    vendor: str
    architecture: str
    memory: tuple[MemoryLevel, ...]
    peaks: tuple[Peak, ...]
    title: str = ""
    kind: str = "gpu"
    compute_capability: str = ""
    aliases: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    sm_count: int | None = None
    clocks_hz: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    max_clock_hz: float | None = None
    chip: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    generation: str = ""
    process: str = ""
    matrix_instruction: str = ""
    tdp_w: float | None = None
    tdp_alone_w: float | None = None
    links: tuple[Link, ...] = ()
    launch: Launch = field(default_factory=Launch)
    sustained_links: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    sustained_source: str = ""
    run_deviation: float | None = None
    kernels: Kernels = field(default_factory=Kernels)
    fabric: Fabric | None = None
    latency: Mapping[str, LatencyTable] = field(default_factory=lambda: MappingProxyType({}))
    fitted_with: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    sources: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    path: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: the specification, without what has been computed from it."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __repr__(self) -> str:
        """Return a short text: all figures would fill a page."""
        return f"<Hardware {self.name!r}>"

    def level(self, name: str) -> MemoryLevel | None:
        """Return a memory level by name, or None."""
        return next((level for level in self.memory if level.name == name), None)

    @property
    def main_memory(self) -> MemoryLevel:
        """The outermost level: HBM or GDDR on a GPU, DRAM on a CPU."""
        return self.memory[0]

    @property
    def memory_capacity_bytes(self) -> float | None:
        """Capacity of the main memory [B]; None where unknown."""
        return self.main_memory.capacity_bytes

    @property
    def memory_bandwidth_bytes_per_s(self) -> float | None:
        """The vendor's peak bandwidth of the main memory [B/s]; None where no source gives one."""
        return self.main_memory.bandwidth_bytes_per_s

    @property
    def peak_flop_per_s(self) -> dict[str, float]:
        """Dtype -> dense peak [FLOP/s], of the tensor engine where it supports the dtype, else of the vector engine."""
        return {dtype: self.native_peak(dtype).flop_per_s for dtype in self.dtypes()}

    @property
    def ridge_point_flop_per_byte(self) -> dict[str, float]:
        """Dtype -> peak over bandwidth of the main memory [FLOP/B]; empty where the bandwidth is unknown."""
        bandwidth = self.memory_bandwidth_bytes_per_s
        peaks = self.peak_flop_per_s.items() if bandwidth else ()
        return {dtype: float(ridge_point(peak, bandwidth or 0.0)) for dtype, peak in peaks}

    @functools.cached_property
    def caches(self) -> tuple[MemoryLevel, ...]:
        """Device-wide caches that can hold a working set between kernels, outermost first."""
        return tuple(m for m in self.memory if m.name in ("llc", "l3", "l2") and m.capacity_bytes)

    def registers_per_thread(self, occupancy: float) -> float:
        """Return how many registers of 4 B a thread may have for an SM to hold this share of its threads at once."""
        level, registers = self.level("registers"), USUAL_REGISTERS_PER_SM
        if level and level.capacity_bytes and self.sm_count:
            registers = level.capacity_bytes / self.sm_count / REGISTER_BYTES
        return registers / (occupancy * self.chip.get("max_threads_per_sm", USUAL_THREADS_PER_SM))

    def dtypes(self) -> tuple[str, ...]:
        """The dtypes with a peak, in the order of the file, each once."""
        return tuple(dict.fromkeys(peak.dtype for peak in self.peaks))

    def find_peak(self, dtype: str, engine: Engine) -> Peak | None:
        """Return the peak of one dtype on one engine, or None where the device has none."""
        return self._peak_of.get((dtype, engine))

    @functools.cached_property
    def _peak_of(self) -> dict[tuple[str, Engine], Peak]:
        """The first peak of each dtype and engine."""
        return {(peak.dtype, peak.engine): peak for peak in reversed(self.peaks)}

    def native_peak(self, dtype: str) -> Peak:
        """Return the device's own peak for a dtype: that of the tensor engine if it has one, else of the vector engine.

        Raises
        ------
        UsageError
            When the device has no peak for the dtype.
        """
        peak = self.find_peak(dtype, "tensor") or self.find_peak(dtype, "vector")
        if peak is None:
            raise self.lacks(dtype)
        return peak

    def best_peak(self, dtype: str) -> Peak:
        """Return the peak that a matrix product in ``dtype`` uses: the native peak, or that of fp32 if it is faster.

        Raises
        ------
        UsageError
            When the device has no peak for the dtype.
        """
        return self._or_fp32(self.native_peak(dtype))

    def vector_peak(self, dtype: str) -> Peak:
        """Return the peak that vector arithmetic in ``dtype`` uses: that of fp32 if the engine lacks the dtype.

        Raises
        ------
        UsageError
            When the vector engine has neither.
        """
        peak = self.find_peak(dtype, "vector") or self.find_peak("fp32", "vector")
        if peak is None:
            raise self.lacks(dtype, "vector")
        return self._or_fp32(peak)

    def _or_fp32(self, peak: Peak) -> Peak:
        """Return the fp32 vector peak if a narrow dtype is slower: frameworks then convert and compute in fp32."""
        if peak.engine != "vector" or peak.dtype not in ("fp16", "bf16", "fp8"):
            return peak
        fp32 = self.find_peak("fp32", "vector")
        return fp32 if fp32 and peak.flop_per_s < fp32.flop_per_s else peak

    def lacks(self, dtype: str, engine: Engine | None = None) -> UsageError:
        """Build the error for a dtype (on an engine) that this device has no peak for."""
        where = f" on its {engine} engine" if engine else ""
        dtypes = sorted({p.dtype for p in self.peaks if engine in (None, p.engine)})
        return UsageError(
            f"{self.name} has no peak for dtype {dtype!r}{where}.",
            remedy=f"It has: {', '.join(dtypes) or 'none'}.",
        )


class HasSettings(Protocol):
    """An operator, whose class and parameters but for its sizes are its settings."""

    @property
    def settings(self) -> tuple[Any, ...]:
        """What tells it from other operators, whatever their sizes."""


Arguments = ParamSpec("Arguments")
Call = TypeVar("Call", bound=HasSettings)
Result = TypeVar("Result")


def cached_per_machine(
    function: Callable[Concatenate[Hardware, Arguments], Result],
) -> Callable[Concatenate[Hardware, Arguments], Result]:
    """Decorate a function of a machine and hashable arguments: its results are computed once and kept on the machine.

    It is for what depends on the machine alone and is needed by every prediction on it.
    """

    @functools.wraps(function)
    def cached(hardware: Hardware, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        key = (function, *arguments, *options.items()) if options else (function, *arguments)
        try:
            known: Result = hardware.__dict__["_cached"][key]
        except KeyError:
            known = function(hardware, *arguments, **options)
            vars(hardware).setdefault("_cached", {})[key] = known
        return known

    return cached


def cached_per_settings(
    function: Callable[Concatenate[Hardware, Call, Arguments], Result],
) -> Callable[Concatenate[Hardware, Call, Arguments], Result]:
    """Decorate a function of a machine, an operator and hashable arguments that looks at none of the operator's sizes.

    Its results are computed once for all operators of the same settings, and kept on the machine, as those of
    `cached_per_machine`.
    """

    @functools.wraps(function)
    def cached(hardware: Hardware, op: Call, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        key = (function, op.settings, *arguments, *options.items())
        try:
            known: Result = hardware.__dict__["_cached"][key]
        except KeyError:
            known = function(hardware, op, *arguments, **options)
            vars(hardware).setdefault("_cached", {})[key] = known
        return known

    return cached
