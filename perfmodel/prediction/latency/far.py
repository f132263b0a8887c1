"""Exchanges that nobody measured, and how much less sure they are.

They cross a bridge or another switch, join more GPUs than those of the tables, leave the host over NVLink or the node
over a network, or run in another installation of NCCL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perfmodel.core.hardware import Hardware, Link
from perfmodel.core.units import format_si, network_text
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import anywhere
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.between_nodes import spread_on, within
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.protocols import PAIR, is_mesh_of_xgmi, is_young_switch, ringed_share
from perfmodel.prediction.topology import MOST_IN_A_HOST, network_of, peer_links

NCCL = "nccl"
#: machine -> the releases of NCCL whose rows its constants were fitted to: such rows are taken to be of those
#: installations. Three other laboratories with the second numbers of these releases on other machines or with other
#: third ones take 0.9 to 1.05 times the predicted time for large messages, where shapes differ by 0.02
MEASURED_RELEASES = {
    "a100-sxm4-80gb": ((2, 27, 3),),
    "b200-sxm-180gb": ((2, 27, 3), (2, 27, 5), (2, 28, 9), (2, 29, 2)),
    "h100-sxm5-80gb": ((2, 27, 3),),
    "h200-sxm-141gb": ((2, 26, 2),),
    "l40s": ((2, 27, 3),),
}
#: what installations of one machine differ by, in their NCCL, fabric and hosts: root mean square of the medians of
#: ln(measured / predicted) of 12 sources on A100, H100, H200 and H20 (`examples/published/second.csv`), 0.28 in the
#: middle and 0.10 for large messages; at launch, where it is about starting kernels, assumed
ANOTHER_INSTALLATION = (0.15, 0.28, 0.10)
#: the most GPUs whose exchanges were measured
MEASURED_GPUS = 8
#: what a doubling of the GPUs beyond those measured adds: root mean square over machines of the mean of
#: ln(measured / predicted), of exchanges among 4 and 8 GPUs by constants fitted to rows of at most half as many:
#: all-reduce, all-gather, reduce-scatter and all-to-all of aiconfigurator @ 095f58a51c4c on A100, H100, H200, L40S and
#: B200. Two doublings add 0.31, 0.28 and 0.08: twice as much
A_DOUBLING = (0.12, 0.12, 0.06)
#: what kinds of links differ by, before two were measured: the spread of the constants of the protocols that set it in
#: each regime (`perfmodel.prediction.latency.collectives`): starts and steps with flags in the data 0.4, the share of
#: the link that these reach 0.3, that of the ring 0.15
ANOTHER_LINK = (0.40, 0.30, 0.15)
#: doublings from the GPUs measured to the 72 of an NVL72, the largest domain of a shipped machine
TO_A_RACK = math.log2(72.0 / MEASURED_GPUS)
#: what switches differ by in the share of the bandwidth that reductions in them reach, and in when libraries take them:
#: the spread of ``in_switch`` is 0.2; all-reduces of 8 MB to 34 GB among eight B200 took 1.1 to 1.5 times the predicted
#: time before what they show was counted, ln with a root mean square of 0.25 (four sources, in view)
ANOTHER_SWITCH = 0.25
#: NVLink between hosts, whose switches are those of an NVL72: all three together
BETWEEN_HOSTS = (
    math.hypot(TO_A_RACK * A_DOUBLING[0], ANOTHER_LINK[0]),
    math.hypot(TO_A_RACK * A_DOUBLING[1], ANOTHER_LINK[1]),
    math.hypot(TO_A_RACK * A_DOUBLING[2], ANOTHER_LINK[2], ANOTHER_SWITCH),
)
#: the smallest message whose reduction in a switch constants were fitted to, that of Hopper [B]. On B200 the fitted
#: half of the shapes has one size above it, among four GPUs
REDUCED_BYTES = 2.0**22
#: what networks between nodes differ by in their steps and in the share of their rate that messages reach: root mean
#: square of the medians of ln(measured / predicted) of 17 sources of up to 64 KiB (0.61), of 9 of up to 4 MiB (0.66),
#: of 11 of up to 256 MiB (0.27) and of 15 of more (0.23), published rows (`examples/published`), with what
#: installations and shapes differ by. A message of 4 MiB may be a large one
NETWORKS = (0.50, 0.50, 0.40)
#: what hosts differ by in the way between two of their GPUs without NVLink, which the tables have of one kind: two
#: sources of large messages take 1.7 and 2.7 times the predicted time, ln with a root mean square of 0.78, and two
#: whose authors ask what is wrong 9 and 27 times; small messages 1.2 times (one source, the rest assumed;
#: `examples/published`, in view). In some hosts GPUs read one another's memory, in others they copy through the host's
PAIRS_OF_HOSTS = (0.20, 0.75, 0.75)
#: what RCCL may do elsewhere among numbers of GPUs of a full mesh for which it closes no rings over all links: the fall
#: to a sixth of the bandwidth is that of one laboratory and release, so that the interval reaches such rings
UNRINGED = (0.20, 0.60, 0.80)
#: the fewest GPUs for which a reduction in the switch moves less
REDUCED_GPUS = 4


def _has_bridges(hardware: Hardware) -> bool:
    return any(link.is_bridge for link in hardware.links)


def _is_pcie(link: Link) -> bool:
    return link.name == "pcie"


def _has_pcie(hardware: Hardware) -> bool:
    return any(map(_is_pcie, hardware.links))


def _over_a_bridge(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether bytes cross a bridge between few cards, where all tables of NVLink have switches."""
    return _crossing(within(op, machine), machine, lambda link: link.is_bridge)


def _has_another_switch(hardware: Hardware) -> bool:
    return any(map(is_young_switch, hardware.links))


