"""Collectives in one node: the fastest of the protocols that the library has.

A protocol is a straight line, t = start + step (n - 1) + bytes / (share of the link's bandwidth). One that sends
flags with the data starts soon and wastes bandwidth; one that synchronises first starts late and wastes little (LL
and Simple of NCCL: Hu et al. 2025, "Demystifying NCCL", arXiv 2507.04786). The library chooses by size, so that the
time is the smallest of the lines.

Which link the bytes cross depends on how many GPUs exchange (`perfmodel.prediction.ceilings.peer_links`). More than two
GPUs without a link of their own exchange through the host (`COLLECTIVE_HOST`), whose bridges they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, anywhere, maximum, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.ceilings import PEER_LINKS, peer_links
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, SYNCHRONISATION, Term, Terms, link_term

SERVES = {
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather",),
    "reduce_scatter": ("reduce_scatter",),
    "alltoall": ("alltoall",),
    "broadcast": ("broadcast",),
    "send_recv": ("send_recv",),
    "collective_host": ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv"),
}

SHARING = Term("sharing", Limiter.LINK, "GPUs that share the host's PCIe bridges")
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
    Constant("custom_share", "", 0.62, 0.1, 1.0, 0.5, "share of the link's bandwidth that it reaches"),
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

#: the clock at which starts and steps are stated, that of H100 and H200 [Hz]: they are a number of clocks, and those of
#: A100 take 1.4 times as long
CLOCK_HZ = 1.98e9
#: start and step of NCCL's protocol with flags between two H100, for which starts of other kernels are stated [s]
FLAGS_S = 6.6e-6
#: links that go through the host
HOST_LINKS = ("pcie", "nic")
#: an all-to-all is no ring: it starts later and waits less for each further GPU (1 KiB on 4 and 8 L40S: 10 and 13 us,
#: an all-gather 8.6 and 13.6 us)
ALLTOALL_START, ALLTOALL_STEPS = 1.6, 0.6
#: GPUs that exchange through the host without sharing its bridges with others
PAIR = 2.0
#: the message size at which half of the rise has occurred: 16 channels of 1 KiB [B]
CHANNELS_BYTES = 16384.0
#: start of the protocol with one flag in 128 bytes (LL128) over the one with a flag in eight, read off all-gathers and
#: all-to-alls of 0.5 to 8 MiB. Rows of reductions show no such part
MID_START = 1.4
#: a GPU's own part is copied by the few SMs that the collective has: 4 B a clock for each SM of the whole chip (from
#: two GPUs against eight, 0.96 TB/s on H100 and H200, 0.48 TB/s on A100), where a family has no constant for it
OWN_BYTES_PER_CLOCK = 4.0
#: a reduction in the switch starts later, by this factor over the ring: straight lines through the largest messages of
#: 8 H100 meet zero bytes at 68 us in the switch and 36 us in the ring, steps included
SWITCH_START = 2.0

#: whose kernels run when a framework or a serving library is named: NCCL's, or the library's own all-reduce
KERNELS = {
    "torch": "nccl",
    "trtllm": "trtllm_custom_allreduce",
    "sglang": "sglang_custom_allreduce",
    "vllm": "vllm_custom_allreduce",
}
#: other collectives of these libraries are NCCL's
NCCL_ALONE = dict.fromkeys([*KERNELS, *KERNELS.values()], "nccl")
#: through the host all of them call NCCL. What differs is the host: rows named "nccl" are of one, the others of two
ANY_HOST = dict.fromkeys(["", *KERNELS, "trtllm_custom_allreduce", "sglang_custom_allreduce", "vllm_custom_allreduce"],
                         "any host")  # fmt: skip


@dataclass(frozen=True)
class _Line:
    """One protocol: the parts of its time [s]."""

    start: Number
    steps: Number
    link: Number


@dataclass(frozen=True)
class _Path:
    """What the bytes of a collective cross, a value for each point.

    Attributes
    ----------
    links : the links and the points that cross each.
    bandwidth : of one GPU towards the others [B/s].
    scale : of starts and steps over those of `CLOCK_HZ`.
    in_switch : whether a switch may reduce.
    """

    links: list[tuple[str, Any]]
    bandwidth: Number
    scale: float
    in_switch: Any


def _path(op: Collective, machine: Machine) -> _Path:
    parts = peer_links(machine.links.values(), op.num_gpus)
    bandwidth, in_switch = np.nan, False
    for link, here in parts:
        rate: Number = link.bandwidth_bytes_per_s
        if link.per_peer_bytes_per_s is not None:
            rate = minimum(rate, np.maximum(op.num_gpus - 1.0, 1.0) * link.per_peer_bytes_per_s)
        bandwidth = where(here, rate, bandwidth)
        in_switch = where(here, link.reduces_in_switch, in_switch)
    names = [(link.name, here) for link, here in parts] or [(PEER_LINKS[0], True)]
    return _Path(names, bandwidth, CLOCK_HZ / machine.clock_hz, in_switch)


def through_host(op: Operator, machine: Machine) -> Any:
    """Return the points whose bytes go through the host in more than a pair: a mask, True or False."""
    assert isinstance(op, Collective)
    mask: Any = False
    for link, here in peer_links(machine.links.values(), op.num_gpus):
        if link.name in HOST_LINKS:
            mask = mask | (here & np.greater(op.num_gpus, PAIR))
    return mask if np.ndim(mask) else bool(mask)


def _hosted(op: Operator, machine: Machine, library: str) -> Any:
    return through_host(op, machine)


def _direct(op: Operator, machine: Machine, library: str) -> Any:
    mask = through_host(op, machine)
    return ~mask if np.ndim(mask) else not mask


def _rise(op: Collective, c: Values) -> Number:
    """Return the factor by which start and steps of the protocol with flags grow with the message."""
    return 1.0 + c["ll_rise"] * op.bytes / (op.bytes + CHANNELS_BYTES)


def _nccl(op: Collective, path: _Path, c: Values) -> list[_Line]:
    """Return NCCL's protocols: two in a ring, and the reduction in the switch where that moves fewer bytes."""
    further, ring = minimum(op.steps(), op.num_gpus - 1.0), op.peer_bytes()
    rise = path.scale * _rise(op, c)
    start, steps, link = path.scale * c["start"], path.scale * c["step"] * further, ring / (c["share"] * path.bandwidth)
    lines = [
        _Line(rise * c["ll_start"], rise * c["ll_step"] * further, ring / (c["ll_share"] * path.bandwidth)),
        _Line(start, steps, link),
    ]
    if "mid_share" in c:
        between = path.scale * np.sqrt(c["ll_step"] * c["step"]) * further
        lines.append(_Line(MID_START * rise * c["ll_start"], between, ring / (c["mid_share"] * path.bandwidth)))
    less = where(path.in_switch, op.peer_bytes(in_switch=True), ring) if anywhere(path.in_switch) else ring
    if np.any(np.less(less, ring)):
        switched = np.where(less < ring, less / (c.get("in_switch", 1.0) * path.bandwidth), link)
        lines.append(_Line(SWITCH_START * start, steps, switched))
    return lines


