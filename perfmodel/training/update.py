"""What ends a step, and what sharded weights add to it: exchanges of gradients and weights, and the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.cluster.dispatch import exposed
from perfmodel.training.alike import alike_ranks, gather_scatter, gathers_once
from perfmodel.training.dispatch import Waits
from perfmodel.training.exchange import gradient_exchange, reduction_time
from perfmodel.training.expert_overlap import pairs
from perfmodel.training.framework import Framework
from perfmodel.training.host_copies import host_copies
from perfmodel.training.host_offload import Copied
from perfmodel.training.host_rates import host_rates
from perfmodel.training.kernels import stream_time
from perfmodel.training.micro_batch import INDEX, PARTS, Passes, Vector
from perfmodel.training.newton_schulz import orthogonal_s
from perfmodel.training.setup import Setup
from perfmodel.workloads.layer_kinds import Kind


@dataclass(frozen=True)
class StageGpu:
    """One GPU of the pipeline: all its stages in one micro batch; ``waits`` of it for the host are in both passes.

    Its parameters, and those of them that are trained, are told apart as in `Passes`. ``hidden_s`` is how much shorter
    both passes are in pairs. It has ``layered``, layers of each kind with their number, and ``outer``, what stands
    outside them. ``copies`` are those to and from the host in a micro batch; ``alone_sharding_s`` and
    ``alone_offload_s`` are what sharded weights and copies add to one whose passes are in no pairs.
    """

    forward: Vector
    backward: Vector
    weights_s: float
    sharding_s: float
    parameters: float
    expert_parameters: float
    trained: float
    trained_experts: float
    layers: int
    waits: Waits
    hidden_s: float = 0.0
    layered: tuple[tuple[Passes, int], ...] = ()
    outer: tuple[Passes, ...] = ()
    copies: tuple[Copied, ...] = ()
    alone_sharding_s: float = 0.0
    alone_offload_s: float = 0.0

    @property
    def offload_s(self) -> float:
        """What copies to and from the host add to both passes [s]."""
        return sum(copy.exposed_s() for copy in self.copies)

    @property
    def time_s(self) -> float:
        """Both passes, one after the other, with what sharded weights and copies to the host add [s]."""
        return float(self.forward.sum() + self.backward.sum()) + self.sharding_s + self.offload_s

    @property
    def alone_s(self) -> float:
        """The same of a micro batch whose passes are in no pairs [s]."""
        return float(self.forward.sum() + self.backward.sum()) + self.alone_sharding_s + self.alone_offload_s

    @property
    def spans_s(self) -> tuple[float, float]:
        """The forward and the backward pass, each with what it waits for copies [s]."""
        copied = sum(copy.exposed_s() for copy in self.copies if copy.forward)
        return float(self.forward.sum()) + copied, float(self.backward.sum()) + self.offload_s - copied

    @property
    def link_s(self) -> tuple[float, float]:
        """How long copies occupy the link to the host in each of them [s]."""
        forward, backward = (
            sum(copy.occupied_s for copy in self.copies if copy.forward == way) for way in (True, False)
        )
        return forward, backward

    def passes_s(self, paired: float) -> tuple[float, float]:
        """Return the forward and the backward pass where some share of them, from 0 to 1, is in pairs [s].

        What pairs hide is taken off both in proportion.
        """
        forward, backward = float(self.forward.sum()), float(self.backward.sum())
        left = 1.0 - paired * self.hidden_s / (forward + backward)
        return left * forward, left * backward


def stage_gpu(setup: Setup, counts: dict[Kind, int], layers: dict[Kind, Passes], outer: list[Passes]) -> StageGpu:
    """Return the sum of some layers and what stands outside them on a GPU."""
    layered = tuple((layers[kind], count) for kind, count in counts.items())
    parts = [*layered, *((passes, 1) for passes in outer)]
    zero = np.zeros(len(PARTS))
    sharding = _sharding_time(setup, layered, tuple(outer))
    forward = sum((count * passes.forward for passes, count in parts), zero)
    backward = sum((count * passes.backward for passes, count in parts), zero)
    ahead, behind = (sum(count * passes.launches[place] for passes, count in parts) for place in (0, 1))
    hidden = sum(count * passes.hidden_s for passes, count in parts)
    paired = pairs(setup.plan, setup.micro_batches) / setup.micro_batches

    def copied(share: float) -> list[Copied]:
        moves = setup.plan.offload != "none"
        return host_copies(setup, counts, layers, outer, float(backward.sum()), share) if moves else []

    copies = copied(paired)
    offload = alone_offload = sum(copy.exposed_s() for copy in copies)
    alone_sharding = sharding
    if paired and hidden:
        alone_offload = sum(copy.exposed_s() for copy in copied(0.0))
        alone_sharding = _sharding_time(setup, layered, tuple(outer), paired=0.0)
    busy = float(forward.sum() + backward.sum()) + sharding + offload
    busy -= paired * hidden  # those of the pipeline's filling and draining are as long as without pairs
    waits = Waits(busy, setup.dispatch_s, ahead, behind)
    forward[INDEX["host"]] += waits.forward_s
    backward[INDEX["host"]] += waits.backward_s
    return StageGpu(
        forward=forward,
        backward=backward,
        waits=waits,
        weights_s=sum(count * passes.weights_s for passes, count in parts),
        sharding_s=sharding,
        parameters=sum(count * passes.parameters for passes, count in parts),
        expert_parameters=sum(count * passes.expert_parameters for passes, count in parts),
        trained=sum(count * passes.trained for passes, count in parts),
        trained_experts=sum(count * passes.trained_experts for passes, count in parts),
        layers=sum(counts.values()),
        hidden_s=hidden,
        layered=layered,
        outer=tuple(outer),
        copies=tuple(copies),
        alone_sharding_s=alone_sharding,
        alone_offload_s=alone_offload,
    )


def both_ways(one: StageGpu, other: StageGpu) -> StageGpu:
    """Return a GPU of DualPipe, which holds two stages, through each of which half of its micro batches pass."""
    waits = (one.waits, other.waits)
    return StageGpu(
        forward=0.5 * (one.forward + other.forward),
        backward=0.5 * (one.backward + other.backward),
        weights_s=0.5 * (one.weights_s + other.weights_s),
        sharding_s=0.5 * (one.sharding_s + other.sharding_s),
        parameters=one.parameters + other.parameters,
        expert_parameters=one.expert_parameters + other.expert_parameters,
        trained=one.trained + other.trained,
        trained_experts=one.trained_experts + other.trained_experts,
        layers=one.layers + other.layers,
        waits=Waits(
            busy_s=0.5 * sum(wait.busy_s for wait in waits),
            launch_s=one.waits.launch_s,
            forward=0.5 * sum(wait.forward for wait in waits),
            backward=0.5 * sum(wait.backward for wait in waits),
        ),
        hidden_s=0.5 * (one.hidden_s + other.hidden_s),
        layered=(*one.layered, *other.layered),
        outer=(*one.outer, *other.outer),
        copies=tuple(copy._replace(number=0.5 * copy.number) for copy in (*one.copies, *other.copies)),
        alone_sharding_s=0.5 * (one.alone_sharding_s + other.alone_sharding_s),
        alone_offload_s=0.5 * (one.alone_offload_s + other.alone_offload_s),
    )


def _sharding_time(
    setup: Setup,
    layered: tuple[tuple[Passes, int], ...],
    outer: tuple[Passes, ...],
    slower: float = 1.0,
    paired: float | None = None,
) -> float:
    """Return what sharded weights add to one micro batch of a GPU [s].

    Exchanges take ``slower`` times as long. ``paired`` is the share of passes in pairs, where it is not the plan's.
    """
    if not setup.sharded:
        return 0.0
    share = pairs(setup.plan, setup.micro_batches) / setup.micro_batches if paired is None else paired
    inside = sum(count * _sharded_layer(setup, passes, slower, share) for passes, count in layered)
    first = [passes for passes, _ in layered[:1]] or list(outer[:1])
    return inside + sum(_sharded_outer(setup, passes, slower) for passes in [*outer, *first])


def exchanged_time(setup: Setup, gpu: StageGpu, slower: float = 1.0) -> float:
    """Return what exchanging gradients and weights adds to a step of a GPU [s], all that no compute hides.

    Parameters
    ----------
    slower : how many times as long as expected each exchange takes: what compute no longer hides of it adds up.
    """
    sharding = _sharding_time(setup, gpu.layered, gpu.outer, slower)
    return setup.micro_batches * sharding + gradients_time(setup, gpu, slower)


def _sharded_layer(setup: Setup, passes: Passes, slower: float, paired: float) -> float:
    """Return what gathering a layer's weights and reducing its gradients adds to one micro batch [s].

    Forward gathers beside the layer before, backward gathers again and reduces; of two passes in a pair all of it runs
    beside the pair. Weights that stay gathered over the micro batches of a pipeline are gathered and reduced once a
    step. Exchanges take ``slower`` times as long.
    """
    gather, scatter = (slower * time for time in gather_scatter(setup, passes))
    forward, backward = float(passes.forward.sum()), float(passes.backward.sum())
    again, share = gather if setup.plan.zero == 3 else 0.0, setup.contention
    cost = exposed(gather, forward, share) + exposed(again + scatter, backward, share)
    if passes.hidden_s:
        pair = exposed(gather + again + scatter, forward + backward - passes.hidden_s, share)
        cost += paired * (pair - cost)
    shared = sum(alike.held for alike in alike_ranks(setup, passes) if setup.sharing(alike.group).ranks > 1)
    copies = stream_time(setup.hardware, setup.framework.shard_bytes * shared)
    cost += setup.constants.memory_bound[setup.framework.streams] * copies
    return cost / setup.micro_batches if gathers_once(setup) else cost


def _sharded_outer(setup: Setup, passes: Passes, slower: float) -> float:
    """Return what nothing hides in one micro batch: the first gather and the last reduction, embedding and head [s]."""
    gather, scatter = (slower * time for time in gather_scatter(setup, passes))
    return (gather + scatter) / (setup.micro_batches if gathers_once(setup) else 1.0)


def gradients_time(setup: Setup, gpu: StageGpu, slower: float = 1.0) -> float:
    """Return what the exchange of gradients and new weights of a step adds, on plans that keep whole weights [s].

    Hidden behind the last backward and the first forward pass of one virtual stage, and at least the last layer's share
    is exposed. ZeRO 2 keeps a share of the gradients only, which it reduces in every micro batch, behind its backward
    pass. Passes are as long as they wait for copies of the host. HSDP reduces the shards between domains. Exchanges
    take ``slower`` times as long as expected.
    """
    plan, groups = setup.plan, setup.groups
    if setup.sharded:
        return _between_domains(setup, gpu, slower)
    held, whole, packing = exchanged_gradients(setup, gpu), setup.framework.reduces_whole, packing_s(setup, gpu)
    exchange = slower * sum(
        gradient_exchange(groups, group, count, setup.gradient_bytes, whole=whole) for group, count in held
    )
    last = beside_passes(setup, gpu, exchange, forward=plan.zero > 0) + packing
    if plan.zero < 2:
        return last
    reduced = sum(reduction_time(group, count * setup.gradient_bytes, whole=whole) for group, count in held)
    return last + (setup.micro_batches - 1.0) * (beside_passes(setup, gpu, slower * reduced) + packing)


def packing_s(setup: Setup, gpu: StageGpu) -> float:
    """Return what packing gradients for a reduction, dividing and unpacking them takes on a GPU [s]."""
    framework = setup.framework
    moved = framework.packing_bytes * setup.gradient_bytes / 2.0 * (gpu.trained + gpu.trained_experts)
    return setup.constants.memory_bound[framework.streams] * stream_time(setup.hardware, moved)


def exchanged_gradients(setup: Setup, gpu: StageGpu) -> tuple[tuple[Group, float], tuple[Group, float]]:
    """Return how many gradients a GPU has, each time with the ranks that sum them up: of experts other ones."""
    return (setup.groups.data, gpu.trained), (setup.groups.expert_data, gpu.trained_experts)


def beside_passes(setup: Setup, gpu: StageGpu, exchange_s: float, *, forward: bool = False) -> float:
    """Return what an exchange of all gradients of a GPU adds to the passes that hide it, if they do [s].

    They are the last backward and with ``forward`` the next forward pass. What crosses the network shares the link of
    the GPU with copies of the host: the two take no less than both occupy it.
    """
    if not setup.framework.overlaps_data_parallel:
        return exchange_s
    both, copied = (one * forward + other for one, other in (gpu.spans_s, gpu.link_s))
    hidden = both / setup.plan.vp
    left = max(exchange_s / max(gpu.layers, 1), exchange_s - hidden)
    if copied:
        left = max(left, _link_share(setup) * exchange_s - max(0.0, hidden - copied / setup.plan.vp))
    return left + setup.constants.sm_share * min(exchange_s, hidden)


def _link_share(setup: Setup) -> float:
    """Return how much of the link to the host an exchange of gradients occupies: none inside a domain of NVLink."""
    rates, network = host_rates(setup.cluster), setup.cluster.network_bytes_per_s
    crosses = setup.groups.data.crosses or setup.groups.expert_data.crosses
    return min(1.0, network / max(rates.to_host, rates.from_host)) if crosses else 0.0


def _between_domains(setup: Setup, gpu: StageGpu, slower: float) -> float:
    """Return what reducing the gradients of shards between the domains of HSDP adds [s]; 0 without it."""
    exchange = 0.0
    for group, _, trained in alike_ranks(setup, gpu):
        shards = setup.sharing(group)
        between = Group(setup.cluster, group.ranks // shards.ranks, group.stride * shards.ranks)
        shard = trained / shards.ranks * setup.gradient_bytes
        exchange += slower * exchange_time(between, "all_reduce", shard)
    return exposed(exchange, gpu.spans_s[1], setup.contention)


def updated_parameters(setup: Setup, gpu: StageGpu) -> float:
    """Return the parameters that a GPU updates: all that it trains, or its share."""
    shared_out, copies = setup.plan.zero > 0, setup.copies
    return sum(
        alike.trained / (setup.sharing(alike.group).ranks * copies if shared_out else 1)
        for alike in alike_ranks(setup, gpu)
    )


def update_time(setup: Setup, gpu: StageGpu) -> float:
    """Return the time of the optimizer [s]: it reads and writes weights, gradients and moments of a GPU's share."""
    plan = setup.plan
    if plan.optimizer == "none":
        return 0.0
    # fp16: fp32 or 16-bit gradients are read, checked for overflow and written without the scale of the loss
    # (torch._amp_foreach_non_finite_check_and_unscale_)
    unscaled = 2.0 * setup.gradient_bytes if plan.dtype == "fp16" else 0.0
    stays = 1.0 - plan.offload_fraction if plan.on_host("optimizer") else 1.0
    held = stays * updated_parameters(setup, gpu)
    moved = stream_time(setup.hardware, held * (optimizer_bytes(setup.framework, plan.optimizer) + unscaled))
    return moved + (orthogonal_s(setup) if plan.optimizer == "muon" else 0.0)


