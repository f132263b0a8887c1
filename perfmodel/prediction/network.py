"""What an exchange takes on the network between nodes, by the algorithm that makes it.

n GPUs lie on N nodes, r of them on each, and every one brings a network of W bytes a second; S is the message, alpha
the time of one step between nodes and beta of one inside. With w = 2 for an all-reduce, and 1 for others:

- ring: w S (n - 1) / n / (r W) + w ((N - 1) alpha + (n - N) beta);
- tree: min(N / 2, 2) S / (0.92 r W) + 2 log2(N) alpha, since of two binary trees with half of the message each, the
  busiest node sends S / 2 to each neighbour: to one in each of both of two nodes, to four of four nodes and more;
- recursive doubling: log2(N) (S / (r W) + alpha): fewest steps, whole message each;
- hierarchical: a ring of S / r between nodes, 2 S / r (N - 1) / N / W + 2 (N - 1) alpha;
- all-to-all: each GPU sends S (n - r) / n through its own network, in N - 1 steps;
- send and receive: S / W + alpha, through the network of the last GPU of a node;
- broadcast: S / (r W) + (N - 1) alpha along a chain.

Between two nodes a tree thus sends half of what a ring does, and beats it: 1 GB among 16 V100 takes 134 ms by a tree
and 268 ms by a ring over 100 Gb/s (github.com/NVIDIA/nccl-tests, issue 22; of others issue 196, and NVIDIA/nccl, issue
812).

(A. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH", 2005;
P. Sanders, J. Speck and J. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.)
"""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.core.vocabulary import Vocabulary
from perfmodel.core.work import Number, log2, minimum

#: share of a ring's bandwidth that a tree reaches: NCCL src/graph/tuning.cc, all-reduce by NCCL_ALGO_TREE
TREE_SHARE = 0.92
ALL_REDUCE, ALLTOALL, SEND_RECV, BROADCAST = "all_reduce", "alltoall", "send_recv", "broadcast"


class Algorithm(Vocabulary):
    """How an exchange between nodes is made."""

    RING = "ring"
    TREE = "tree"  # double binary tree: reduce up, broadcast down
    DOUBLING = "recursive_doubling"
    HIERARCHICAL = "hierarchical"  # reduce-scatter inside, all-reduce between, all-gather inside


class Network(NamedTuple):
    """The GPUs of an exchange and what joins their nodes.

    Attributes
    ----------
    gpus : all GPUs that exchange, n.
    inside : those of a node, r; of the node with the fewest networks.
    nodes : N.
    bytes_per_s : what large messages reach on the network of one GPU, W [B/s].
    alpha_s : time of one step between nodes [s].
    """

    gpus: Number
    inside: Number
    nodes: Number
    bytes_per_s: float
    alpha_s: float


class Crossing(NamedTuple):
    """What the network adds to an exchange: the time of its bytes, and of its steps one after another [s]."""

    link_s: Number
    steps_s: Number

    @property
    def time_s(self) -> Number:
        """Both together [s]."""
        return self.link_s + self.steps_s


def crossing(
    network: Network, kind: str, message_bytes: Number, algorithm: str = Algorithm.RING, step_s: Number = 0.0
) -> Crossing:
    """Return what an exchange takes on the network.

    Parameters
    ----------
    kind : name of the collective.
    message_bytes : the larger of a rank's send and receive buffers, as nccl-tests counts it [B].
    algorithm : of an all-reduce. Others are rings, direct (all-to-all, send and receive) or a chain (broadcast).
    step_s : time of one step of a ring inside a node [s].
    """
    n, r, nodes, rate, alpha = network
    if kind == ALLTOALL:
        return Crossing(message_bytes * (n - r) / n / rate, alpha * (nodes - 1))
    if kind == SEND_RECV:
        return Crossing(message_bytes / rate, alpha)
    if kind == BROADCAST:
        return Crossing(message_bytes / (r * rate), alpha * (nodes - 1))
    weight = 2.0 if kind == ALL_REDUCE else 1.0
    if kind != ALL_REDUCE or algorithm == Algorithm.RING:
        steps = weight * ((nodes - 1) * alpha + (n - nodes) * step_s)
        return Crossing(weight * message_bytes * (n - 1) / n / (r * rate), steps)
    levels = log2(nodes)
    if algorithm == Algorithm.TREE:
        return Crossing(minimum(nodes / 2.0, 2.0) * message_bytes / (TREE_SHARE * r * rate), 2.0 * levels * alpha)
    if algorithm == Algorithm.DOUBLING:
        return Crossing(levels * (message_bytes / (r * rate)), levels * alpha)
    return Crossing(2.0 * message_bytes / r * (nodes - 1) / nodes / rate, 2.0 * (nodes - 1) * alpha)
