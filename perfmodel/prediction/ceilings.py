"""The ceilings of one machine for one operator: which engine, which memory levels, which links.

One place turns counted work into the time that each ceiling alone would take. The bound takes the
datasheet's ceilings, the prediction the sustained ones; both go through `ceiling_times`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware, MemoryLevel, Peak, cached_per_machine
from perfmodel.core.work import Number, Work, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective


@dataclass(frozen=True)
class Ceilings:
    """The rates that limit an operator, in B/s and FLOP/s, named by what limits.

    ``compute`` is None for an operator that computes nothing.
    """

    compute: float | None
    memory: Mapping[str, float]
    links: Mapping[str, float]
    launch_s: float | None
    #: names of the ceilings for which a measured figure stands in place of the datasheet's
    sustained: tuple[str, ...] = ()


def resolve_peak(op: Operator, hardware: Hardware) -> Peak:
    """Return the peak that an operator's arithmetic runs on.

    Matrix products take the tensor engine where it has the dtype, otherwise the vector engine. Vector
    arithmetic in a dtype that the vector engine lacks, or is slower in, is done in fp32, as frameworks do.
    ``op.engine`` overrides the choice.

    Raises
    ------
    UsageError
        When the hardware has no such peak.
    """
    if op.engine != "auto":
        peak = hardware.find_peak(op.dtype, op.engine)
        if peak is None:
            raise hardware.lacks(op.dtype, op.engine)
        return peak
    return hardware.best_peak(op.dtype) if op.preferred_engine == "tensor" else hardware.vector_peak(op.dtype)


#: links between the GPUs of a node, the one that collectives prefer first
PEER_LINKS = ("nvlink", "xgmi", "pcie")
#: NVLink of 450 GB/s per direction and more (Hopper SXM and later) ends in an NVSwitch of the third generation, the
#: first that reduces in the switch; bridges and older switches run at 300 GB/s at most [B/s]
REDUCING_NVLINK = 400e9


def peer_link(links: Iterable[str]) -> str:
    """Return the link among these that collectives use: the fastest between GPUs; "nvlink" where there is none."""
    names = tuple(links)
    return next((name for name in PEER_LINKS if name in names), PEER_LINKS[0])


def reduces_in_switch(links: Mapping[str, float]) -> bool:
    """Whether the GPUs of a machine with these links [B/s] meet in a switch that can reduce (NVLink SHARP)."""
    return links.get("nvlink", 0.0) >= REDUCING_NVLINK


def link_traffic(op: Operator, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes that have to cross each link of this machine [B].

    A collective crosses the fastest link between GPUs that the machine has, and an all-reduce moves fewer bytes
    where a switch reduces; everything else crosses the links that the operator names.
    """
    if not isinstance(op, Collective):
        return op.link_traffic()
    rates = {link.name: link.bandwidth_bytes_per_s for link in hardware.links}
    return {peer_link(rates): op.peer_bytes(in_switch=reduces_in_switch(rates))}


def datasheet_ceilings(hardware: Hardware, peak: Peak | None, links: Mapping[str, Number]) -> Ceilings:
    """Return the ceilings of the datasheet, which bound: dense peaks, peak bandwidths, the launch floor."""
    return Ceilings(
        compute=peak.flop_per_s if peak else None,
        memory=_bandwidths(hardware),
        links={name: _link_rate(hardware, name) for name in links},
        launch_s=hardware.launch.floor_s,
    )


@cached_per_machine
def _bandwidths(hardware: Hardware) -> Mapping[str, float]:
    """Return the datasheet bandwidth of each memory level that has one [B/s]."""
    return MappingProxyType({m.name: m.bandwidth_bytes_per_s for m in hardware.memory if m.bandwidth_bytes_per_s})


#: What a machine that nobody measured is assumed to sustain of its datasheet, and to need for a launch [s]: the
#: medians of the shipped specs that have the figure (a test recomputes them).
ASSUMED_BANDWIDTH = 0.85
ASSUMED_COMPUTE = 0.80
ASSUMED_LAUNCH_S = 2.5e-6


def launch_time(hardware: Hardware) -> float:
    """Return what starting a kernel takes: the spec's overhead, else the assumed one [s]."""
    overhead = hardware.launch.overhead_s
    return ASSUMED_LAUNCH_S if overhead is None else overhead


def sustained_ceilings(
    hardware: Hardware, peak: Peak | None, links: Mapping[str, Number], pinned: bool = True
) -> Ceilings:
    """Return the ceilings that good kernels reach: measured ones, else an assumed share of the datasheet's.

    A link that was not measured keeps its datasheet rate: there is nothing to assume its share from.
    """
    sheet = datasheet_ceilings(hardware, peak, links)
    measured = {m.name: m.sustained_bytes_per_s for m in hardware.memory if m.sustained_bytes_per_s}
    used = [name for name in sheet.memory if name in measured]
    compute = None
    if peak:
        compute = peak.sustained_flop_per_s or ASSUMED_COMPUTE * peak.flop_per_s
        used += ["compute"] if peak.sustained_flop_per_s else []
    rates = {}
    for name, rate in sheet.links.items():
        figure = hardware.sustained_links.get(name if pinned else f"{name}_pageable")
        rates[name] = figure or rate
        used += [name] if figure else []
    used += ["launch"] if hardware.launch.overhead_s is not None else []
    memory = {name: measured.get(name, ASSUMED_BANDWIDTH * rate) for name, rate in sheet.memory.items()}
    return Ceilings(compute, memory, rates, launch_time(hardware), tuple(used))


def ceiling_times(work: Work, ceilings: Ceilings, links: Mapping[str, Number]) -> dict[str, Number]:
    """Return the time that each ceiling alone would take [s], by name.

    Every byte that crosses device memory also crosses each level between it and the processors, so all levels
    with a bandwidth see at least the compulsory traffic.
    """
    times: dict[str, Number] = {}
    if ceilings.compute is not None:
        times["compute"] = work.flop / ceilings.compute
    traffic = work.bytes
    for name, rate in ceilings.memory.items():
        times[name] = traffic / rate
    for name, rate in ceilings.links.items():
        times[name] = links[name] / rate
    return times


def smallest_fit(work: Work, hardware: Hardware) -> tuple[int | NDArray[np.int8], tuple[MemoryLevel, ...]]:
    """Return which level holds the working set: an index into the levels, or -1 where none does.

    The levels, main memory and the device-wide caches, run from the outermost inwards, so the last one that
    fits is the smallest. A main memory of unknown capacity holds everything. A scalar or an array, like the work.
    """
    size = work.working_set_bytes
    whole = np.int8 if isinstance(size, np.ndarray) else int
    index: int | NDArray[np.int8] = np.full(np.shape(size), -1, np.int8) if whole is np.int8 else -1
    levels = _levels(hardware)
    for position, level in enumerate(levels):
        fits = size <= (np.inf if level.capacity_bytes is None else level.capacity_bytes / level.partitions)
        index = where(fits, whole(position), index)
    return index, levels


@cached_per_machine
def _levels(hardware: Hardware) -> tuple[MemoryLevel, ...]:
    """The main memory and the device-wide caches: the levels that can hold a working set between kernels."""
    return (hardware.main_memory, *(m for m in hardware.caches if m is not hardware.main_memory))


def _link_rate(hardware: Hardware, name: str) -> float:
    for link in hardware.links:
        if link.name == name:
            return link.bandwidth_bytes_per_s
    raise UsageError(
        f"{hardware.name} has no link {name!r} in its specification.",
        remedy=f"Add a [link.{name}] table with per_direction to the file.",
    )
