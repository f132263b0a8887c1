"""Collectives: the fastest of the protocols that the library has, in a node and over several.

A protocol is a straight line, t = start + step (n - 1) + bytes / (share of the link's bandwidth). One that sends
flags with the data starts soon and wastes bandwidth; one that synchronises first starts late and wastes little (LL
and Simple of NCCL: Hu et al. 2025, "Demystifying NCCL", arXiv 2507.04786). The library chooses by size, so that the
time is the smallest of the lines.

Releases differ: SGLang's own all-reduce takes 2.3 to 4.6 us for the same 512 B on two H200. With a factor for each
(`protocols.SGLANG_RELEASES`) the lines leave 5.9 % of its rows on H100 and H200, 13.4 % without, and 6.0 % of
all all-reduces (718 rows that were not fitted, aiconfigurator @ 095f58a51c4c).

Which link the bytes cross depends on how many GPUs exchange (`perfmodel.prediction.topology.peer_links`). More than two
GPUs without a link of their own exchange through the host (`COLLECTIVE_HOST`), whose bridges they share. What exchanges
beyond a node take besides is in `perfmodel.prediction.latency.between_nodes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware, Link
from perfmodel.core.work import anywhere, everywhere, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import elementwise
from perfmodel.prediction.latency.between_nodes import beyond, spread_on, within
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.far import BETWEEN, BEYOND, FAR, FAR_SUMS, MEASURED, MORE, unmeasured_network
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.protocols import (
    FLAGGED,
    HOST_LINKS,
    PAIR,
    SHARING,
    SOME_RELEASE,
    Protocol,
    crowd_of,
    custom_protocols,
    custom_scale,
    custom_start,
    fastest,
    nccl_protocols,
    path_of,
    release_factor,
    rise_of,
)
from perfmodel.prediction.latency.terms import HBM, LAUNCH, SYNCHRONISATION, Terms, link_term
from perfmodel.prediction.topology import PEER_LINKS, peer_links

SERVES = {
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather",),
    "reduce_scatter": ("reduce_scatter",),
    "alltoall": ("alltoall",),
    "broadcast": ("broadcast",),
    "send_recv": ("send_recv",),
    "collective_host": ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv"),
}

TERMS = (*(link_term(name) for name in PEER_LINKS), SHARING, HBM, LAUNCH, SYNCHRONISATION)

_NCCL = (
    Constant("ll_start", "s", 3.5e-6, 0.3e-6, 50e-6, 0.4, "start of the protocol with flags in the data"),
    Constant("ll_step", "s", 1.2e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each further GPU"),
    Constant("ll_rise", "", 0.3, 0.01, 2.0, 0.5, "by which share both grow once the message is on all channels"),
    Constant("ll_share", "", 0.3, 0.02, 1.0, 0.3, "share of the link's bandwidth that it reaches"),
    Constant("start", "s", 20e-6, 1e-6, 100e-6, 0.25, "start of the protocol that synchronises first"),
    Constant("step", "s", 1.5e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each further GPU"),
    Constant("share", "", 0.77, 0.1, 1.0, 0.15, "share of the link's bandwidth that it reaches"),
)
_MID = (Constant("mid_share", "", 0.45, 0.1, 1.0, 0.2, "share that the protocol with fewer flags reaches"),)
_OWN = (Constant("own", "", 4.0, 0.5, 16.0, 0.3, "bytes of its own part that a GPU copies in a clock of an SM"),)
_REDUCTIONS = (
    Constant("in_switch", "", 0.65, 0.2, 1.0, 0.2, "share of the link's bandwidth of reductions in the switch"),
    Constant("custom_start", "s", 3.3e-6, 0.5e-6, 50e-6, 0.5, "start of a serving library's own small kernel", True),
    Constant("custom_step", "s", 3e-6, 0.05e-6, 30e-6, 0.6, "its second synchronisation"),
    Constant("custom_share", "", 0.62, 0.1, 1.0, 0.5, "share of the link's bandwidth that it reaches", True),
)
#: through the host; ``crowding`` is the library's because each library was measured in hosts of its own
_HOST = (
    Constant("ll_start", "s", 5e-6, 0.3e-6, 50e-6, 0.4, "start of the protocol with flags in the data"),
    Constant("ll_step", "s", 1.3e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each step of the ring"),
    Constant("ll_rise", "", 0.3, 0.01, 2.0, 0.1, "by which share both grow once the message is on all channels"),
    Constant("ll_share", "", 0.5, 0.02, 1.0, 0.3, "share of the link's bandwidth that it reaches"),
    Constant("start", "s", 20e-6, 1e-6, 100e-6, 0.4, "start of the protocol that synchronises first"),
    Constant("step", "s", 1.5e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each step of the ring"),
    Constant("share", "", 0.65, 0.1, 1.0, 0.15, "share of the link's bandwidth that it reaches"),
    Constant("crowding", "", 2.0, 1.0, 8.0, 0.7, "loss of bandwidth as the GPUs that share the host double", True),
)

#: an all-to-all is no ring: it starts later and waits less for each further GPU (1 KiB on 4 and 8 L40S: 10 and 13 us,
#: an all-gather 8.6 and 13.6 us)
ALLTOALL_START, ALLTOALL_STEPS = 1.6, 0.6
#: whose kernels run when a framework or a serving library is named: NCCL's, or the library's own all-reduce
KERNELS = {
    "torch": "nccl",
    "trtllm": "trtllm_custom_allreduce",
    "sglang": "sglang_custom_allreduce",
    "vllm": "vllm_custom_allreduce",
}
#: other collectives of these libraries are NCCL's
NCCL_ALONE = dict.fromkeys([*KERNELS, *KERNELS.values()], "nccl")
#: through the host all of them call NCCL. What differs is the host: the rows of a release are of one, others of two
ANY_HOST, ONE_HOST = "any host", {"nccl": (2, 27)}
_IN_ANY_HOST = dict.fromkeys(
    ["", *KERNELS, "trtllm_custom_allreduce", "sglang_custom_allreduce", "vllm_custom_allreduce"], ANY_HOST
)


def hosts_like(hardware: Hardware, library: str, dtype: str) -> tuple[str, tuple[str, ...]]:
    """Return the hosts whose constants hold for NCCL: those of the machine's own rows, else any."""
    own = hardware.latency.get(COLLECTIVE_HOST.name)
    known = own.known_libraries if own else ()
    anywhere_else = library in ONE_HOST and library not in known
    if anywhere_else or (own is None and library.partition("-")[0] in ONE_HOST):
        return ANY_HOST, (ANY_HOST,)
    return library, (library,)