def optimizer_bytes(framework: Framework, optimizer: str) -> float:
    """Return the bytes that the update of a parameter by an optimizer moves.

    The kernel of 8-bit moments (bitsandbytes) is one, also where Adam in full width is a kernel for each operation: it
    reads the gradient, reads and writes the weight, and both moments of a byte each.
    """
    adam = framework.optimizer_bytes
    if optimizer == "adam-8bit" and adam > _COUNTED_WHOLE:
        return _FUSED_ADAM - 2.0 * 8.0 + 4.0
    return adam * OPTIMIZER[optimizer]


#: bytes a parameter of a fused Adam in fp32: gradient 4, weight 8, two moments 8 each; and with clipping and zeroing
#: the gradient, and writing a 16-bit weight, above which counts are those of separate kernels
_FUSED_ADAM, _COUNTED_WHOLE = 28.0, 34.0
#: bytes that an optimizer moves for a parameter over those of Adam: clip and zero 8, gradient and moments 24, weight 2.
#: 16-bit gradients, moments and weights move 18 B; 8-bit moments 4 B instead of 16; SGD has one moment; Muon one,
#: and products beside (`orthogonal_s`)
OPTIMIZER = {
    "adam": 1.0,
    "adam-bf16": 18.0 / 34.0,
    "adam-8bit": 22.0 / 34.0,
    "sgd": 26.0 / 34.0,
    "muon": 26.0 / 34.0,
    "none": 0.0,
}
