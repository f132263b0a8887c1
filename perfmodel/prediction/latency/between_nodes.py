"""Collectives that reach beyond a node: the protocols of a node, with what the network adds to each.

    t = start + steps in the nodes + steps between them + max(V / (share B), V' / W)

The GPUs of a node exchange as they do alone (`perfmodel.prediction.latency.protocols`). A ring passes through all
nodes, one after another; a tree, which NCCL has for all-reduces, through as many as it has levels. The library takes
what ends first, as `ncclTopoGetAlgoInfo` does (github.com/NVIDIA/nccl, src/graph/tuning.cc). What protocols differ by
on a network is read off that file, too:

- a step between nodes takes a protocol without flags 2.8 times as long as one with them, whose step is alpha;
- in a ring the network's next message is posted in each turn, which no step is faster than;
- flags in the data leave a node 20 to 32 GB/s, however many networks it has;
- a tree keeps its rate for small and for large messages, and half of it in between (`tree_share`).

Without these, published exchanges of 256 KiB to 64 MiB take 1.9 times as long as predicted in the median. They were
chosen on 91 rows, and left 25 % of 50 others, which came later, in place of 35 (`examples/published`).

The network is as the machine's ``[cluster]`` says: nobody fitted its steps and rate, so that the interval is wide
(`perfmodel.prediction.latency.far`, ``NETWORKS``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from perfmodel.core.work import Number, maximum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.protocols import FLAGGED, SELDOM_FLAGGED, UNFLAGGED, Protocol
from perfmodel.prediction.network import ALL_REDUCE, Algorithm, crossing
from perfmodel.prediction.topology import Spread, inside, network_between, on_network, spread_of

#: a step between nodes, over that of a tree with flags in the data: hwLat of the network in NCCL's src/graph/tuning.cc,
#: 5, 8.5 and 14 us in a tree, 2.7, 4 and 14 us in a ring. What is sent to each GPU alone waits as in a tree
TREE_STEPS = {FLAGGED: 1.0, SELDOM_FLAGGED: 1.7, UNFLAGGED: 2.8}
RING_STEPS = {FLAGGED: 0.54, SELDOM_FLAGGED: 0.8, UNFLAGGED: 2.8}
#: time to post a message to the network [s]: getNetOverhead of the same file has 1 us beside Intel's processors and
#: 2 us beside AMD's. A protocol without flags posts three times a turn
POSTING_S, POSTS = 1.5e-6, {UNFLAGGED: 3.0}
#: what flags in the data let a node send to two nodes and more [B/s]: llMaxBws of the same file has 39 and 20 GB/s
#: beside Intel's processors, and 22 to 45 and 19 to 35 beside AMD's
FLAGGED_RATE, FLAGGED_RATE_OF_MORE = 32e9, 20e9
#: message [B] -> share of its rate that a tree reaches, straight between these in log2 of the size: what
#: treeCorrectionFactor of the same file says
TREE_SHARES = {
    FLAGGED: {2**9: 1.0, 2**12: 0.7, 2**15: 0.7, 2**18: 0.4, 2**19: 0.4, 2**25: 1.0},
    SELDOM_FLAGGED: {2**10: 1.0, 2**12: 0.8, 2**14: 0.8, 2**16: 0.6, 2**21: 0.6, 2**22: 0.8, 2**26: 1.0},
    UNFLAGGED: {2**12: 0.9, 2**15: 0.6, 2**17: 0.5, 2**20: 0.5, 2**23: 0.8, 2**25: 0.7, 2**27: 0.9, 2**30: 1.0},
}


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
    for algorithm in (Algorithm.RING, Algorithm.TREE) if op.op == ALL_REDUCE else (Algorithm.RING,):
        ring = _is_ring(op, algorithm)
        step = (RING_STEPS if ring else TREE_STEPS)[node.wire]
        added = crossing(network._replace(alpha_s=step * network.alpha_s), op.op, op.bytes, algorithm)
        passed = _passed_s(node, op, spread) if ring else node.steps
        steps = where(spread.crosses, passed + added.steps_s, node.steps)
        sent = _sent_s(node, op, spread, algorithm, added.link_s)
        yield node._replace(steps=steps, link=link, network=on_network(spread, sent))


def _passed_s(node: Protocol, op: Collective, spread: Spread) -> Number:
    """Return the time of the steps inside nodes of a ring, each with the next message to post [s]."""
    inside_nodes = op.num_gpus - spread.nodes
    turns = op.steps() / maximum(op.num_gpus - 1.0, 1.0) * inside_nodes
    posted = turns * POSTS.get(node.wire, 1.0) * POSTING_S
    return maximum(node.steps * inside_nodes / maximum(spread.most - 1.0, 1.0), posted)


def _sent_s(node: Protocol, op: Collective, spread: Spread, algorithm: str, link_s: Number) -> Number:
    """Return the time of a protocol's bytes on the network [s], where those of the message take ``link_s``."""
    sent, tree = node.wire * link_s, algorithm == Algorithm.TREE
    if node.wire == FLAGGED and (tree or _is_ring(op, algorithm)):
        passing = (2.0 if op.op == ALL_REDUCE else 1.0) * op.bytes
        sent = maximum(sent, passing / where(spread.nodes > 2.0, FLAGGED_RATE_OF_MORE, FLAGGED_RATE))
    return sent / tree_share(node.wire, op.bytes) if tree else sent


def tree_share(wire: float, message_bytes: Number) -> Number:
    """Return the share of its rate that a tree between nodes reaches.

    Parameters
    ----------
    wire : bytes that the protocol sends for each of the message, which tells it.
    message_bytes : the message [B].
    """
    sizes, shares = zip(*TREE_SHARES[wire].items(), strict=True)
    share = np.interp(np.log2(maximum(message_bytes, 1.0)), np.log2(sizes), shares)
    return share if isinstance(message_bytes, np.ndarray) else float(share)


def _is_ring(op: Collective, algorithm: str) -> bool:
    """Return whether a message passes all GPUs one after another: the nodes' steps are then of all nodes."""
    return op.op in ("all_gather", "reduce_scatter", ALL_REDUCE) and algorithm == Algorithm.RING
