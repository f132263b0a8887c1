"""Exchanges among the GPUs of a cluster, within a domain of NVLink and beyond it.

Within a domain the time is that of `perfmodel.prediction`. Beyond it a ring crosses the network, and every GPU of a
domain that takes part brings its own network: a group with 8 GPUs a node has 8 of them, one with a single GPU a node
(data parallelism beside 8 tensor parallel ranks) has one. Where domains have unequally many GPUs, the one with the
fewest networks bounds the ring.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.all_gather import AllGather
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.collective import Collective
from perfmodel.operators.reduce_scatter import ReduceScatter
from perfmodel.prediction.network import SEND_RECV, Algorithm, Network, crossing
from perfmodel.prediction.predict import predict
from perfmodel.prediction.topology import most_joined

#: time of a step of a ring inside a domain [s]: NCCL src/graph/tuning.cc, hwLat of NVLink, protocol Simple
NVLINK_STEP_S = 3.4e-6
#: an exchange whose time the links set, not its start [B]
_LARGE_BYTES = 2**28
_KINDS: dict[str, type[Collective]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "alltoall": Alltoall,
}


@dataclass(frozen=True)
class Group:
    """GPUs that exchange: every ``stride``-th GPU, ``ranks`` of them.

    Attributes
    ----------
    cluster : the GPUs and their links.
    ranks : GPUs of the group.
    stride : distance between neighbours in the numbering of the GPUs.
    """

    cluster: Cluster
    ranks: int
    stride: int = 1

    @property
    def inside(self) -> int:
        """GPUs of the group in one domain of NVLink; in the one with the fewest, where they are unequal."""
        return min(self.ranks, self._spread[0])

    @property
    def domains(self) -> int:
        """Domains that the group reaches over."""
        return math.ceil(self.ranks / self._spread[1]) if self.crosses else 1

    @property
    def _spread(self) -> tuple[int, int]:
        return _spread(self.cluster.gpus // self.stride, self.cluster.nvlink_domain // self.stride)

    @property
    def crosses(self) -> bool:
        """Whether the group leaves the domain."""
        return self.ranks > self.inside


@functools.lru_cache(maxsize=4096)
def _spread(blocks: int, room: int) -> tuple[int, int]:
    """Return the fewest and the most blocks of GPUs of a domain: as few domains as hold all, equally filled.

    Of an NVL72, 64 where a job has 256 GPUs; of nodes of 8, 6 and 7 where it has 13.

    Parameters
    ----------
    blocks : of the job; each is as many neighbours as a group has one rank among.
    room : blocks that a domain has room for; 0 where one block reaches beyond it.
    """
    domains = math.ceil(max(1, blocks) / max(1, room))
    return max(1, blocks // domains), max(1, math.ceil(blocks / domains))


@cached_per_machine
def _inside_time(hardware: Hardware, kind: str, message_bytes: int, ranks: int) -> float:
    """Return the time of an exchange of GPUs that one domain joins [s]."""
    op = _KINDS[kind](bytes=message_bytes, num_gpus=min(ranks, _most_inside(hardware)))
    return float(predict(op, hardware).predicted_time_s)


@cached_per_machine
def exchange_variances(hardware: Hardware, ranks: int) -> Mapping[ErrorSource, float]:
    """Return source -> variance of ln(measured / predicted) of a large exchange of GPUs that one domain joins."""
    found = predict(AllReduce(bytes=_LARGE_BYTES, num_gpus=min(ranks, _most_inside(hardware))), hardware)
    return {source: float(value) for source, value in found.uncertainty.variances(found.regime).items()}


def _most_inside(hardware: Hardware) -> int:
    """Return the most GPUs of one exchange that are predicted: those of a host, or of a larger domain of NVLink.

    Bridges join two of a host's GPUs; the others exchange through the host, as `predict` knows. More than the machine's
    specification joins, as where a cluster states a larger domain, would cross the network to `predict`.
    """
    largest = max([8, *(link.domain or 8 for link in hardware.links if link.name == "nvlink")])
    return max(2, min(largest, most_joined(hardware)))


def exchange_time(group: Group, kind: str, message_bytes: float, algorithm: str = Algorithm.RING) -> float:
    """Return the time of a collective [s].

    Parameters
    ----------
    kind : "all_reduce", "all_gather", "reduce_scatter" or "alltoall".
    message_bytes : the larger of a rank's send and receive buffers, as nccl-tests counts it [B].
    algorithm : of an all-reduce beyond a domain, see `Algorithm`. Others are rings or, for alltoall, direct.

    Beyond a domain it is the larger of the part inside and that on the network (`perfmodel.prediction.network`), and of
    hierarchical all-reduces, whose parts run one after the other, their sum.
    """
    if group.ranks <= 1 or message_bytes <= 0:
        return 0.0
    size = max(1, round(message_bytes))
    if not group.crosses:
        return _inside_time(group.cluster.hardware, kind, size, group.ranks)
    inside = _inside_time(group.cluster.hardware, kind, size, group.inside) if group.inside > 1 else 0.0
    between = _between_time(group, kind, message_bytes, algorithm)
    return inside + between if algorithm == Algorithm.HIERARCHICAL else max(inside, between)


def _between_time(group: Group, kind: str, message_bytes: float, algorithm: str = Algorithm.RING) -> float:
    """Return the time that the exchange takes on the network [s]."""
    cluster = group.cluster
    network = Network(group.ranks, group.inside, group.domains, cluster.network_bytes_per_s, cluster.alpha_s)
    return float(crossing(network, kind, message_bytes, algorithm, NVLINK_STEP_S).time_s)


def best_exchange_time(group: Group, kind: str, message_bytes: float) -> float:
    """Return the time of a collective as a library chooses it: ring, or for an all-reduce tree where that is faster."""
    if kind != "all_reduce" or not group.crosses:
        return exchange_time(group, kind, message_bytes)
    return min(exchange_time(group, kind, message_bytes, algorithm) for algorithm in (Algorithm.RING, Algorithm.TREE))


def send_time(group: Group, message_bytes: float) -> float:
    """Return the time of sending a message to the next GPU of a group, over NVLink or the network [s]."""
    if group.ranks <= 1 or message_bytes <= 0:
        return 0.0
    if not group.crosses:
        return NVLINK_STEP_S + message_bytes / _link_rate(group.cluster.hardware)
    return _between_time(group, SEND_RECV, message_bytes)


#: share of a link's datasheet bandwidth that a message between two GPUs reaches: as the rings of all-gathers on H100
_POINT_SHARE = 0.8


def _link_rate(hardware: Hardware) -> float:
    """Return the bandwidth between two GPUs of a domain [B/s]: of links between each two of them, that of one pair."""
    rates = {link.name: float(link.rate_among(2)) for link in hardware.links}
    best = rates.get("nvlink") or rates.get("xgmi") or rates.get("pcie") or max(rates.values(), default=1e10)
    return _POINT_SHARE * best
