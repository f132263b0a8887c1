"""The ceilings of one machine for one operator: which engine, which memory levels, which links.

One function turns counted work into the time that each ceiling alone would take, `ceiling_times`: for the bound with
the datasheet's ceilings, for the prediction with the sustained ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware, Link, MemoryLevel, Peak, cached_per_machine
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, Work, anywhere, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.operators.scales import is_microscaled


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
    if op.preferred_engine != "tensor":
        return hardware.vector_peak(op.dtype)
    peak = hardware.best_peak(op.dtype)
    return _scaled_peak(op, peak) if peak.microscaled_flop_per_s else peak


def _scaled_peak(op: Operator, peak: Peak) -> Peak:
    """Return a peak at the rate of instructions for scaled operands, where an operator has such."""
    weights, scale = getattr(op, "weight_dtype", op.dtype), getattr(op, "scale", "none")
    if not is_microscaled(op.dtype, weights, scale):
        return peak
    return replace(peak, flop_per_s=peak.microscaled_flop_per_s or peak.flop_per_s, flop_per_clock_per_sm=None)


#: the link that processes of one machine without GPUs exchange over
PROCESS_LINK = "processes"
#: links between GPUs, in the order in which collectives prefer them; "nic" leaves the node
PEER_LINKS = ("nvlink", "xgmi", "pcie", "nic", PROCESS_LINK)


def peer_links(links: Iterable[Link], num_gpus: Number) -> list[tuple[Link, bool | NDArray[np.bool_]]]:
    """Return the links that exchanges among some GPUs cross, each with the points that cross it.

    It is the first of `PEER_LINKS` that joins all of the GPUs: two cards with a bridge exchange over NVLink, and four
    of them over PCIe, since a ring over four leaves a pair. If no link joins so many, the last one takes them.
    """
    by_name = {link.name: link for link in links}
    candidates = [by_name[name] for name in PEER_LINKS if name in by_name]
    found: list[tuple[Link, bool | NDArray[np.bool_]]] = []
    left: Any = True
    for link in candidates:
        last = link is candidates[-1] or link.domain is None
        here = left if last else left & (num_gpus <= (link.domain or math.inf))
        if anywhere(here):
            found.append((link, here if isinstance(here, np.ndarray) else True))
        if last:
            break
        left = left & (here ^ True)
    return found


_LIMITERS = {str(limiter): limiter for limiter in Limiter}


def ceiling_limiter(name: str) -> Limiter:
    """Return the limiter that a ceiling stands for: compute, a memory level, or the launch; any other is a link.

    >>> ceiling_limiter("hbm"), ceiling_limiter("pcie")
    ('hbm', 'link')
    """
    return _LIMITERS.get(name, Limiter.LINK)


def link_traffic(op: Operator, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes that must cross each link of this machine [B].

    A collective crosses the first link that joins its GPUs (`peer_links`), and an all-reduce moves fewer bytes where a
    switch reduces; other operators cross the links that they name.

    Of n GPUs that bridges join in groups of k, the k GPUs of a group exchange over the bridge first, and what their
    group needs of the others arrives once, over k links (`Collective.grouped_bytes`).
    """
    if not _exchanges(type(op)):
        return op.link_traffic()
    assert isinstance(op, Collective)
    _check_reach(op, hardware)
    traffic: dict[str, Number] = {}
    for link, here in peer_links(hardware.links, op.num_gpus):
        bridges = [other for other in hardware.links if _prefers(other, link) and (other.domain or 1) > 1]
        sent = op.peer_bytes(in_switch=link.reduces_in_switch)
        if bridges:
            bridge = max(bridges, key=lambda other: other.domain or 1)
            within, sent = op.grouped_bytes(bridge.domain or 1)
            traffic[bridge.name] = traffic.get(bridge.name, 0.0) + (
                within if here is True else where(here, within, 0.0)
            )
        traffic[link.name] = sent if here is True else where(here, sent, 0.0)
    return traffic or op.link_traffic()


