"""A cluster: how many GPUs, how many share a host and an NVLink domain, and the network between them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from perfmodel.core.hardware import Fabric, Hardware
from perfmodel.core.machine_parts import GPUS_IN_A_HOST, Link, accessories, reached_rate
from perfmodel.core.units import FASTEST_NETWORK, SLOWEST_NETWORK, parse_network_rate, parse_quantity
from perfmodel.core.work import plain_ints
from perfmodel.errors import UsageError, expect_numbers

#: the largest cluster that is believed
LARGEST = 10**7
#: less memory [B], or bytes of it in a second, has no host
LEAST_OF_A_HOST = 1e8


@dataclass(frozen=True)
class Cluster:
    """GPUs of one kind and what joins them.

    Attributes
    ----------
    hardware : one GPU.
    gpus : all GPUs.
    gpus_per_node : GPUs that share a host.
    nvlink_domain : the most GPUs that reach each other without the network: those of a host, or 72 in an NVL72.
    nic_bytes_per_s : bandwidth of the network of one GPU in one direction [B/s]; NaN where no network is needed.
    nic_efficiency : share of it that large messages reach.
    alpha_s : time of one step of an exchange between domains [s].
    oversubscription : GPUs that share the bandwidth of one in the switches above; 1 is a full fat tree.
    source : where the figures of the network come from.
    host_memory_bytes : memory of a host [B]; NaN where nobody stated it.
    host_bytes_per_s : rate at which a host's memory is read and written by its CPUs, and by copies of all its GPUs
        together [B/s]; NaN where nobody stated it.
    """

    hardware: Hardware
    gpus: int
    gpus_per_node: int = GPUS_IN_A_HOST
    nvlink_domain: int = GPUS_IN_A_HOST
    nic_bytes_per_s: float = math.nan
    nic_efficiency: float = 0.85
    alpha_s: float = 14e-6
    oversubscription: float = 1.0
    source: str = ""
    host_memory_bytes: float = math.nan
    host_bytes_per_s: float = math.nan

    def __post_init__(self) -> None:
        counts = ("gpus", "gpus_per_node", "nvlink_domain")
        plain_ints(self, counts)
        for name in counts:
            _check_count(name, getattr(self, name))
        if not 0 < self.nic_efficiency <= 1:
            raise _wrong("nic_efficiency", self.nic_efficiency, "is not above 0 and at most 1")
        if not 0 <= self.alpha_s < 1:
            raise _wrong("alpha_s", self.alpha_s, "is not a time from 0 s to 1 s")
        if not 1 <= self.oversubscription < math.inf:
            raise _wrong("oversubscription", self.oversubscription, "is below 1")
        if self.nic_bytes_per_s <= 0:
            raise _wrong("nic_bytes_per_s", self.nic_bytes_per_s, "is not above 0")
        hosts = (
            ("host_memory", self.host_memory_bytes, "1 TiB"),
            ("host_bandwidth", self.host_bytes_per_s, "200 GB/s"),
        )
        for name, figure, usual in hosts:
            if not (math.isnan(figure) or LEAST_OF_A_HOST <= figure < math.inf):
                problem = f"{figure:g} is no host's: it is in bytes, at least 10^8."
                raise UsageError(problem, place=name, remedy=f"Write {usual}.")
        if math.isnan(self.nic_bytes_per_s) and self.gpus > self.nvlink_domain:
            raise UsageError(
                f"{self.gpus} GPUs reach beyond one node of {self.nvlink_domain} {self.hardware.name}, "
                "and its network is unknown.",
                place="cluster",
                remedy="Give the network of one GPU and direction, as in nic='400 Gb/s' (--nic 400Gb/s).",
            )

    @classmethod
    def of(
        cls,
        hardware: Hardware,
        gpus: int,
        *,
        gpus_per_node: int | None = None,
        nic: str | float | None = None,
        nvlink_domain: int | None = None,
        nic_efficiency: float | None = None,
        alpha_s: float | None = None,
        oversubscription: float | None = None,
        bridge: bool = True,
        host_memory: str | float | None = None,
        host_bandwidth: str | float | None = None,
    ) -> Cluster:
        """Return a cluster; what is not given is as the machine's specification says (``[cluster]``).

        Parameters
        ----------
        nic : network of one GPU in one direction: text in bits or bytes ("400 Gb/s"), or a number [B/s].
        nvlink_domain : by default that of the link (72 in an NVL72), or the GPUs of a node.
        bridge : whether cards in slots have the bridges of NVLink or xGMI that their specification knows.
        host_memory : of a host, "1 TiB" or a number [B].
        host_bandwidth : of a host's memory as its CPUs reach it, "200 GB/s" or a number [B/s].

        Raises
        ------
        UsageError
            For a count, rate or share that is impossible, and when the cluster needs a network that nobody gave.
        """
        numbers = {"nic_efficiency": nic_efficiency, "alpha_s": alpha_s, "oversubscription": oversubscription}
        expect_numbers(Real, **{name: value for name, value in numbers.items() if value is not None})
        if not bridge:
            optional = accessories(hardware.links)
            hardware = dataclasses.replace(hardware, links=tuple(x for x in hardware.links if x not in optional))
        fabric = hardware.fabric or Fabric()
        node = fabric.gpus_per_node if gpus_per_node is None else gpus_per_node
        given: object = nic  # from a file, perhaps of another type
        known = isinstance(given, str | Real | None) and not isinstance(given, bool)
        # a number is in B/s: one that is meant in Gb/s is far below any network
        number: Any = given if isinstance(given, Real) else 0
        small_or_large = 0 < number < SLOWEST_NETWORK or number > FASTEST_NETWORK
        if not known or small_or_large:
            remedy = "Write it as in '400 Gb/s'; a number is in B/s, as 50e9."
            raise UsageError(f"nic = {str(given)[:40]} is no rate of a GPU's network.", place="cluster", remedy=remedy)
        rate = parse_network_rate(nic, place="nic") if isinstance(nic, str) else nic
        if rate is not None and rate > 0.0:
            fabric = fabric.at(rate)
        return cls(
            hardware=hardware,
            gpus=gpus,
            gpus_per_node=node,
            nvlink_domain=_domain(hardware, node) if nvlink_domain is None else nvlink_domain,
            nic_bytes_per_s=float(_first(rate, fabric.nic_bytes_per_s, math.nan)),
            nic_efficiency=float(_first(nic_efficiency, fabric.nic_efficiency)),
            alpha_s=float(_first(alpha_s, fabric.alpha_s)),
            oversubscription=float(_first(oversubscription, fabric.oversubscription)),
            source=fabric.source if rate is None else "",
            host_memory_bytes=math.nan if host_memory is None else _of_host(host_memory, "B", "host_memory"),
            host_bytes_per_s=math.nan if host_bandwidth is None else _of_host(host_bandwidth, "B/s", "host_bandwidth"),
        )

    @property
    def sharing_host(self) -> int:
        """GPUs of the cluster that share a host."""
        return min(self.gpus, self.gpus_per_node)

    @property
    def host_memory_per_gpu(self) -> float:
        """Memory of the host for each GPU, as stated or by the machine's specification; infinite where unknown [B]."""
        if not math.isnan(self.host_memory_bytes):
            return self.host_memory_bytes / self.sharing_host
        return (self.hardware.fabric.host_memory_bytes if self.hardware.fabric else None) or math.inf

    @property
    def name(self) -> str:
        """The cluster for people: "512 x h100-sxm5-80gb"."""
        return f"{self.gpus} x {self.hardware.name}"

    @property
    def machine(self) -> Hardware:
        """One of its GPUs, with the hosts and the network of the cluster in its specification.

        What the network of the GPU's machine was measured to differ by holds for that network alone.
        """
        own = self.hardware.fabric or Fabric()
        fabric = dataclasses.replace(
            own.at(self.nic_bytes_per_s),
            gpus_per_node=self.gpus_per_node,
            nic_bytes_per_s=None if math.isnan(self.nic_bytes_per_s) else self.nic_bytes_per_s,
            nic_efficiency=self.nic_efficiency,
            alpha_s=self.alpha_s,
            oversubscription=self.oversubscription,
            source=self.source,
        )
        return dataclasses.replace(self.hardware, fabric=fabric, links=self._links_in_a_host(own.gpus_per_node))

    def _links_in_a_host(self, usual: int) -> tuple[Link, ...]:
        """Return the links of a GPU, without those of a board or bridge for which a host has too few GPUs.

        ``usual`` is how many share a host as the machine's specification says: a link that joins more joins hosts.
        """
        links = []
        for link in self.hardware.links:
            if link.domain is None or link.domain > usual or link.domain <= self.gpus_per_node:
                links.append(link)
            elif self.gpus_per_node > 1:
                links.append(dataclasses.replace(link, domain=self.gpus_per_node))
        return tuple(links)

    @property
    def network_bytes_per_s(self) -> float:
        """Bandwidth of one GPU's network that large messages reach [B/s]."""
        return reached_rate(self.nic_bytes_per_s, self.nic_efficiency, self.oversubscription)

    def resized(self, gpus: int) -> Cluster:
        """Return the same kind of cluster with another number of GPUs."""
        return dataclasses.replace(self, gpus=gpus)


def _domain(hardware: Hardware, node: int) -> int:
    """Return how many GPUs reach each other over NVLink: a rack's where the link says so, else those of a node."""
    domains = [link.domain for link in hardware.links if link.name == "nvlink" and link.domain]
    return max([node, *(domain for domain in domains if domain > GPUS_IN_A_HOST)])


def _of_host(value: object, unit: str, name: str) -> float:
    """Return a figure of a host in SI units; from a file it may be of another type."""
    if isinstance(value, str):
        return parse_quantity(value, unit, place=name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        remedy = "Write host_memory = '1 TiB', host_bandwidth = '200 GB/s'."
        raise UsageError(f"{name} = {str(value)[:40]} is no quantity.", place="cluster", remedy=remedy)
    return float(value)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        problem = f"{name} = {value!r} is not a whole number from 1 to 10^7."
        raise UsageError(problem, place="cluster", remedy=f"Write {name} = 8.")


def _wrong(name: str, value: float, problem: str) -> UsageError:
    return UsageError(f"{name} = {value:g} {problem}.", place="cluster")