def through_host(op: Operator, machine: Machine) -> Any:
    """Return the points whose GPUs of a node exchange through the host, more than a pair: a mask, True or False."""
    node = within(op, machine)
    mask: Any = False
    for link, here in peer_links(machine.links.values(), node.num_gpus):
        if link.name in HOST_LINKS:
            mask = mask | (here & (node.num_gpus > PAIR))
    return mask if isinstance(mask, np.ndarray) else bool(mask)


def _hosted(op: Operator, machine: Machine, library: str) -> Any:
    return through_host(op, machine)


def _direct(op: Operator, machine: Machine, library: str) -> Any:
    """Return the points whose GPUs exchange over a link of their own; a GPU alone copies (`memcpy.WITHIN`)."""
    assert isinstance(op, Collective)
    mask = through_host(op, machine) | (op.num_gpus == 1)
    return ~mask if isinstance(mask, np.ndarray) else not mask


@dataclass(frozen=True)
class Line:
    """Start of a kernel that some GPUs run together [s], a step of it [s], and the rate at which each sends [B/s]."""

    start_s: float
    step_s: float
    rate: float


def custom_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return start, second synchronisation and rate of kernels that read the other GPUs' memory.

    The kernels are those of `custom_protocols`. The rows of one machine say little about the second synchronisation,
    which hides behind NCCL from some size on: the step is the geometric mean of the machine's constant and the typical
    one. With either alone, one of the published sizes at which libraries change from one-shot to two-shot is missed by
    more than a factor of two.
    """
    path = path_of(within(op, machine), machine)
    scale = custom_scale(path, c)
    typical = next(constant.default for constant in _REDUCTIONS if constant.name == "custom_step")
    step = np.sqrt(typical * c["custom_step"])
    rate = c["custom_share"] * path.bandwidth
    return Line(float(custom_start(op, path, c)), float(scale * step), float(rate))


def nccl_terms(op: Collective, machine: Machine, c: Values) -> dict[str, Terms]:
    """Return the terms of NCCL's algorithms for an all-reduce in a node, of which `formula` takes the fastest."""
    node = within(op, machine)
    path = path_of(node, machine)
    return {name: fastest(op, machine, path, lines, c) for name, lines in nccl_protocols(node, path, c).items()}


