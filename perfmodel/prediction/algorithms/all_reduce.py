"""All-reduce: one-shot, two-shot, ring, tree, recursive doubling and in the switch; beyond a node also hierarchical.

S bytes over n devices with a step a and bandwidth B: one-shot (n - 1) S / B, two-shot a + 2 (n - 1) / n S / B; they
cross at S = a B / ((n - 1) (1 - 2 / n)). These are kernels of serving libraries. In a node tree, ring and in_switch are
NCCL's, with the constants fitted to it (`collectives.nccl_terms`): flags in the data up and down a tree, a ring that
synchronises first, 2 (n - 1) a + 2 (n - 1) / n S / B, and (n + 1) / n S / B in a switch that reduces, with a rate and a
start of its own. NCCL takes the fastest, whose time and interval are those of a prediction.

What no library runs there is a closed form: recursive doubling log2 n (a + S / B), and through the host, where NCCL has
rings, a tree 2 log2 n a + 2 S / (kappa B).

Beyond a node the network adds what `perfmodel.prediction.network` says, and no device reads another one's memory. Ring
and tree are NCCL's there: all closed forms are scaled so that the faster of these two takes what is predicted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.work import maximum
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.prediction.algorithms.base import Cost, Problem, counted, predicted
from perfmodel.prediction.latency import collectives
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.far import unmeasured_network
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.protocols import IN_SWITCH, RING, TREE
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
    flop = float(np.asarray(op.flop()))
    ring_s = large.start_s + 2.0 * (n - 1.0) * large.step_s + 2.0 * share * size / large.rate
    if collectives.through_host(op, machine):
        tree_s = large.start_s + 2.0 * levels * large.step_s + 2.0 * size / (TREE_SHARE * large.rate)
        times_s, copied_s = {RING: ring_s, TREE: tree_s}, 0.0
    else:
        terms = collectives.nccl_terms(op, machine, known.values)
        times_s = {name: float(found.time_s) for name, found in terms.items()}
        copied_s = times_s[RING] - ring_s  # of a GPU's own part
    moved = {TREE: 2.0 * size, RING: 2.0 * share * size, IN_SWITCH: float(np.asarray(op.peer_bytes(in_switch=True)))}
    read_s = {"one_shot": (n - 1.0) * size / small.rate, "two_shot": small.step_s + 2.0 * share * size / small.rate}
    doubled_s = large.start_s + levels * large.step_s + levels * size / large.rate + copied_s
    shapes = {
        # name: bytes, time, buffers beside its own, why not, whose constants
        "one_shot": ((n - 1.0) * size, small.start_s + read_s["one_shot"], size, one_node, known.source),
        "two_shot": (2.0 * share * size, small.start_s + read_s["two_shot"], size, one_node, known.source),
        **{name: (moved[name], time_s, 0.0, "", source) for name, time_s in times_s.items()},
        "recursive_doubling": (levels * size, doubled_s, size, power, source),
    }
    return _as_predicted(
        [counted(name, time_s, flop=flop, moved_bytes=moved_bytes, kernels=1.0, workspace_bytes=buffer,
                 why_not=why_not, basis=f"closed form: {constants_of}")
         for name, (moved_bytes, time_s, buffer, why_not, constants_of) in shapes.items()],
        op, hardware,
    )  # fmt: skip


def _as_predicted(found: list[Cost], op: AllReduce, hardware: Hardware) -> list[Cost]:
    """Return costs in which the fastest of the algorithms that NCCL has takes what a prediction says, and its interval.

    Its other algorithms are scaled alike, beyond a node all, since they share a network; they keep the interval of a
    closed form.
    """
    machine = Machine.of(hardware, None)
    call, run = predicted("", op, hardware), _run(op, machine, hardware)
    fastest = min((cost for cost in found if cost.algorithm in run), key=lambda cost: cost.time_s)
    ratio = call.time_s / fastest.time_s
    known = replace(fastest, time_s=call.time_s, time_low_s=call.time_low_s, time_high_s=call.time_high_s,
                    basis=f"NCCL's choice: {call.basis}")  # fmt: skip
    if math.isclose(ratio, 1.0, rel_tol=1e-6):
        return [known if cost is fastest else cost for cost in found]
    scaled = f", times {ratio:.2f} as NCCL's choice is predicted"
    alike = [cost.algorithm for cost in found] if spread_of(op, hardware).crosses else run
    return [known if cost is fastest
            else replace(cost.slower(ratio), basis=cost.basis + scaled) if cost.algorithm in alike
            else cost for cost in found]  # fmt: skip


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
    return [*refused, *_as_predicted(found, op, hardware)]


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


def chosen(op: AllReduce, hardware: Hardware) -> Cost:
    """Return what the algorithm that NCCL chooses takes: its time is the predicted one."""
    run = _run(op, Machine.of(hardware, None), hardware)
    return min((cost for cost in costs(op, hardware) if cost.algorithm in run), key=lambda cost: cost.time_s)


def _run(op: AllReduce, machine: Machine, hardware: Hardware) -> tuple[str, ...]:
    """Return the algorithms that NCCL has; through the host of a node it has rings."""
    if spread_of(op, hardware).crosses:
        return RING, TREE
    return (RING,) if collectives.through_host(op, machine) else (TREE, RING, IN_SWITCH)


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
    note="One-shot and two-shot are kernels of serving libraries for small messages. NCCL takes the fastest of tree, "
    "ring and the switch, which is what analyze predicts. Others are closed forms.",
)
