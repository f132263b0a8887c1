"""The copies between a GPU of the pipeline and its host in a micro batch: of weights, gradients and activations."""

from __future__ import annotations

from perfmodel.training.alike import alike_ranks, gather_scatter, gathers_once
from perfmodel.training.frozen import FROZEN_BYTES
from perfmodel.training.host_offload import (
    RESIDENT_LAYERS,
    Copied,
    LayerCopies,
    layer_copies,
    outer_copies,
    returning_s,
    whole_gradients,
)
from perfmodel.training.host_rates import host_rates
from perfmodel.training.host_update import gradient_trips, gradients_leave
from perfmodel.training.kept import activations_of
from perfmodel.training.micro_batch import Passes
from perfmodel.training.setup import Setup
from perfmodel.training.state_bytes import weight_bytes
from perfmodel.workloads.layer_kinds import Kind


def host_copies(
    setup: Setup,
    counts: dict[Kind, int],
    layers: dict[Kind, Passes],
    outer: list[Passes],
    backward_s: float,
    paired: float | None = None,
) -> list[Copied]:
    """Return the copies of a micro batch to and from the host of one GPU.

    Gradients that a GPU reduces whole leave beside its whole backward pass of ``backward_s``, which takes longer where
    activations come back later; beside nothing where a framework reduces them on the stream of the compute. ``paired``
    is the share of passes in pairs where it is not that of the plan.
    """
    once = 1.0 / setup.micro_batches if gathers_once(setup) else 1.0
    sharded, number = setup.sharded, sum(counts.values())
    away = max(0.0, 1.0 - RESIDENT_LAYERS / max(number, 1)) if setup.plan.pp == 1 else 1.0
    found: list[Copied] = []
    for kind, count in counts.items():
        passes = layers[kind]
        weights, gradients = _moved_states(setup, passes) if sharded else (0.0, 0.0)
        gather, scatter = gather_scatter(setup, passes) if sharded else (0.0, 0.0)
        again = gather if setup.plan.zero == 3 else 0.0
        states = LayerCopies(weights, gradients, 0.0, gather, again + scatter)
        if not setup.plan.on_host("activations"):
            found += layer_copies(setup, passes, states, once * count, paired)
            continue
        kept = states._replace(activations=activations_of(setup, kind).kept)
        backward_s += away * count * returning_s(setup, passes, kept.activations)
        if once < 1.0:  # weights come once a step, activations in every micro batch
            kept = kept._replace(weights=0.0, gradients=0.0)
            found += layer_copies(setup, passes, states, once * count, paired)
            found += layer_copies(setup, passes, kept, away * count, paired)
        else:
            found += layer_copies(setup, passes, states, (1.0 - away) * count, paired)
            found += layer_copies(setup, passes, kept, away * count, paired)
    unhidden = [*outer, *[layers[kind] for kind in counts][:1]]
    for passes in unhidden if sharded else ():
        found += [copy._replace(number=once) for copy in outer_copies(setup, *_moved_states(setup, passes))]
    if gradients_leave(setup) and not sharded:
        every = [(layers[kind], count) for kind, count in counts.items()] + [(passes, 1) for passes in outer]
        moved = sum(count * _moved_states(setup, passes)[1] for passes, count in every)
        beside = backward_s if setup.framework.overlaps_data_parallel else 0.0
        found += whole_gradients(setup, moved, beside, number)
    return found


def _moved_states(setup: Setup, passes: Passes) -> tuple[float, float]:
    """Return the weights of a layer, or of embedding or head, that come from the host before a pass [B]; and gradients.

    A GPU copies its share. Weights come as they are stored. Gradients that come back before they leave again count as
    what leaves in the same time.
    """
    plan, weights, gradients = setup.plan, 0.0, 0.0
    stored = FROZEN_BYTES.get(plan.frozen_dtype, weight_bytes(setup))
    rates, (leaves, returns) = host_rates(setup.cluster), gradient_trips(setup)
    leaving = plan.offload_fraction * (leaves + returns * rates.to_host / rates.from_host)
    for alike in alike_ranks(setup, passes):
        ranks = setup.sharing(alike.group).ranks * setup.copies
        weights += plan.on_host("parameters") * stored * alike.held / ranks
        gradients += leaving * alike.trained / ranks
    return weights, gradients
