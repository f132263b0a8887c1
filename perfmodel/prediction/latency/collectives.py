"""Collectives in one node: the fastest of the protocols that the library has.

A protocol is a straight line, t = start + step (n - 1) + bytes / (share of the link's bandwidth). One that sends
flags with the data starts soon and wastes bandwidth; one that synchronises first starts late and wastes little (LL
and Simple of NCCL: Hu et al. 2025, "Demystifying NCCL", arXiv 2507.04786). The library chooses by size, so that the
time is the smallest of the lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.ceilings import PEER_LINKS, peer_link, reduces_in_switch
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Term, Terms, link_term

SERVES = {
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather",),
    "reduce_scatter": ("reduce_scatter",),
    "alltoall": ("alltoall",),
}

SYNCHRONISATION = Term("synchronisation", Limiter.LINK, "devices waiting for one another")
SHARING = Term("contention", Limiter.LINK, "GPUs that share the host's PCIe bridges")
TERMS = (*(link_term(name) for name in PEER_LINKS), SHARING, HBM, LAUNCH, SYNCHRONISATION)

_NCCL = (
    Constant("ll_start", "s", 3.5e-6, 0.3e-6, 50e-6, 0.4, "start of the protocol with flags in the data"),
    Constant("ll_step", "s", 1.2e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each further GPU"),
    Constant("ll_rise", "", 0.3, 0.01, 2.0, 0.5, "by which share both grow once the message is on all channels"),
    Constant("ll_share", "", 0.3, 0.02, 1.0, 0.3, "share of the link's bandwidth that it reaches"),
    Constant("start", "s", 18e-6, 1e-6, 100e-6, 0.4, "start of the protocol that synchronises first"),
    Constant("step", "s", 1.5e-6, 0.05e-6, 20e-6, 0.4, "its synchronisation, for each further GPU"),
    Constant("share", "", 0.77, 0.1, 1.0, 0.15, "share of the link's bandwidth that it reaches"),
    Constant("sharing", "", 1.9, 0.05, 3.0, 0.4, "PCIe: exponent of the loss as more GPUs share the host's bridges"),
)
_REDUCTIONS = (
    Constant("in_switch", "", 0.65, 0.2, 1.0, 0.2, "share of the link's bandwidth of reductions in the switch"),
    Constant("custom_start", "s", 3.3e-6, 0.5e-6, 50e-6, 0.5, "start of a serving library's own small kernel", True),
    Constant("custom_step", "s", 3e-6, 0.05e-6, 30e-6, 0.6, "its second synchronisation"),
    Constant("custom_share", "", 0.62, 0.1, 1.0, 0.5, "share of the link's bandwidth that it reaches"),
)

#: the clock at which starts and steps are stated, that of H100 and H200 [Hz]: between GPUs linked by NVLink they are
#: a number of clocks, and those of A100 take 1.4 times as long; over PCIe the host's path dominates
CLOCK_HZ = 1.98e9
#: the message size at which half of the rise has occurred: 16 channels of 1 KiB [B]
CHANNELS_BYTES = 16384.0
#: a GPU's own part is copied by the few SMs that the collective has: 4 B a clock for each SM of the whole chip (from
#: two GPUs against eight, 0.96 TB/s on H100 and H200, 0.48 TB/s on A100)
OWN_BYTES_PER_CLOCK = 4.0
#: a reduction in the switch starts later, by this factor over the ring: straight lines through the largest messages of
#: 8 H100 meet zero bytes at 68 us in the switch and 36 us in the ring, steps included
SWITCH_START = 2.0


@dataclass(frozen=True)
class _Line:
    """One protocol: the parts of its time [s]."""

    start: Number
    steps: Number
    link: Number


def _nccl(op: Collective, machine: Machine, c: Values, bandwidth: float, scale: float) -> list[_Line]:
    """Return NCCL's protocols: two in a ring, and the reduction in the switch where that moves fewer bytes."""
    further, ring = op.num_gpus - 1.0, op.peer_bytes()
    rise = scale * (1.0 + c["ll_rise"] * op.bytes / (op.bytes + CHANNELS_BYTES))
    start, steps, link = scale * c["start"], scale * c["step"] * further, ring / (c["share"] * bandwidth)
    lines = [
        _Line(rise * c["ll_start"], rise * c["ll_step"] * further, ring / (c["ll_share"] * bandwidth)),
        _Line(start, steps, link),
    ]
    less = op.peer_bytes(in_switch=reduces_in_switch(machine.links.values()))
    if np.any(np.less(less, ring)):
        lines.append(
            _Line(SWITCH_START * start, steps, np.where(less < ring, less / (c["in_switch"] * bandwidth), link))
        )
    return lines


