"""Collectives that reach beyond a node: the protocols of a node, with what the network adds to each.

    t = start + steps in the nodes + steps between them + max(V / (share B), V' / W)

The GPUs of a node exchange as they do alone (`perfmodel.prediction.latency.protocols`). A ring passes through all
nodes, one after another; a tree, which NCCL has for all-reduces, through as many as it has levels. The library takes
what ends first, as `ncclTopoGetAlgoInfo` does (github.com/NVIDIA/nccl, src/graph/tuning.cc). The network is as the
machine's ``[cluster]`` says: nobody fitted its steps and rate, so that the interval is wide
(`perfmodel.prediction.latency.far`, ``NETWORKS``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfmodel.core.work import maximum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.protocols import Protocol
from perfmodel.prediction.network import ALL_REDUCE, Algorithm, crossing
from perfmodel.prediction.topology import Spread, inside, network_between, on_network, spread_of


def spread_on(op: Collective, machine: Machine) -> Spread:
    """Return how the GPUs of an exchange are spread over the nodes of a machine."""
    return spread_of(op, machine.hardware)


def within(op: Operator, machine: Machine) -> Collective:
    """Return the exchange among the GPUs of one node of a machine; the whole one where nothing leaves the node."""
    assert isinstance(op, Collective)
    return inside(op, spread_on(op, machine))


def beyond(lines: Iterable[Protocol], op: Collective, machine: Machine, spread: Spread) -> list[Protocol]:
    """Return the protocols of a node as they run over all nodes: in a ring, and all-reduces in a tree.

    Parameters
    ----------
    lines : the protocols of the exchange among the GPUs of a node.
    op, machine, spread : the exchange among all GPUs, and where these are.
    """
    return [line for node in lines for line in _over_network(node, op, machine, spread)]


def _over_network(node: Protocol, op: Collective, machine: Machine, spread: Spread) -> Iterator[Protocol]:
    assert machine.hardware is not None
    network = network_between(op, machine.hardware, spread)
    alone = spread.crosses & (spread.most <= 1)
    link = where(alone, 0.0, node.link)  # a GPU that is alone in its node sends nothing there
    hops = (op.num_gpus - spread.nodes) / maximum(spread.most - 1.0, 1.0)
    for algorithm in (Algorithm.RING, Algorithm.TREE) if op.op == ALL_REDUCE else (Algorithm.RING,):
        added = crossing(network, op.op, op.bytes, algorithm)
        passed = hops if _is_ring(op, algorithm) else 1.0
        steps = where(spread.crosses, node.steps * passed + added.steps_s, node.steps)
        yield node._replace(steps=steps, link=link, network=on_network(spread, node.wire * added.link_s))


def _is_ring(op: Collective, algorithm: str) -> bool:
    """Return whether a message passes all GPUs one after another: the nodes' steps are then of all nodes."""
    return op.op in ("all_gather", "reduce_scatter", ALL_REDUCE) and algorithm == Algorithm.RING
