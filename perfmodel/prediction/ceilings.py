"""The ceilings of one machine for one operator: which engine, which memory levels, which links.

One function turns counted work into the time that each ceiling alone would take, `ceiling_times`: for the bound with
the datasheet's ceilings, for the prediction with the sustained ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Fabric, Hardware, Link, MemoryLevel, Peak, cached_per_machine
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, Work, anywhere, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.operators.scales import may_be_microscaled
from perfmodel.prediction.copies import stays_within
from perfmodel.prediction.relatives import launch_of_generation, sustained_bandwidth, sustained_compute
from perfmodel.prediction.topology import (
    NETWORK_LINK,
    PEER_LINKS,
    PROCESS_LINK,
    network_of,
    nic_rate,
    on_network,
    peer_links,
    spread_of,
)


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

    @functools.cached_property
    def limiters(self) -> tuple[Limiter, ...]:
        """The limiter that each ceiling stands for, in the order of `ceiling_times`."""
        compute = () if self.compute is None else ("compute",)
        return tuple(map(ceiling_limiter, (*compute, *self.memory, *self.links)))


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


def lacks_vector_rate(op: Operator, hardware: Hardware) -> bool:
    """Return whether a GPU's specification has no rate for arithmetic that goes to the vector engine by itself.

    Bytes bound it all the same, if the bandwidth is stated.
    """
    if hardware.kind != "gpu" or op.engine != "auto" or op.preferred_engine == "tensor":
        return False
    if hardware.main_memory.bandwidth_bytes_per_s is None:
        return False
    return all(hardware.find_peak(dtype, "vector") is None for dtype in (op.dtype, "fp32"))


def _scaled_peak(op: Operator, peak: Peak) -> Peak:
    """Return a peak at the rate of instructions for scaled operands, where an operator's operands may have scales.

    A kernel may give plain operands scales of one: cuBLASLt's plain products in fp8 reach 740 TFLOP/s on an RTX 5090,
    where instructions without scales have 419 (`examples/published`, gpu-flops-bench). Which kernels do is known to
    `perfmodel.prediction.latency.instructions`.
    """
    if not may_be_microscaled(op.dtype, getattr(op, "weight_dtype", op.dtype)):
        return peak
    return replace(peak, flop_per_s=peak.microscaled_flop_per_s or peak.flop_per_s, flop_per_clock_per_sm=None)


_LIMITERS = {str(limiter): limiter for limiter in Limiter}
#: a member of an enumeration takes longer to find than in this dictionary
_LINK = Limiter.LINK


def ceiling_limiter(name: str) -> Limiter:
    """Return the limiter that a ceiling stands for: compute, a memory level, or the launch; any other is a link.

    >>> ceiling_limiter("hbm"), ceiling_limiter("pcie")
    ('hbm', 'link')
    """
    return _LIMITERS.get(name, _LINK)


def link_traffic(op: Operator, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes that must cross each link of this machine [B].

    A collective crosses the first link that joins its GPUs (`peer_links`), and an all-reduce moves fewer bytes where a
    switch reduces. Other operators cross the links that they name; copies cross none where host and device share one
    memory.

    Of n GPUs that bridges join in groups of k, the k GPUs of a group exchange over the bridge first, and what their
    group needs of the others arrives once, over k links (`Collective.grouped_bytes`). Between nodes each GPU of a node
    sends its share of what leaves the node over "nic" (`Collective.leaving_bytes`).
    """
    if not _exchanges(type(op)):
        return {} if stays_within(op, hardware) else op.link_traffic()
    assert isinstance(op, Collective)
    spread = spread_of(op, hardware)
    if not anywhere(spread.crosses):
        return _node_traffic(op, hardware)
    network_of(op, hardware)
    within = op.within(spread.most)
    traffic = dict(_node_traffic(within, hardware)) if anywhere(spread.most > 1) else {}
    leaving = on_network(spread, op.leaving_bytes(spread.fewest))
    return {**traffic, NETWORK_LINK: traffic.get(NETWORK_LINK, 0.0) + leaving}


