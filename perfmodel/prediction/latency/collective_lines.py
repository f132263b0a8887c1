"""Collectives that were measured on the machine's own link: a straight line for each (`calibrate --links`).

    t = latency x steps + V / bandwidth,

with the bytes V that a rank sends and the steps of the ring (R. W. Hockney, "The communication challenge for MPP",
Parallel Computing 20, 1994). Libraries build collectives differently on the same link: gloo's reduce-scatter is an
all-reduce of which it drops the rest, so that a byte of it takes three times as long as one of an all-to-all. One line
for all of them is therefore tens of per cent off where each of its own is a few.

A line is of the number of ranks that were measured. Others take the figures of the link, and are at least as unsure as
the line was off (`OTHER_RANKS`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from perfmodel.core.hardware import ExchangeLine, Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, anywhere, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import elementwise
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import SYNCHRONISATION, Term, Terms, link_term
from perfmodel.prediction.topology import PEER_LINKS, peer_links, spread_of
from perfmodel.prediction.uncertainty import Z80

SERVES = {
    "all_reduce_line": ("all_reduce",),
    "all_gather_line": ("all_gather",),
    "reduce_scatter_line": ("reduce_scatter",),
    "alltoall_line": ("alltoall",),
    "broadcast_line": ("broadcast",),
    "send_recv_line": ("send_recv",),
}

#: whose collectives `calibrate --links` measures; a serving library has kernels of its own
_MEASURED = ("", "torch", "nccl", "gloo")


def lines_of(op: Collective, machine: Machine) -> Iterator[tuple[str, ExchangeLine, Any]]:
    """Yield the links of a node that a collective crosses on which it was measured: name, line, the points, a mask."""
    outside = spread_of(op, machine.hardware).crosses
    for link, here in peer_links(machine.links.values(), op.num_gpus):
        line = link.lines.get(op.op)
        if line is not None:
            points: Any = here & (op.num_gpus == line.ranks) & (outside ^ True)
            if anywhere(points):
                yield link.name, line, points


def applies(op: Operator, machine: Machine, library: str) -> Any:
    """Return the points that were measured: a mask, True or False."""
    assert isinstance(op, Collective)
    mask: Any = False
    if library in _MEASURED and any(link.lines for link in machine.links.values()):
        for _, _, points in lines_of(op, machine):
            mask = mask | points
    return mask


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return t = latency x steps + V / bandwidth; the latency contains the start of the kernels."""
    assert isinstance(op, Collective)
    adds: dict[Term, Number] = {SYNCHRONISATION: 0.0}
    for name, line, points in lines_of(op, machine):
        adds[SYNCHRONISATION] = where(points, line.latency_s * op.steps(), adds[SYNCHRONISATION])
        adds[link_term(name)] = where(points, op.peer_bytes() / line.bandwidth_bytes_per_s, 0.0)
    return Terms(adds, {term: time for term, time in adds.items() if term is not SYNCHRONISATION})


def own_table(name: str, hardware: Hardware) -> LatencyTable | None:
    """Return how far the lines of a collective were off on sizes that were left out: the most over the links.

    Parameters
    ----------
    name : of the collective.
    hardware : whose links have the lines.
    """
    measured = [(link.source, link.lines[name].deviation) for link in hardware.links if name in link.lines]
    if not measured:
        return None
    half = Z80 * max(deviation for _, deviation in measured)
    source = "; ".join(dict.fromkeys(source for source, _ in measured if source))
    intervals = dict.fromkeys(REGIMES, (math.exp(-half), math.exp(half)))
    return LatencyTable({}, intervals=intervals, known_libraries=_MEASURED, source=source)


def _crosses_measured(name: str, op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Return the points of a collective that cross a link on which collectives were measured: a mask, or False."""
    mask: Any = False
    if isinstance(op, Collective) and op.op == name:
        for link, here in peer_links(machine.links.values(), op.num_gpus):
            if link.lines:
                mask = mask | here
    return mask


def _off(name: str, hardware: Hardware) -> tuple[float, float, float] | None:
    """Return how far the lines of a collective were off, or those of all where it has none; None without lines."""
    measured = [link.lines for link in hardware.links if link.lines]
    off = [line.deviation for lines in measured for line in ([lines[name]] if name in lines else lines.values())]
    return (max(off), max(off), max(off)) if off else None


def _has_lines(hardware: Hardware) -> bool:
    return any(link.lines for link in hardware.links)


#: collectives of other numbers of ranks than those measured, by the figures of the link: what made a line miss sizes
#: that were left out (other work on the machine, another algorithm) concerns them as well
OTHER_RANKS = tuple(
    Doubt(
        ErrorSource.EXTRAPOLATION,
        functools.partial(_crosses_measured, op),
        (0.02, 0.02, 0.02),  # the least that a line states; that of the machine takes its place
        machines=_has_lines,
        of_machine=functools.partial(_off, op),
    )
    for (op,) in SERVES.values()
)

FAMILIES = tuple(
    Family(
        name, (), formula, (SYNCHRONISATION, *(link_term(link) for link in PEER_LINKS)), applies=applies,
        dispatched=False, dispatched_like=elementwise.FAMILY, by_dtype=False, on_cpu=None,
        own_table=functools.partial(own_table, op),
    )
    for name, (op,) in SERVES.items()
)  # fmt: skip