def _custom_scale(path: _Path, c: Values) -> float:
    """Return by how much the flags of a library's own kernels take longer than on H100."""
    return path.scale * (c["ll_start"] + c["ll_step"]) / FLAGS_S


def _custom(op: Collective, library: str, c: Values, path: _Path) -> list[_Line]:
    """Return a library's own all-reduce: each GPU reads all messages; or a part of each, and then all sums.

    Every GPU waits for the flags of all others at once, so that synchronising does not grow with their number (H100:
    4.5 us with 2 GPUs, 4.8 us with 8). These flags take as much longer than on H100 as those of NCCL do.
    TensorRT-LLM's rows have no second kind: above the first they are NCCL's.
    """
    scale = _custom_scale(path, c)
    start, rate = scale * c["custom_start"], c["custom_share"] * path.bandwidth
    lines = [_Line(start, 0.0, (op.num_gpus - 1.0) * op.bytes / rate)]
    if not library.startswith("trtllm"):
        lines.append(_Line(start, scale * c["custom_step"], op.peer_bytes() / rate))
    return lines


@dataclass(frozen=True)
class Line:
    """Start of a kernel that some GPUs run together [s], a step of it [s], and the rate at which each sends [B/s]."""

    start_s: float
    step_s: float
    rate: float


def custom_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return start, second synchronisation and rate of kernels that read the other GPUs' memory; see `_custom`.

    The rows of one machine say little about the second synchronisation, which hides behind NCCL from some size on: the
    step is the geometric mean of the machine's constant and the typical one. With either alone, one of the published
    sizes at which libraries change from one-shot to two-shot is missed by more than a factor of two.
    """
    path = _path(op, machine)
    scale = _custom_scale(path, c)
    typical = next(constant.default for constant in _REDUCTIONS if constant.name == "custom_step")
    step = np.sqrt(typical * c["custom_step"])
    return Line(float(scale * c["custom_start"]), float(scale * step), float(c["custom_share"] * path.bandwidth))


def ring_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return start, step and rate of the protocol for large messages: two steps for each further GPU."""
    path = _path(op, machine)
    return Line(float(path.scale * c["start"]), float(path.scale * c["step"] / 2.0), float(c["share"] * path.bandwidth))


def host_line(op: Collective, machine: Machine, c: Values) -> Line:
    """Return the same through a host whose bridges more than two GPUs share; see `host_formula`."""
    path = _path(op, machine)
    rate = c["share"] * path.bandwidth / _crowd(op, c)
    return Line(float(path.scale * c["start"]), float(path.scale * c["step"]), float(rate))