def _node_traffic(op: Collective, hardware: Hardware) -> Mapping[str, Number]:
    """Return the bytes that cross each link inside a node [B]."""
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

    A GPU of a mesh without a switch reaches each other one over links of their own. The network of a GPU has the rate
    that the operator states. Between nodes a GPU's link and its network share what it sends,

        t >= max(leaving / W, within / (B + W)),

    since it might send over the network what it has for its node, too.
    """
    traffic = link_traffic(op, hardware)
    if not traffic or not _exchanges(type(op)):
        return traffic
    assert isinstance(op, Collective)
    spread = spread_of(op, hardware)
    crossing = anywhere(spread.crosses)
    if not crossing and all(link.per_peer_bytes_per_s is None for link in hardware.links):
        return traffic
    reached = op.within(spread.most).reached() if crossing else op.reached()
    network = network_of(op, hardware).nic_bytes_per_s or 0.0 if crossing else 0.0
    loads: dict[str, Number] = {}
    for name, sent in traffic.items():
        link = next((link for link in hardware.links if link.name == name), None)
        load = sent
        if link is not None and link.per_peer_bytes_per_s is not None:
            load = load * link.bandwidth_bytes_per_s / link.rate_among(reached)
        if crossing:
            rate = _link_rate(hardware, name)
            shared = rate / network if name == NETWORK_LINK else rate / (rate + network)
            load = where(spread.crosses, load * shared, load)
        loads[name] = load
    return loads


@functools.cache
def _exchanges(kind: type[Operator]) -> bool:
    """Return whether operators of a class are collectives; to ask abstract classes each time takes long."""
    return issubclass(kind, Collective)


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


#: shares of the datasheet that a machine is assumed to sustain of whose generation nobody measured one, and its launch
#: [s]: the medians of the shipped specs that have the figure (a test recomputes them)
ASSUMED_BANDWIDTH = 0.85
ASSUMED_COMPUTE = 0.80
ASSUMED_LAUNCH_S = 2.5e-6
#: what stands for the network of a machine whose specification has none, where the operator states the rate [B/s]
UNSTATED_NETWORK = 50e9
#: share of the datasheet that copies between host and device reach. Pinned, the median of: P100, generation 3, 12.15
#: and 12.89 of 15.75 GB/s to and from the device (github.com/mpicbg-scicomp/gearshifft, pull request 82); RTX 4090,
#: generation 4, 23.9 and 26.6 of 31.5 (github.com/NVlabs/cuda-oxide, pull request 976); A100-SXM4-40GB, 25.1 of 31.5
#: (github.com/NVIDIA/nvbandwidth, issue 42). Pageable, those of the RTX 4090 from 1 to 64 MiB: 12.9 to 18.4 to the
#: device, 9.2 to 12.3 from it; and V100, generation 3: 5 to 6 of 15.75 (github.com/rapidsai/dask-cuda, pull request 98)
ASSUMED_LINK = {"pcie": 0.80, "pcie_pageable": 0.40}


def launch_time(hardware: Hardware) -> float:
    """Return the time of starting a kernel: the specification's overhead, else its generation's, else any GPU's [s]."""
    overhead = hardware.launch.overhead_s
    return launch_of_generation(hardware, ASSUMED_LAUNCH_S) if overhead is None else overhead


def sustained_ceilings(
    hardware: Hardware, peak: Peak | None, links: Mapping[str, Number], pinned: bool = True
) -> Ceilings:
    """Return the ceilings that good kernels reach: measured ones, else an assumed share of the datasheet's.

    The share is that of measured machines of its generation, where there are any (`perfmodel.prediction.relatives`).
    Links other than PCIe keep their datasheet rate where none was measured.

    Parameters
    ----------
    pinned : whether the host memory of a copy is page-locked.
    """
    sheet = datasheet_ceilings(hardware, peak, links)
    levels = {level.name: level for level in hardware.memory}
    used = [name for name in sheet.memory if levels[name].sustained_bytes_per_s]
    compute = None
    if peak:
        compute = peak.sustained_flop_per_s or sustained_compute(
            hardware, peak.engine, peak.dtype, peak.flop_per_s, ASSUMED_COMPUTE
        )
        used += ["compute"] if peak.sustained_flop_per_s else []
    rates = {}
    for name, rate in sheet.links.items():
        kind = name if pinned else f"{name}_pageable"
        figure = hardware.sustained_links.get(kind)
        share = (hardware.fabric or Fabric()).share if name == NETWORK_LINK else ASSUMED_LINK.get(kind, 1.0)
        rates[name] = figure or share * rate
        used += [name] if figure else []
    used += ["launch"] if hardware.launch.overhead_s is not None else []
    memory = {
        name: levels[name].sustained_bytes_per_s or sustained_bandwidth(hardware, levels[name], ASSUMED_BANDWIDTH)
        for name in sheet.memory
    }
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
    if name == NETWORK_LINK:
        return nic_rate(hardware) or UNSTATED_NETWORK
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
