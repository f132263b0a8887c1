"""The parts of a machine as its specification states them: memory levels, peaks, links, launches, fabric, kernels.

Three kinds of figure are kept apart: *datasheet* figures (``MemoryLevel.bandwidth_bytes_per_s``,
``Peak.flop_per_s``) set bounds; *sustained* ceilings, which a good microbenchmark reaches, make predictions; and
capacities say what fits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from perfmodel.core.work import Number, maximum, minimum

Engine = str  # "tensor" or "vector"
ENGINES: tuple[Engine, ...] = ("tensor", "vector")


@dataclass(frozen=True)
class MemoryLevel:
    """One level of the memory hierarchy of one device.

    Attributes
    ----------
    name : "hbm" (device memory, of whatever technology), "llc", "l2", "l1", "shared", "registers"; "dram" on a CPU.
    capacity_bytes : capacity of the level over the whole device [B].
    bandwidth_bytes_per_s : the vendor's peak [B/s], or None where no source gives one.
    sustained_bytes_per_s : the best measured bandwidth [B/s], or None.
    partitions : parts that do not share what they hold (the L2 of each chiplet); data that all processors read
        must fit in one of them.
    copies : copies of a line that the level holds when all processors read it: 2 where each half of an L2 keeps its
        own (A100, H100).
    delivered : share of the peak that streams reach, over what they reach by usual memory controllers, where the vendor
        states it (P100); bounds do not use it.
    shared_with_host : whether it is the memory of the CPU, too, so that copies between both stay within it.
    """

    name: str
    capacity_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    sustained_bytes_per_s: float | None = None
    technology: str = ""
    partitions: int = 1
    copies: int = 1
    delivered: float = 1.0
    source: str = ""
    note: str = ""
    shared_with_host: bool = False


@dataclass(frozen=True)
class Peak:
    """The dense peak rate of one dtype on one engine; a fused multiply-add is 2 FLOP.

    ``flop_per_clock_per_sm`` and ``clock_hz`` let the peak be recomputed: SMs x FLOP per clock x clock.
    ``sparse_2to4_flop_per_s`` is the vendor's figure with 2:4 structured sparsity; no bound uses it.
    ``microscaled_flop_per_s`` is the rate where both operands have a scale for every 32 numbers or fewer along k, if
    instructions for such operands have another rate.
    ``packed`` is the number of results of one lane and clock that the rate counts: 2 where it counts packed
    instructions, which not every operation has.
    """

    dtype: str
    engine: Engine
    flop_per_s: float
    flop_per_clock_per_sm: float | None = None
    clock_hz: float | None = None
    sustained_flop_per_s: float | None = None
    sparse_2to4_flop_per_s: float | None = None
    microscaled_flop_per_s: float | None = None
    packed: float = 1.0
    source: str = ""
    note: str = ""

    def __hash__(self) -> int:
        """Return the hash of what tells the peaks of a machine apart, since every prediction looks up by its peak."""
        return hash((self.dtype, self.engine))


#: the most cards that a bridge of NVLink joins: two of most generations, four H200 NVL
BRIDGED = 4


#: collectives that a specification may have a line of
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")


@dataclass(frozen=True)
class ExchangeLine:
    """What one collective takes over a link, as measured: t = latency x steps + V / bandwidth.

    V are the bytes that a rank sends, steps those of the ring (`perfmodel.operators.collective.Collective`).

    Attributes
    ----------
    latency_s : time of one step without its bytes, the start of the kernels included [s].
    bandwidth_bytes_per_s : of a rank [B/s].
    deviation : of ln(measured / predicted) of sizes that were left out of the fit; 1.28 times it is half of their 80 %
        interval.
    ranks : how many ranks exchanged; the line is of no other number.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    deviation: float
    ranks: int