def _custom(op: Collective, library: str, c: Values, bandwidth: float, scale: float) -> list[_Line]:
    """Return a library's own all-reduce: each GPU reads all messages; or a part of each, and then all sums.

    Every GPU waits for the flags of all others at once, so that synchronising does not grow with their number (H100:
    4.5 us with 2 GPUs, 4.8 us with 8). TensorRT-LLM's rows have no second kind: above the first they are NCCL's.
    """
    start, rate = scale * c["custom_start"], c["custom_share"] * bandwidth
    lines = [_Line(start, 0.0, (op.num_gpus - 1.0) * op.bytes / rate)]
    if not library.startswith("trtllm"):
        lines.append(_Line(start, scale * c["custom_step"], op.peer_bytes() / rate))
    return lines


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the smallest of start + step (n - 1) + V / (share B) over the protocols, and the copy of the own part.

    V is the traffic that a GPU sends (`Collective.peer_bytes`), B the datasheet bandwidth of the fastest link between
    GPUs:

    - flags in the data: start and step grow by the share ``ll_rise`` as the message S spreads over the channels,
      S / (S + 16 KiB);
    - synchronised first: the ring of large messages;
    - all-reduce in the switch: V = S (n + 1) / n, where the machine has such a switch;
    - all-reduce kernels of a serving library (``conditions.library`` "..._custom_allreduce"): one-shot reads (n - 1) S
      and synchronises once, two-shot reads 2 S (n - 1) / n and synchronises twice, however many GPUs there are.

    Over PCIe more than two GPUs share the host's bridges, which takes (n / 2)^sharing times as long.
    """
    assert isinstance(op, Collective)
    name = peer_link(machine.links)
    link = machine.links.get(name)
    bandwidth, hosted = link.bandwidth_bytes_per_s if link else np.nan, name == "pcie"
    scale = 1.0 if hosted else CLOCK_HZ / machine.clock_hz
    lines = _nccl(op, machine, c, bandwidth, scale)
    if op.op == "all_reduce" and "custom" in conditions.library:
        lines += _custom(op, conditions.library, c, bandwidth, scale)
    shared = np.maximum(1.0, (op.num_gpus / 2.0) ** c["sharing"]) if hosted else 1.0
    best = np.argmin(_stack(lines, lambda line: line.start + line.steps + line.link * shared), axis=0)
    start, steps, transfer = (
        np.take_along_axis(_stack(lines, part), best[np.newaxis], axis=0)[0]
        for part in (lambda line: line.start, lambda line: line.steps, lambda line: line.link)
    )
    own = op.bytes / op.num_gpus / (OWN_BYTES_PER_CLOCK * machine.sm_count * machine.clock_hz)
    term = link_term(name)
    return Terms(
        {term: transfer, SHARING: transfer * (shared - 1.0), HBM: own, LAUNCH: start, SYNCHRONISATION: steps},
        {term: transfer * shared},
    )


def _stack(lines: list[_Line], part: Callable[[_Line], Number]) -> NDArray[np.float64]:
    """Return one part of all lines as an array, the lines along the first axis."""
    return np.stack(np.broadcast_arrays(*(part(line) for line in lines)))


def _family(name: str, constants: tuple[Constant, ...]) -> Family:
    return Family(name, constants, formula, TERMS, dispatched=False, by_dtype=False)


ALL_REDUCE = _family("all_reduce", (*_NCCL, *_REDUCTIONS))
ALL_GATHER = _family("all_gather", _NCCL)
REDUCE_SCATTER = _family("reduce_scatter", _NCCL)
ALLTOALL = _family("alltoall", _NCCL)
FAMILIES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALLTOALL)
