"""What a machine is: memory levels, peaks, links and launch cost, in SI units, each with its source.

Three kinds of figure are kept apart: the *datasheet* (``MemoryLevel.bandwidth_bytes_per_s``,
``Peak.flop_per_s``), which bounds; the *sustained* ceiling that a good microbenchmark reaches, which
predicts; and capacities, which say what fits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError

Engine = str  # "tensor" or "vector"
ENGINES: tuple[Engine, ...] = ("tensor", "vector")
#: the names of the outermost level: of a GPU, whatever its technology, and of a CPU
MAIN_MEMORY = ("hbm", "dram")
#: in place of a level's name: no level holds it
NOWHERE = "nothing"


@dataclass(frozen=True)
class MemoryLevel:
    """One level of the memory hierarchy of one device.

    Attributes
    ----------
    name : "hbm" (device memory, of whatever technology), "llc", "l2", "l1", "shared", "registers"; "dram" on a CPU.
    capacity_bytes : capacity of the level over the whole device [B].
    bandwidth_bytes_per_s : vendor's peak [B/s], or None where no source gives one.
    sustained_bytes_per_s : best measured bandwidth [B/s], or None.
    partitions : parts that do not share what they hold (the L2 of each chiplet); data that all processors read
        has to fit in one.
    """

    name: str
    capacity_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    sustained_bytes_per_s: float | None = None
    technology: str = ""
    partitions: int = 1
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class Peak:
    """The dense peak rate of one dtype on one engine; a fused multiply-add is 2 FLOP.

    ``flop_per_clock_per_sm`` and ``clock_hz`` let the peak be recomputed: SMs x FLOP per clock x clock.
    ``sparse_2to4_flop_per_s`` is the vendor's figure with 2:4 structured sparsity, never used in a bound.
    """

    dtype: str
    engine: Engine
    flop_per_s: float
    flop_per_clock_per_sm: float | None = None
    clock_hz: float | None = None
    sustained_flop_per_s: float | None = None
    sparse_2to4_flop_per_s: float | None = None
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class Link:
    """A link off the device, bandwidth per direction and per device [B/s]."""

    name: str
    bandwidth_bytes_per_s: float
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class Launch:
    """What starting a kernel costs.

    Attributes
    ----------
    floor_s : shortest time per (nearly) empty kernel ever seen, replayed from a graph [s]; enters the bound.
    overhead_s : usual time per small kernel launched back to back on a stream [s]; enters the prediction.
    """

    floor_s: float | None = None
    overhead_s: float | None = None
    source: str = ""
    note: str = ""


def _rate(value: float | None, unit: str) -> str:
    """Return a rate as people read it, or an empty text."""
    return "" if value is None else format_si(value, unit)


@dataclass(frozen=True, repr=False)
class Hardware:
    """One device: what its specification file says, in SI base units.

    ``memory`` runs from the outermost level (HBM) inwards. ``aliases`` are other names the catalog
    answers to, ``device_names`` the strings that NVML, nvidia-smi and torch report. ``latency`` holds the constants
    of the latency model that were fitted on this machine, by family.
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
    sm_count: int | None = None
    clocks_hz: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    limits: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    tdp_w: float | None = None
    links: tuple[Link, ...] = ()
    launch: Launch = field(default_factory=Launch)
    sustained_links: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    sustained_source: str = ""
    latency: Mapping[str, LatencyTable] = field(default_factory=lambda: MappingProxyType({}))
    sources: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    path: str = ""

    def report(self) -> Report:
        """Return the ceilings as a table: memory levels, peaks and links, the datasheet beside the sustained figure."""
        rows: list[dict[str, Any]] = [
            {"ceiling": m.name, "capacity_bytes": m.capacity_bytes, "datasheet": _rate(m.bandwidth_bytes_per_s, "B/s"),
             "sustained": _rate(m.sustained_bytes_per_s, "B/s")}
            for m in self.memory
        ]  # fmt: skip
        rows += [
            {"ceiling": f"{p.dtype} {p.engine}", "datasheet": _rate(p.flop_per_s, "FLOP/s"),
             "sustained": _rate(p.sustained_flop_per_s, "FLOP/s")}
            for p in self.peaks
        ]  # fmt: skip
        rows += [
            {"ceiling": link.name, "datasheet": _rate(link.bandwidth_bytes_per_s, "B/s"),
             "sustained": _rate(self.sustained_links.get(link.name), "B/s")}
            for link in self.links
        ]  # fmt: skip
        columns = (
            Column("ceiling"),
            Column("capacity_bytes", "capacity", "iB"),
            Column("datasheet"),
            Column("sustained"),
        )
        return Report("hardware", columns, rows, title=self.title or self.name)

    def __repr__(self) -> str:
        """Return a short name: the whole content is a page."""
        return f"<Hardware {self.name!r}>"

    def _repr_html_(self) -> str:
        """Show the ceilings as a table in a notebook."""
        return self.report()._repr_html_()

    def level(self, name: str) -> MemoryLevel | None:
        """Return a memory level by name, or None."""
        return next((level for level in self.memory if level.name == name), None)

    @property
    def main_memory(self) -> MemoryLevel:
        """The outermost level: HBM or GDDR of a GPU, DRAM of a CPU."""
        return self.memory[0]

    @functools.cached_property
    def caches(self) -> tuple[MemoryLevel, ...]:
        """Device-wide caches that can hold a working set between kernels, outermost first."""
        return tuple(m for m in self.memory if m.name in ("llc", "l3", "l2") and m.capacity_bytes)

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
        """Return the device's own peak for a dtype: the tensor engine's where it has one, else the vector engine's.

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
        """Return the peak that a matrix product in ``dtype`` uses: the native one, or fp32's where that is faster.

        Raises
        ------
        UsageError
            When the device has no peak for the dtype.
        """
        return self._or_fp32(self.native_peak(dtype))

    def vector_peak(self, dtype: str) -> Peak:
        """Return the peak that vector arithmetic in ``dtype`` uses: fp32's where the engine lacks the dtype.

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
        """Return fp32's vector peak where a narrow dtype is slower: frameworks then convert and compute in fp32."""
        fp32 = self.find_peak("fp32", "vector")
        narrow = peak.engine == "vector" and peak.dtype in ("fp16", "bf16", "fp8")
        return fp32 if fp32 and narrow and peak.flop_per_s < fp32.flop_per_s else peak

    def lacks(self, dtype: str, engine: Engine | None = None) -> UsageError:
        """Build the error for a dtype (on an engine) that this device has no peak for."""
        where = f" on its {engine} engine" if engine else ""
        has = sorted({p.dtype for p in self.peaks if engine in (None, p.engine)})
        return UsageError(
            f"{self.name} has no peak for dtype {dtype!r}{where}.",
            remedy=f"It has: {', '.join(has) or 'none'}.",
        )


Given = ParamSpec("Given")
Made = TypeVar("Made")


def cached_per_machine(
    function: Callable[Concatenate[Hardware, Given], Made],
) -> Callable[Concatenate[Hardware, Given], Made]:
    """Decorate a function of a machine and hashable arguments: each result is made once, and lives with the machine.

    For what follows from a machine alone and every prediction on it needs.
    """

    @functools.wraps(function)
    def kept(hardware: Hardware, /, *given: Given.args, **named: Given.kwargs) -> Made:
        known: dict[Any, Made] = vars(hardware).setdefault("_made", {})
        key = (function, *given, *named.items())
        if key not in known:
            known[key] = function(hardware, *given, **named)
        return known[key]

    return kept