def _crowd(op: Collective, c: Values) -> Number:
    """Return by how much GPUs that share the host's bridges take longer: ``crowding`` for each doubling beyond two."""
    crowd: Number = np.maximum(1.0, (op.num_gpus / PAIR) ** np.log2(c["crowding"]))
    return crowd


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the smallest of start + step (n - 1) + V / (share B) over the protocols, and the copy of the own part.

    V is the traffic that a GPU sends (`Collective.peer_bytes`), B the datasheet bandwidth of the link that joins the
    GPUs; without a switch it is (n - 1) times that between two of them:

    - flags in the data: start and step grow by the share ``ll_rise`` as the message S spreads over the channels,
      S / (S + 16 KiB);
    - fewer flags, for all-gather and all-to-all: 1.4 times that start, the geometric mean of the steps;
    - synchronised first: the ring of large messages;
    - all-reduce in the switch: V = S (n + 1) / n, where the machine has such a switch;
    - all-reduce kernels of a serving library (``conditions.library`` "..._custom_allreduce"): one-shot reads (n - 1) S
      and synchronises once, two-shot reads 2 S (n - 1) / n and synchronises twice, however many GPUs there are.
    """
    assert isinstance(op, Collective)
    path = _path(op, machine)
    lines = _nccl(op, path, c)
    library = KERNELS.get(conditions.library, conditions.library)
    if op.op == "all_reduce" and "custom" in library:
        lines += _custom(op, library, c, path)
    return _fastest(op, machine, path, lines, c)


def host_formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the smaller of start + step R + V / (share B) crowding^log2(n / 2) over the protocols, and the own part.

    The GPUs form a ring through the host with R steps: n - 1, for an all-reduce 2 (n - 1), for an all-to-all, which
    also starts later, 0.6 (n - 1). As their number doubles, the bandwidth of each is divided by ``crowding``: 1 where
    each has a path of its own, as below one PCIe switch, 2 where all share one bridge, more where the bridge also loses
    bandwidth to the contention. Hosts differ in it more than in anything else: of two with 8 L40S, an all-reduce of
    512 MiB took 0.65 and 0.05 s. vLLM, SGLang and TensorRT-LLM have no kernels of their own for it and call NCCL.
    """
    assert isinstance(op, Collective)
    path = _path(op, machine)
    steps, ring = path.scale * op.steps(), op.peer_bytes()
    start = path.scale
    if op.op == "alltoall":
        start, steps = start * ALLTOALL_START, steps * ALLTOALL_STEPS
    crowd = _crowd(op, c)
    rise = _rise(op, c)
    lines = [
        _Line(rise * start * c["ll_start"], rise * c["ll_step"] * steps, ring / (c["ll_share"] * path.bandwidth)),
        _Line(start * c["start"], c["step"] * steps, ring / (c["share"] * path.bandwidth)),
    ]
    return _fastest(op, machine, path, lines, c, crowd)


def _fastest(
    op: Collective,
    machine: Machine,
    path: _Path,
    lines: list[_Line],
    c: Values,
    crowd: Number = 1.0,
) -> Terms:
    """Return the terms of the fastest protocol at each point; ``crowd`` stretches the time on the link.

    The copy of the own part is no slower than the link, since more GPUs, each with a smaller part of its own, would be
    faster otherwise.
    """
    shape = np.broadcast_shapes(np.shape(op.bytes), np.shape(op.num_gpus))
    best = np.argmin(_stack(lines, lambda line: line.start + line.steps + line.link * crowd, shape), axis=0)
    start, steps, transfer = (
        np.take_along_axis(_stack(lines, part, shape), best[np.newaxis], axis=0)[0]
        for part in (lambda line: line.start, lambda line: line.steps, lambda line: line.link)
    )
    copied = c.get("own", OWN_BYTES_PER_CLOCK) * machine.sm_count * machine.clock_hz
    own = op.own_bytes() / maximum(copied, c["share"] * path.bandwidth)
    over = {link_term(name): transfer if here is True else where(here, transfer, 0.0) for name, here in path.links}
    return Terms(
        {**over, SHARING: transfer * (crowd - 1.0), HBM: own, LAUNCH: start, SYNCHRONISATION: steps},
        {name: time * crowd for name, time in over.items()},
    )


def _stack(lines: list[_Line], part: Callable[[_Line], Number], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return one part of all lines as an array, the lines along the first axis and the points along the others."""
    return np.stack([np.broadcast_to(part(line), shape) for line in lines])


def _family(name: str, constants: tuple[Constant, ...]) -> Family:
    aliases = KERNELS if name == "all_reduce" else NCCL_ALONE
    return Family(name, constants, formula, TERMS, applies=_direct, dispatched=False, by_dtype=False, aliases=aliases)


ALL_REDUCE = _family("all_reduce", (*_NCCL, *_REDUCTIONS))
ALL_GATHER = _family("all_gather", (*_NCCL, *_MID))
REDUCE_SCATTER = _family("reduce_scatter", (*_NCCL, *_OWN))
ALLTOALL = _family("alltoall", (*_NCCL, *_MID, *_OWN))
COLLECTIVE_HOST = Family(
    "collective_host", _HOST, host_formula, TERMS, applies=_hosted, dispatched=False, by_dtype=False, aliases=ANY_HOST
)
#: nobody measured these two: the constants are the usual ones of NCCL's protocols
BROADCAST = _family("broadcast", _NCCL)
SEND_RECV = _family("send_recv", _NCCL)
FAMILIES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALLTOALL, BROADCAST, SEND_RECV, COLLECTIVE_HOST)