@dataclass(frozen=True)
class Link:
    """A link off the device.

    Attributes
    ----------
    bandwidth_bytes_per_s : bandwidth per direction and per device, over all its peers [B/s].
    reduces_in_switch : whether the link ends in a switch that adds up what it forwards (NVLink SHARP).
    domain : the most devices that reach each other over the link: 2 across a bridge, 72 in an NVL72; None for those of
        a node.
    per_peer_bytes_per_s : the most per direction between two devices where no switch joins them [B/s]; None where any
        two reach the whole bandwidth.
    latency_s : measured time of one step of an exchange between two devices, without its bytes [s]; None where nobody
        measured it.
    lines : collective -> its own measured latency and bandwidth; others have those of the link.
    technology : what the link is where that is not its name: "NVLink-C2C" of one that a superchip has in place of PCIe.
    """

    name: str
    bandwidth_bytes_per_s: float
    reduces_in_switch: bool = False
    source: str = ""
    note: str = ""
    domain: int | None = None
    per_peer_bytes_per_s: float | None = None
    latency_s: float | None = None
    lines: Mapping[str, ExchangeLine] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    technology: str = ""

    def rate_among(self, devices: Number) -> Number:
        """Return the bandwidth per direction of a device that exchanges with so many, itself among them [B/s].

        Without a switch it reaches each of them over links of their own; devices that take no part relay nothing.
        """
        if self.per_peer_bytes_per_s is None:
            return self.bandwidth_bytes_per_s
        return minimum(self.bandwidth_bytes_per_s, maximum(devices - 1.0, 1.0) * self.per_peer_bytes_per_s)

    @property
    def is_full_mesh(self) -> bool:
        """Whether each two devices have links of their own: those to all peers fit into the bandwidth of a device.

        In a hybrid cube mesh (DGX-1) they do not: some pairs have two links, some none.
        """
        if self.per_peer_bytes_per_s is None or self.domain is None:
            return self.per_peer_bytes_per_s is not None
        return (self.domain - 1) * self.per_peer_bytes_per_s <= 1.01 * self.bandwidth_bytes_per_s

    @property
    def is_bridge(self) -> bool:
        """Whether it is an accessory, NVLink that joins a few cards."""
        return self._joins_few and self.per_peer_bytes_per_s is None

    @property
    def joins_a_board(self) -> bool:
        """Whether it is NVLink between each two of the few GPUs of a board, which its specification states per peer."""
        return self._joins_few and self.per_peer_bytes_per_s is not None

    @property
    def _joins_few(self) -> bool:
        return self.name == "nvlink" and self.domain is not None and self.domain <= BRIDGED


#: links that may be accessories -> their names as people write them
BRIDGE_NAMES: Mapping[str, str] = MappingProxyType({"nvlink": "NVLink", "xgmi": "xGMI"})


def accessories(links: Collection[Link]) -> tuple[Link, ...]:
    """Return the links that a machine may lack: bridges of NVLink or xGMI between a few cards in slots of PCIe."""
    in_slots = any(link.name == "pcie" for link in links)
    few = tuple(link for link in links if link.name == "xgmi" and link.domain is not None and link.domain <= BRIDGED)
    return (*(link for link in links if link.is_bridge), *(few if in_slots else ()))


@dataclass(frozen=True)
class Launch:
    """What starting a kernel costs.

    Attributes
    ----------
    floor_s : shortest time measured for a (nearly) empty kernel in a replayed graph [s]; part of the bound.
    overhead_s : usual time of a small kernel launched back to back on a stream [s]; part of the prediction.
    queued_s : shortest usual time of a kernel in a busy queue, where the vendor's profiler lets it begin as the one
        before ends, so that its time holds its dispatch [s]; None where a gap between kernels holds it.
    """

    floor_s: float | None = None
    overhead_s: float | None = None
    queued_s: float | None = None
    source: str = ""
    note: str = ""

    @property
    def known(self) -> dict[str, float]:
        """The times that somebody measured by their keys in a specification [s]."""
        times = {"floor": self.floor_s, "overhead": self.overhead_s, "queued": self.queued_s}
        return {key: time_s for key, time_s in times.items() if time_s is not None}


#: networks that leave a device less than this [B/s] are those of clouds, which NCCL drives by other ways than
#: InfiniBand's, or old ones. Their steps take (`SLOW_NETWORK` / rate)^`OF_SLOWER` times as long as 14 us, at most as at
#: a fourth of it, 74 us. The steps that fit published exchanges of up to 16 KiB best are, in the median of each source,
#: 102 to 122 us (four) and 38 us (a fifth) at 50 Gb/s, 102 us at 12.5 Gb/s, 33 and 30 us (two) at 100 Gb/s (EFA of P4d
#: and P3dn, Slingshot, two A40; `examples/published`)
SLOW_NETWORK, MOST_SLOWER, OF_SLOWER = 25e9, 4.0, 1.2


#: devices that share a host where a machine's specification does not say
GPUS_IN_A_HOST = 8


