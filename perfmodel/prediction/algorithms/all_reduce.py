"""All-reduce: one-shot, two-shot, ring, tree, recursive doubling and in the switch; beyond a node also hierarchical.

S bytes over n devices with a step a and bandwidth B: one-shot (n - 1) S / B, two-shot a + 2 (n - 1) / n S / B; ring
2 (n - 1) a + 2 (n - 1) / n S / B, tree 2 log2 n a + 2 S / (kappa B), recursive doubling log2 n (a + S / B); in a
switch that reduces (n + 1) / n S / B, with a rate and a start of its own. One- and
two-shot cross at S = a B / ((n - 1) (1 - 2 / n)), ring and tree at
S = 2 a (n - 1 - log2 n) B / (2 / kappa - 2 (n - 1) / n).

Beyond a node the network adds what `perfmodel.prediction.network` says, and no device reads another one's memory.
"""

from __future__ import annotations

import math

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.work import maximum
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.prediction.algorithms.base import Cost, Problem, counted
from perfmodel.prediction.latency import collectives
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.far import unmeasured_network
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.network import Algorithm, crossing
from perfmodel.prediction.topology import Spread, network_between, spread_of

#: what a tree reaches of the bandwidth of a ring: NCCL's own correction runs from 0.4 to 1.0 by size
#: (treeCorrectionFactor, src/graph/tuning.cc)
TREE_SHARE = 0.7


def costs(op: AllReduce, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for an all-reduce, with the constants of the machine's collectives."""
    machine = Machine.of(hardware, None)
    spread = spread_of(op, hardware)
    if spread.crosses:
        return _between_nodes(op, hardware, machine, spread)
    known = constants(family("all_reduce"), hardware)
    small = collectives.custom_line(op, machine, known.values)
    large, source = ring_of(op, machine, hardware)
    n, size = float(op.num_gpus), float(op.bytes)
    share, levels = (n - 1.0) / n, math.log2(n) if n > 1 else 0.0
    one_node = "" if n <= ONE_SHOT_GPUS else f"each device reads all others: up to {ONE_SHOT_GPUS:g}"
    if collectives.through_host(op, machine):
        one_node = "more than two GPUs cannot read each other's memory through the host"
    power = "" if float(levels).is_integer() else "needs a power of two of devices"
    shapes = {
        # name: start, steps, step, bytes, rate, buffers beside its own, why not
        "one_shot": (small.start_s, 0.0, small.step_s, (n - 1.0) * size, small.rate, size, one_node),
        "two_shot": (small.start_s, 1.0, small.step_s, 2.0 * share * size, small.rate, size, one_node),
        "ring": (large.start_s, 2.0 * (n - 1.0), large.step_s, 2.0 * share * size, large.rate, 0.0, ""),
        "tree": (large.start_s, 2.0 * levels, large.step_s, 2.0 * size, TREE_SHARE * large.rate, 0.0, ""),
        "recursive_doubling": (large.start_s, levels, large.step_s, levels * size, large.rate, size, power),
    }
    switch = switch_of(op, machine, hardware)
    if switch is not None:
        moved = float(np.asarray(op.peer_bytes(in_switch=True)))
        shapes["in_switch"] = (switch.start_s, 2.0 * (n - 1.0), switch.step_s, moved, switch.rate, 0.0, "")
    flop = float(np.asarray(op.flop()))
    sources = dict.fromkeys(("one_shot", "two_shot"), known.source)
    return [
        counted(name, start + steps * step + moved / rate, flop=flop, moved_bytes=moved, kernels=1.0,
                workspace_bytes=buffer, why_not=why_not, basis=f"closed form: {sources.get(name, source)}")
        for name, (start, steps, step, moved, rate, buffer, why_not) in shapes.items()
    ]  # fmt: skip


def _between_nodes(op: AllReduce, hardware: Hardware, machine: Machine, spread: Spread) -> list[Cost]:
    """Return what each algorithm takes over several nodes: start, and the longer of what link and network take.

    Hierarchical all-reduces reduce-scatter in the nodes, all-reduce between them and all-gather, one after the other.
    """
    large, source = _node_ring(op, machine, hardware)
    network = network_between(op, hardware, spread)
    inside, size, nodes = float(spread.most), float(op.bytes), float(spread.nodes)
    flop = float(np.asarray(op.flop()))
    in_node = 2.0 * (inside - 1.0) / inside * size / large.rate if inside > 1 else 0.0
    found = []
    for algorithm in Algorithm:
        added = crossing(network, op.op, size, algorithm, large.step_s)
        steps = added.steps_s if algorithm == Algorithm.RING else added.steps_s + 2.0 * (inside - 1.0) * large.step_s
        after = algorithm == Algorithm.HIERARCHICAL
        moved = in_node + added.link_s if after else maximum(in_node, added.link_s)
        odd = algorithm == Algorithm.DOUBLING and not math.log2(nodes).is_integer()
        cost = counted(
            str(algorithm),
            float(large.start_s + steps + moved), flop=flop, moved_bytes=float(added.link_s * network.bytes_per_s),
            kernels=1.0, why_not="needs a power of two of nodes" if odd else "",
            basis=f"closed form: {source}; {unmeasured_network(op, machine)[1]}",
        )  # fmt: skip
        found.append(cost)
    why = "no device reads memory in another node"
    refused = [Cost(name, flop=flop, kernels=1.0, why_not=why) for name in ("one_shot", "two_shot")]
    return [*refused, *found]


def ring_of(op: AllReduce, machine: Machine, hardware: Hardware) -> tuple[collectives.Line, str]:
    """Return what steps of a ring take, and where that comes from; beyond a node in the mean of its steps.

    The rate is that at which a GPU passes on: over its link, through the host, or over the networks of a node.
    """
    line, source = _node_ring(op, machine, hardware)
    spread = spread_of(op, hardware)
    if not spread.crosses:
        return line, source
    network = network_between(op, hardware, spread)
    hops = (network.nodes - 1.0) * network.alpha_s + (network.gpus - network.nodes) * line.step_s
    rate = min(line.rate, network.inside * network.bytes_per_s)
    return collectives.Line(line.start_s, float(hops / (network.gpus - 1.0)), float(rate)), source


def switch_of(op: AllReduce, machine: Machine, hardware: Hardware) -> collectives.Line | None:
    """Return the same of a reduction in the switch, or None where it has none, or would send more than a ring."""
    if spread_of(op, hardware).crosses or collectives.through_host(op, machine) or float(op.num_gpus) <= 2.0:
        return None
    return collectives.switch_line(op, machine, constants(family("all_reduce"), hardware).values)


def _node_ring(op: AllReduce, machine: Machine, hardware: Hardware) -> tuple[collectives.Line, str]:
    """Return the same inside a node, over the GPUs' own link or through the host."""
    if collectives.through_host(op, machine):
        known = constants(family("collective_host"), hardware)
        return collectives.host_line(op, machine, known.values), known.source
    known = constants(family("all_reduce"), hardware)
    return collectives.ring_line(op, machine, known.values), known.source


#: devices up to which libraries have kernels that read the others' memory: 8 within a node (vLLM,
#: custom_all_reduce.cuh), 16 in an NVL72 (lightseekorg/tokenspeed, pull request 860)
ONE_SHOT_GPUS = 16.0

PROBLEM = Problem(
    "all_reduce",
    op="all_reduce",
    size="bytes",
    sizes=(1024.0, 2.0**32),
    costs=costs,
    defaults={"bytes": 2**20, "num_gpus": 8},
)
