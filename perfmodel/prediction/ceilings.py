"""The ceilings of one machine for one operator: which engine, which memory levels, which links.

One function turns counted work into the time that each ceiling alone would take, `ceiling_times`: for the bound with
the datasheet's ceilings, for the prediction with the sustained ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware, Link, MemoryLevel, Peak, cached_per_machine
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, Work, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective


@dataclass(frozen=True)
class Ceilings:
    """The rates that limit an operator, in B/s and FLOP/s, by the name of the level or link.

    Attributes
    ----------
    compute : peak of the engine [FLOP/s]; None for an operator that computes nothing.
    memory, links : bandwidths [B/s].
    launch_s : time of a launch [s].
    sustained : names of the ceilings that are measured figures, not the datasheet's.
    """

    compute: float | None
    memory: Mapping[str, float]
    links: Mapping[str, float]
    launch_s: float | None
    sustained: tuple[str, ...] = ()


def resolve_peak(op: Operator, hardware: Hardware) -> Peak:
    """Return the peak that an operator's arithmetic runs on.

    Matrix products run on the tensor engine where it has the dtype, otherwise on the vector engine. Vector arithmetic
    in a dtype that the vector engine lacks, or is slower in, is done in fp32, as frameworks do. ``op.engine`` overrides
    the choice.

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


#: links between the GPUs of a node, in the order in which collectives prefer them
PEER_LINKS = ("nvlink", "xgmi", "pcie")


def peer_link(names: Iterable[str]) -> str:
    """Return the link among these that collectives use: the fastest between GPUs; "nvlink" if there is none."""
    present = tuple(names)
    return next((name for name in PEER_LINKS if name in present), PEER_LINKS[0])


def reduces_in_switch(links: Iterable[Link]) -> bool:
    """Return whether the GPUs of a machine with these links meet in a switch that can reduce (NVLink SHARP)."""
    return any(link.reduces_in_switch for link in links)


_LIMITERS = {str(limiter): limiter for limiter in Limiter}


def ceiling_limiter(name: str) -> Limiter:
    """Return the limiter that a ceiling stands for: compute, a memory level, or the launch; any other is a link.

    >>> ceiling_limiter("hbm"), ceiling_limiter("pcie")
    ('hbm', 'link')
    """
    return _LIMITERS.get(name, Limiter.LINK)


def link_traffic(op: Operator, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes that must cross each link of this machine [B].

    A collective crosses the fastest link between GPUs that the machine has, and an all-reduce moves fewer bytes where a
    switch reduces; other operators cross the links that they name.
    """
    if not isinstance(op, Collective):
        return op.link_traffic()
    name = peer_link(link.name for link in hardware.links)
    return {name: op.peer_bytes(in_switch=reduces_in_switch(hardware.links))}


def datasheet_ceilings(hardware: Hardware, peak: Peak | None, links: Mapping[str, Number]) -> Ceilings:
    """Return the ceilings of the datasheet, which set the bound: dense peaks, peak bandwidths, the launch floor."""
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


#: shares of the datasheet that a machine that nobody measured is assumed to sustain, and its launch [s]: the medians of
#: the shipped specs that have the figure (a test recomputes them)
ASSUMED_BANDWIDTH = 0.85
ASSUMED_COMPUTE = 0.80
ASSUMED_LAUNCH_S = 2.5e-6


def launch_time(hardware: Hardware) -> float:
    """Return the time of starting a kernel: the specification's overhead, else the assumed one [s]."""
    overhead = hardware.launch.overhead_s
    return ASSUMED_LAUNCH_S if overhead is None else overhead


def sustained_ceilings(
    hardware: Hardware, peak: Peak | None, links: Mapping[str, Number], pinned: bool = True
) -> Ceilings:
    """Return the ceilings that good kernels reach: measured ones, else an assumed share of the datasheet's.

    A link that was not measured keeps its datasheet rate, since no median of other links is known.
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
    """Return the smallest level that holds the working set, as an index into the returned levels; -1 if none does.

    The levels, main memory and the device-wide caches, run from the outermost inwards, so that the last one that fits
    is the smallest. A main memory of unknown capacity holds everything. A scalar or an array, like the work.
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