def ring_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return start, step and rate of the protocol for large messages: two steps for each further GPU."""
    path = path_of(within(op, machine), machine)
    return Line(float(path.scale * c["start"]), float(path.scale * c["step"] / 2.0), float(c["share"] * path.bandwidth))


def host_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return the same through a host whose bridges more than two GPUs share; see `host_formula`."""
    node = within(op, machine)
    path = path_of(node, machine)
    rate = c["share"] * path.bandwidth / crowd_of(node, machine, c)
    return Line(float(path.scale * c["start"]), float(path.scale * c["step"]), float(rate))


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the smallest of start + step (n - 1) + V / (share B) over the protocols, and the copy of the own part.

    V is the traffic that a GPU sends (`Collective.peer_bytes`), B the datasheet bandwidth of the link that joins the
    GPUs; without a switch it is (n - 1) times that between two of them:

    - flags in the data: start and step grow by the share ``ll_rise`` as the message S spreads over the channels,
      S / (S + 16 KiB); an all-reduce sends 2 S over a tree;
    - fewer flags: for all-gather and all-to-all 1.4 times that start and the geometric mean of the steps, for an
      all-reduce 1.7 times both;
    - synchronised first: the ring of large messages;
    - all-reduce in the switch: V = S (n + 1) / n, where the machine has such a switch;
    - all-reduce kernels of a serving library (``conditions.library`` "..._custom_allreduce"): one-shot reads (n - 1) S
      and synchronises once, two-shot reads 2 S (n - 1) / n and synchronises twice; up to 8 MiB (TensorRT-LLM between
      two GPUs: 16 MB).
    """
    assert isinstance(op, Collective)
    spread, node = spread_on(op, machine), within(op, machine)
    path = path_of(node, machine)
    of_nccl = nccl_protocols(node, path, c, conditions.library)
    lines = [line for protocols in of_nccl.values() for line in protocols]
    library = KERNELS.get(conditions.library, conditions.library)
    if anywhere(spread.crosses):
        lines = beyond(lines, op, machine, spread)
    if op.op == "all_reduce" and "custom" in library and not everywhere(spread.crosses):
        lines += [
            line._replace(start=where(spread.crosses, math.inf, line.start))
            for line in custom_protocols(node, library, c, path, release_factor(library, conditions))
        ]
    return fastest(op, machine, path, lines, c)


def host_formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the smaller of start + step R + V / (share B) crowding^log2(n / 2) over the protocols, and the own part.

    The GPUs form a ring through the host with R steps: n - 1, for an all-reduce 2 (n - 1), for an all-to-all, which
    also starts later, 0.6 (n - 1). As their number doubles, the bandwidth of each is divided by ``crowding``: 1 where
    each has a path of its own, as below one PCIe switch, 2 where all share one bridge, more where the bridge also loses
    bandwidth to the contention. Cards that bridges of NVLink join count as one. Hosts differ in it more than in
    anything else: of two with 8 L40S, an all-reduce of 512 MiB took 0.65 and 0.05 s. vLLM, SGLang and TensorRT-LLM have
    no kernels of their own for it and call NCCL.
    """
    assert isinstance(op, Collective)
    spread, node = spread_on(op, machine), within(op, machine)
    path = path_of(node, machine)
    steps, ring = path.scale * node.steps(), node.peer_bytes()
    start = path.scale
    if op.op == "alltoall":
        start, steps = start * ALLTOALL_START, steps * ALLTOALL_STEPS
    crowd = crowd_of(node, machine, c)
    rise = rise_of(node, c)
    lines = [
        Protocol(
            rise * start * c["ll_start"], rise * c["ll_step"] * steps, ring / (c["ll_share"] * path.bandwidth),
            wire=FLAGGED,
        ),
        Protocol(start * c["start"], c["step"] * steps, ring / (c["share"] * path.bandwidth)),
    ]  # fmt: skip
    if anywhere(spread.crosses):
        lines = beyond(lines, op, machine, spread)
    return fastest(op, machine, path, lines, c, crowd)


def direct_link(links: Iterable[Link]) -> str:
    """Return the kind of link over which a pair of a machine's GPUs exchange; "" where there is none."""
    return next((link.name for link, _ in peer_links(links, PAIR)), "")


def host_link_of(links: Iterable[Link]) -> str:
    """Return the kind of link over which more of a machine's GPUs exchange through the host; "" where there is none."""
    return next((link.name for link in links if link.name in HOST_LINKS), "")


def _family(name: str, constants: tuple[Constant, ...]) -> Family:
    aliases = KERNELS if name == "all_reduce" else NCCL_ALONE
    return Family(
        name, constants, formula, TERMS, applies=_direct, dispatched=False,
        dispatched_like=elementwise.FAMILY, by_dtype=False, aliases=aliases,
        link=direct_link, doubts=(SOME_RELEASE, *FAR_SUMS) if name == "all_reduce" else FAR, beyond=unmeasured_network,
    )  # fmt: skip


ALL_REDUCE = _family("all_reduce", (*_NCCL, *_MID, *_REDUCTIONS))
ALL_GATHER = _family("all_gather", (*_NCCL, *_MID))
REDUCE_SCATTER = _family("reduce_scatter", (*_NCCL, *_OWN))
ALLTOALL = _family("alltoall", (*_NCCL, *_MID, *_OWN))
COLLECTIVE_HOST = Family(
    "collective_host", _HOST, host_formula, TERMS, applies=_hosted, dispatched=False,
    dispatched_like=elementwise.FAMILY, by_dtype=False,
    aliases=_IN_ANY_HOST, of_release=ONE_HOST, borrows=hosts_like, link=host_link_of,
    doubts=(BETWEEN, MORE, BEYOND, MEASURED), beyond=unmeasured_network,
)  # fmt: skip
#: nobody measured these two: the constants are the usual ones of NCCL's protocols
BROADCAST = _family("broadcast", _NCCL)
SEND_RECV = _family("send_recv", _NCCL)
FAMILIES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALLTOALL, BROADCAST, SEND_RECV, COLLECTIVE_HOST)