def link_load(op: Operator, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes of each link, in units of its whole bandwidth: more where GPUs reach a part of it only [B].

    A GPU of a mesh without a switch reaches each other one over links of their own.
    """
    traffic = link_traffic(op, hardware)
    if not _exchanges(type(op)):
        return traffic
    assert isinstance(op, Collective)
    by_name = {link.name: link for link in hardware.links if link.per_peer_bytes_per_s is not None}
    return {
        name: sent * by_name[name].bandwidth_bytes_per_s / by_name[name].rate_among(op.reached())
        if name in by_name
        else sent
        for name, sent in traffic.items()
    }


@functools.cache
def _exchanges(kind: type[Operator]) -> bool:
    """Return whether operators of a class are collectives; to ask abstract classes each time takes long."""
    return issubclass(kind, Collective)


#: the most devices of one host: 16 in a DGX-2 and in hosts with PCIe switches
MOST_IN_A_HOST = 16


def most_joined(hardware: Hardware) -> float:
    """Return how many devices links inside a node join.

    These are those of a host, or of a larger domain of NVLink (72 in an NVL72); any number on a machine with a link
    "nic", which says how its network exchanges.
    """
    if any(link.name == "nic" for link in hardware.links):
        return math.inf
    host = hardware.fabric.gpus_per_node if hardware.fabric else MOST_IN_A_HOST
    return max([host, *(link.domain or 0 for link in hardware.links)])


def _check_reach(op: Collective, hardware: Hardware) -> None:
    """Raise for an exchange among more devices than links inside a node join."""
    most = most_joined(hardware)
    if anywhere(op.num_gpus > most):
        asked = int(np.max(op.num_gpus))
        raise UsageError(
            f"{asked} GPUs are more than the {most} that links inside a node of {hardware.name} join.",
            place=op.op,
            remedy=f"Let up to {most} exchange (num_gpus, tp x dp); exchanges over a network need a cluster: "
            "pm.Cluster and perfmodel.cluster.collectives, or the commands train and search.",
        )


def _prefers(link: Link, other: Link) -> bool:
    """Return whether collectives take a link before another one."""
    return link.name in PEER_LINKS and PEER_LINKS.index(link.name) < PEER_LINKS.index(other.name)


def datasheet_ceilings(hardware: Hardware, peak: Peak | None, links: Mapping[str, Number]) -> Ceilings:
    """Return the ceilings of the datasheet, which set the bound: dense peaks, peak bandwidths, the launch floor."""
    return _datasheet_ceilings(hardware, peak, *links)


@cached_per_machine
def _datasheet_ceilings(hardware: Hardware, peak: Peak | None, *links: str) -> Ceilings:
    bandwidths = {m.name: m.bandwidth_bytes_per_s for m in hardware.memory if m.bandwidth_bytes_per_s}
    return Ceilings(
        compute=peak.flop_per_s if peak else None,
        memory=MappingProxyType(bandwidths),
        links=MappingProxyType({name: _link_rate(hardware, name) for name in links}),
        launch_s=hardware.launch.floor_s,
    )


#: shares of the datasheet that a machine that nobody measured is assumed to sustain, and its launch [s]: the medians of
#: the shipped specs that have the figure (a test recomputes them)
ASSUMED_BANDWIDTH = 0.85
ASSUMED_COMPUTE = 0.80
ASSUMED_LAUNCH_S = 2.5e-6
#: share of the datasheet that copies between host and device reach. Pinned, the median of: P100, generation 3, 12.15
#: and 12.89 of 15.75 GB/s to and from the device (github.com/mpicbg-scicomp/gearshifft, pull request 82); RTX 4090,
#: generation 4, 23.9 and 26.6 of 31.5 (github.com/NVlabs/cuda-oxide, pull request 976); A100-SXM4-40GB, 25.1 of 31.5
#: (github.com/NVIDIA/nvbandwidth, issue 42). Pageable, those of the RTX 4090 from 1 to 64 MiB: 12.9 to 18.4 to the
#: device, 9.2 to 12.3 from it; and V100, generation 3: 5 to 6 of 15.75 (github.com/rapidsai/dask-cuda, pull request 98)
ASSUMED_LINK = {"pcie": 0.80, "pcie_pageable": 0.40}


def launch_time(hardware: Hardware) -> float:
    """Return the time of starting a kernel: the specification's overhead, else the assumed one [s]."""
    overhead = hardware.launch.overhead_s
    return ASSUMED_LAUNCH_S if overhead is None else overhead


def sustained_ceilings(
    hardware: Hardware, peak: Peak | None, links: Mapping[str, Number], pinned: bool = True
) -> Ceilings:
    """Return the ceilings that good kernels reach: measured ones, else an assumed share of the datasheet's.

    Links other than PCIe keep their datasheet rate where none was measured.

    Parameters
    ----------
    pinned : whether the host memory of a copy is page-locked.
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
        kind = name if pinned else f"{name}_pageable"
        figure = hardware.sustained_links.get(kind)
        rates[name] = figure or ASSUMED_LINK.get(kind, 1.0) * rate
        used += [name] if figure else []
    used += ["launch"] if hardware.launch.overhead_s is not None else []
    memory = {name: measured.get(name, ASSUMED_BANDWIDTH * rate) for name, rate in sheet.memory.items()}
    return Ceilings(compute, memory, rates, launch_time(hardware), tuple(used))


def ceiling_times(work: Work, ceilings: Ceilings, links: Mapping[str, Number]) -> dict[str, Number]:
    """Return the time that each ceiling alone would take [s], by name.

    Every byte that crosses device memory also crosses each level between it and the processors, so all levels
    with a bandwidth see at least the compulsory traffic. Reads that a cache may serve are not in it.
    """
    times: dict[str, Number] = {}
    if ceilings.compute is not None:
        times["compute"] = work.flop / ceilings.compute
    traffic = work.least_bytes
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
        fits = size <= (math.inf if level.capacity_bytes is None else level.capacity_bytes / level.partitions)
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
    there = ", ".join(link.name for link in hardware.links)
    others = ", ".join(other for other in PEER_LINKS if other not in (name, PROCESS_LINK))
    instead = (
        f"; devices that exchange over another one have its table instead: {others}" if name == PEER_LINKS[0] else ""
    )
    raise UsageError(
        f"{hardware.name} has no link {name!r} in its specification{f' (it has: {there})' if there else ''}.",
        remedy=f"Add a [link.{name}] table with per_direction to the file{instead}.",
    )