@dataclass(frozen=True)
class Fabric:
    """What joins devices of a kind to a cluster, as their vendor's usual systems do: ``[cluster]`` of a specification.

    Attributes
    ----------
    gpus_per_node : devices that share a host.
    nic_bytes_per_s : bandwidth of the network of one device in one direction [B/s]; None where nobody stated it.
    nic_efficiency : share of it that large messages reach.
    alpha_s : time of one step of an exchange between nodes [s].
    oversubscription : how many devices share the bandwidth of one in the switches above; 1 is a full fat tree.
    host_memory_bytes : memory of the host for a device [B]; None where nobody stated it.
    deviation : of ln(measured / predicted) of exchanges between nodes of sizes that were left out of the fit of
        efficiency and alpha; None where nobody measured this network.
    """

    gpus_per_node: int = GPUS_IN_A_HOST
    nic_bytes_per_s: float | None = None
    nic_efficiency: float = 0.85
    alpha_s: float = 14e-6
    oversubscription: float = 1.0
    host_memory_bytes: float | None = None
    deviation: float | None = None
    source: str = ""

    @property
    def share(self) -> float:
        """Share of the datasheet's bandwidth that large messages reach when all devices exchange."""
        return reached_rate(1.0, self.nic_efficiency, self.oversubscription)

    @property
    def reached_bytes_per_s(self) -> float:
        """The same as a rate of one device [B/s]; NaN where nobody stated the network."""
        return reached_rate(self.nic_bytes_per_s or math.nan, self.nic_efficiency, self.oversubscription)

    def at(self, nic_bytes_per_s: float) -> Fabric:
        """Return a network of another rate, which nobody measured.

        Its steps are those that were measured, or else longer where it is slower than `SLOW_NETWORK`.
        """
        if nic_bytes_per_s == self.nic_bytes_per_s:
            return self
        slower = min(max(SLOW_NETWORK / nic_bytes_per_s, 1.0), MOST_SLOWER) ** OF_SLOWER
        alpha_s = self.alpha_s if self.deviation is not None else slower * self.alpha_s
        return replace(self, nic_bytes_per_s=nic_bytes_per_s, alpha_s=alpha_s, deviation=None)


def reached_rate(nic_bytes_per_s: float, efficiency: float, oversubscription: float) -> float:
    """Return the rate of a device's network that large messages reach when all devices exchange [B/s]."""
    return nic_bytes_per_s * efficiency / oversubscription


#: tiles of outputs as (rows, columns)
Tiles = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Kernels:
    """How the libraries' kernels for a machine are cut, read off profiles and sources; empty where nobody knows.

    Attributes
    ----------
    gemm_tiles, gemm_batched_tiles : tiles of fp32 matrix products, single and in a strided batch.
    gemm_batched_share : share of the fp32 peak that the vendor's library reaches at most in strided batches.
    fp8_tiles : library -> tiles of 8-bit products that it chooses by the rows m, each with the largest m that it
        serves.
    winograd_patches : (images, rows, columns) of outputs that one block of a fused Winograd kernel may cover.
    winograd_tiles : tiles, in outputs x filters, of the fp32 products of Winograd's transformed images.
    softmax_threads : threads of a block of softmax where it has as many for every row, and keeps rows of whole
        vectors in shared memory.
    widens_fp8_keys : whether attention converts 8-bit keys and values to 16 bits in software.
    translation_cost : time that single fp32 products take longer by where address translation reaches none of a wave's
        rows, over the arithmetic's.
    channel_cost : time that single fp32 products take longer by where their rows lie multiples of 256 KiB apart, and so
        meet in one channel of memory, over the arithmetic's.
    reread_cost : time that single fp32 products off cache lines take to read their weights again for every 128 rows,
        over the arithmetic's, where k is 256.
    ragged_batch_cost : time that batches of fp32 products take longer by where neither side of B is a multiple of 32,
        over the arithmetic's.
    small_batch_cost : time that batches of small fp32 products take longer by, those with up to 512 rows, columns and
        length of k of which B is the largest matrix or has over 49,152 elements, over the arithmetic's.
    averages_power : whether the power limit holds for the mean over calls and the pauses between them, so that short
        calls of a framework run at the full clock.
    """

    gemm_tiles: Tiles = ()
    gemm_batched_tiles: Tiles = ()
    gemm_batched_share: float = 1.0
    fp8_tiles: Mapping[str, tuple[tuple[int, int, float], ...]] = field(default_factory=lambda: MappingProxyType({}))
    winograd_patches: tuple[tuple[int, int, int], ...] = ()
    winograd_tiles: Tiles = ()
    softmax_threads: int | None = None
    widens_fp8_keys: bool = False
    translation_cost: float = 0.0
    channel_cost: float = 0.0
    reread_cost: float = 0.0
    small_batch_cost: float = 0.0
    ragged_batch_cost: float = 0.0
    averages_power: bool = False
