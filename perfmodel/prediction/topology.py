"""Which links join the GPUs of an exchange: those inside a node, and between nodes the network.

A *node* is what the fast links join: a host, or a rack of an NVL72. Each of its GPUs brings one network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Fabric, Hardware, Link, cached_per_machine
from perfmodel.core.record import record
from perfmodel.core.work import Number, anywhere, ceil, floor, where
from perfmodel.errors import UsageError
from perfmodel.operators.collective import Collective
from perfmodel.prediction.network import Network

#: the link that processes of one machine without GPUs exchange over
PROCESS_LINK = "processes"
#: what leaves a node
NETWORK_LINK = "nic"
#: links between GPUs, in the order in which collectives prefer them; "nic" leaves the node
PEER_LINKS = ("nvlink", "xgmi", "pcie", NETWORK_LINK, PROCESS_LINK)
#: the most devices that a host may have: 16 in a DGX-2 and in hosts with PCIe switches. A machine whose specification
#: has no ``[cluster]`` has `GPUS_IN_A_HOST` of them, unless its user states that more are on one node
MOST_IN_A_HOST = 16


def peer_links(links: Iterable[Link], num_gpus: Number) -> list[tuple[Link, bool | NDArray[np.bool_]]]:
    """Return the links that exchanges among some GPUs of a node cross, each with the points that cross it.

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


@cached_per_machine
def most_joined(hardware: Hardware) -> int:
    """Return how many devices links inside a node join.

    These are those of a host, or of a larger domain of NVLink (72 in an NVL72).
    """
    return _joined(hardware, (hardware.fabric or Fabric()).gpus_per_node)


def most_in_a_node(hardware: Hardware) -> int:
    """Return how many devices may share a node: `most_joined`, and any host's where the machine states none."""
    return most_joined(hardware) if hardware.fabric else _joined(hardware, MOST_IN_A_HOST)


def _joined(hardware: Hardware, in_a_host: int) -> int:
    return max([in_a_host, *(link.domain or 0 for link in hardware.links)])


@record
class Spread:
    """How the GPUs of an exchange are spread over nodes; a value for each point.

    Attributes
    ----------
    nodes : how many nodes.
    fewest, most : GPUs of the node that has the fewest of them, and the most: 6 and 7 of 13 on two nodes.
    crosses : the points that cross the network, a mask.
    """

    nodes: Number
    fewest: Number
    most: Number
    crosses: Any


def spread_of(op: Collective, hardware: Hardware | None) -> Spread:
    """Return how the GPUs of an exchange are spread over the nodes of a machine.

    ``op.nodes`` says over how many; by default they are as few as `most_joined` holds the GPUs. ``hardware`` is None
    for a machine that is made of symbols, whose nodes hold any number.

    Raises
    ------
    UsageError
        When a node has more of the GPUs than its links join.
    """
    kept: tuple[Hardware | None, Spread] | None = op.__dict__.get("_spread")
    if kept is not None and kept[0] is hardware:
        return kept[1]
    found = _spread_of(op, hardware)
    if isinstance(found.crosses, bool):  # every formula asks; arrays would stay for as long as the operator does
        op.__dict__["_spread"] = hardware, found
    return found


def _spread_of(op: Collective, hardware: Hardware | None) -> Spread:
    nodes = op.nodes
    if nodes is None:
        joined: float = math.inf if hardware is None else most_joined(hardware)
        if not anywhere(op.num_gpus > joined):
            return Spread(1.0, op.num_gpus, op.num_gpus, False)
        nodes = ceil(op.num_gpus / joined)
    most = ceil(op.num_gpus / nodes)
    if hardware is not None and anywhere(most > most_in_a_node(hardware)):
        raise _crowded(op, hardware, most, most_in_a_node(hardware))
    return Spread(nodes, floor(op.num_gpus / nodes), most, nodes > 1)


def nodes_of(hosts: int, hardware: Hardware, gpus: Number) -> int | None:
    """Return over how many nodes GPUs of some hosts are spread; None where the machine itself says it.

    It does not say it of one host that has more of them than hosts are taken to have.
    """
    if hosts == 1 and anywhere(gpus > most_joined(hardware)) and not anywhere(gpus > most_in_a_node(hardware)):
        return 1
    in_a_host = hardware.fabric.gpus_per_node if hardware.fabric else MOST_IN_A_HOST
    joined = hosts <= 1 or joins_hosts((link.domain for link in hardware.links), in_a_host)
    return None if joined else hosts


def joins_hosts(domains: Iterable[int | None], in_a_host: int = MOST_IN_A_HOST) -> bool:
    """Return whether a link joins more devices than a host has, as NVLink in an NVL72: then hosts are no nodes."""
    return any((domain or 0) > in_a_host for domain in domains)


def _crowded(op: Collective, hardware: Hardware, most: Number, joined: int) -> UsageError:
    place = int(np.argmax(most))
    sizes = (op.num_gpus, 1 if op.nodes is None else op.nodes)
    gpus, nodes = (int(np.broadcast_to(size, np.shape(most)).flat[place]) for size in sizes)
    return UsageError(
        f"nodes={nodes} of {gpus} GPUs have up to {int(np.max(most))} each, more than the {joined} that links inside a "
        f"node of {hardware.name} join.",
        place=op.op,
        remedy=f"Write nodes={-(-gpus // joined)} or more, or leave nodes out.",
    )


def network_of(op: Collective, hardware: Hardware) -> Fabric:
    """Return the network between the nodes of a machine, with the rate that the operator states, where it states one.

    Raises
    ------
    UsageError
        When neither the operator nor the specification has the rate.
    """
    fabric = hardware.fabric or Fabric()
    rate = op.nic_bytes_per_s or nic_rate(hardware)
    if rate is None:
        gpus, joined = int(np.max(op.num_gpus)), most_joined(hardware)
        over = "several nodes" if op.nodes is not None else f"more than one node of {joined}"
        one = op.nodes is None and gpus <= most_in_a_node(hardware)
        raise UsageError(
            f"{gpus} GPUs reach over {over}, and the specification of {hardware.name} has no network.",
            place=op.op,
            remedy="Give the network of one GPU and direction, as in nic=400Gb/s, or nic in a table [cluster] of the "
            f"specification.{' Where one host has them all: nodes=1.' if one else ''}",
        )
    return fabric.at(rate)


def network_between(op: Collective, hardware: Hardware, spread: Spread) -> Network:
    """Return the GPUs of an exchange with the network between their nodes.

    Raises
    ------
    UsageError
        As `network_of`.
    """
    fabric = network_of(op, hardware)
    return Network(op.num_gpus, spread.fewest, spread.nodes, fabric.reached_bytes_per_s, fabric.alpha_s)


def nic_rate(hardware: Hardware) -> float | None:
    """Return the datasheet rate of the network of one GPU and direction [B/s]; None where the machine states none."""
    if hardware.fabric and hardware.fabric.nic_bytes_per_s:
        return hardware.fabric.nic_bytes_per_s
    return next((link.bandwidth_bytes_per_s for link in hardware.links if link.name == NETWORK_LINK), None)


def inside(op: Collective, spread: Spread) -> Collective:
    """Return the exchange among the GPUs of a node, as they take part in a ring over all nodes; else the whole one."""
    return op.within(spread.most, ring=True) if anywhere(spread.crosses) else op


def on_network(spread: Spread, value: Number) -> Number:
    """Return a value at the points that cross the network, 0 elsewhere."""
    return value if spread.crosses is True else where(spread.crosses, value, 0.0)