def _by_another_switch(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether a switch may reduce whose reductions were not fitted: Blackwell's, of which the judged half tells.

    What kinds of links differ by between hosts, `BETWEEN_HOSTS`, holds it.
    """
    node = within(op, machine)
    large = (node.num_gpus >= REDUCED_GPUS) & (node.num_gpus <= MOST_IN_A_HOST) & (node.bytes >= REDUCED_BYTES)
    return large & _crossing(node, machine, is_young_switch) if anywhere(large) else False


def _pair_through_host(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether two GPUs without a link of their own exchange in a host that is not known to be one of those measured."""
    node = within(op, machine)
    pair = node.num_gpus == PAIR
    if not anywhere(pair):
        return False
    return pair & _crossing(node, machine, _is_pcie) & _elsewhere(op, machine, conditions)


def _has_mesh(hardware: Hardware) -> bool:
    return is_mesh_of_xgmi(hardware.links)


def _without_rings(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether GPUs exchange among which RCCL closed no ring over all links of a mesh."""
    return ringed_share(within(op, machine), machine.links.values()) < 1.0


def _crossing(op: Collective, machine: Machine, of_kind: Callable[[Link], bool]) -> Any:
    """Return the points whose bytes cross links of a kind: a mask, True or False."""
    found: Any = False
    for link, here in peer_links(machine.links.values(), op.num_gpus):
        if of_kind(link):
            found = found | here
    return found


def _spans_hosts(hardware: Hardware) -> bool:
    return any((link.domain or 0) > MOST_IN_A_HOST for link in hardware.links)


def _in_a_host(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    gpus = within(op, machine).num_gpus
    return (gpus > MEASURED_GPUS) & (gpus <= MOST_IN_A_HOST)


def _between_hosts(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    return within(op, machine).num_gpus > MOST_IN_A_HOST


def _crossing_network(op: Operator, machine: Machine, *, measured: bool) -> Any:
    """Return the points that cross a network between nodes: one that was measured, or one that nobody measured."""
    assert isinstance(op, Collective)
    crosses = spread_on(op, machine).crosses
    if not anywhere(crosses):
        return False
    known = machine.hardware is not None and network_of(op, machine.hardware).deviation is not None
    return crosses if known == measured else False


def _over_measured_network(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    return _crossing_network(op, machine, measured=True)


def _over_unmeasured_network(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    return _crossing_network(op, machine, measured=False)


def _has_measured_network(hardware: Hardware) -> bool:
    return hardware.fabric is not None and hardware.fabric.deviation is not None


def _of_network(hardware: Hardware) -> tuple[float, float, float] | None:
    """Return what exchanges over the network of a machine differ by, where somebody measured it."""
    measured = hardware.fabric.deviation if hardware.fabric else None
    return None if measured is None else (measured,) * 3


def unmeasured_network(op: Operator, machine: Machine) -> tuple[Any, str]:
    """Return the points that cross a network which nobody measured, and what is assumed of it, for people."""
    assert isinstance(op, Collective)
    crosses = spread_on(op, machine).crosses
    if machine.hardware is None or not anywhere(crosses):
        return False, ""
    fabric = network_of(op, machine.hardware)
    text = (
        f"between nodes {fabric.share:.0%} of {network_text(fabric.nic_bytes_per_s or 0.0)} a GPU and "
        f"{format_si(fabric.alpha_s, 's', 3)} a step"
    )
    if fabric.deviation is not None:
        return False, f"{text}, {fabric.source}"
    return crosses, f"{text}, which no row was fitted to"


def _elsewhere(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether NCCL runs in an installation that is not known to be like one of those measured."""
    assert isinstance(op, Collective)
    if "custom" in conditions.library:
        return False
    if conditions.library != NCCL or not _is_measured(machine, conditions.release):
        return True
    return op.num_gpus > MEASURED_GPUS


def _is_measured(machine: Machine, release: tuple[int, ...]) -> bool:
    """Whether tables of the machine have rows of a release, of which two numbers are enough."""
    known = MEASURED_RELEASES.get(machine.hardware.name, ()) if machine.hardware else ()
    return len(release) > 1 and any(one[: len(release)] == release for one in known)


BETWEEN = Doubt(ErrorSource.EXTRAPOLATION, _between_hosts, BETWEEN_HOSTS, machines=_spans_hosts)
MORE = Doubt(ErrorSource.EXTRAPOLATION, _in_a_host, A_DOUBLING)
BRIDGE = Doubt(ErrorSource.LINK, _over_a_bridge, ANOTHER_LINK, machines=_has_bridges)
SWITCH = Doubt(ErrorSource.LINK, _by_another_switch, (*ANOTHER_LINK[:2], ANOTHER_SWITCH), machines=_has_another_switch)
ELSEWHERE = Doubt(ErrorSource.INSTALLATION, _elsewhere, ANOTHER_INSTALLATION)
BEYOND = Doubt(ErrorSource.NETWORK, _over_unmeasured_network, NETWORKS)
#: of the network that somebody measured, which states its own deviation
MEASURED = Doubt(
    ErrorSource.NETWORK, _over_measured_network, NETWORKS, machines=_has_measured_network, of_machine=_of_network
)
RINGS = Doubt(ErrorSource.LINK, _without_rings, UNRINGED, machines=_has_mesh)
PAIRS = Doubt(ErrorSource.HOST, _pair_through_host, PAIRS_OF_HOSTS, machines=_has_pcie)
#: of any collective, and of all-reduces
FAR = (BETWEEN, BRIDGE, PAIRS, RINGS, MORE, ELSEWHERE, BEYOND, MEASURED)
FAR_SUMS = (*FAR, SWITCH)
