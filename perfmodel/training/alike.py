"""Which ranks hold the same weights, and what gathering these and reducing their gradients takes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.training.micro_batch import Passes
from perfmodel.training.setup import Setup


class Alike(NamedTuple):
    """Ranks that hold the same weights, how many parameters, and how many of them have gradients."""

    group: Group
    held: float
    trained: float


class Weights(Protocol):
    """Parameters of a layer or a GPU, told apart as in `Passes`."""

    @property
    def parameters(self) -> float:
        """Of all but routed experts."""

    @property
    def expert_parameters(self) -> float:
        """Of routed experts."""

    @property
    def trained(self) -> float:
        """Of all but routed experts, those with gradients."""

    @property
    def trained_experts(self) -> float:
        """Of routed experts, those with gradients."""


def alike_ranks(setup: Setup, weights: Weights) -> list[Alike]:
    """Return the ranks that hold the same weights: of experts these may be others."""
    data, experts = setup.groups.data, setup.groups.expert_data
    if (data.ranks, data.stride) == (experts.ranks, experts.stride):
        held, trained = weights.parameters + weights.expert_parameters, weights.trained + weights.trained_experts
        return [Alike(data, held, trained)]
    return [
        Alike(data, weights.parameters, weights.trained),
        Alike(experts, weights.expert_parameters, weights.trained_experts),
    ]


def gather_scatter(setup: Setup, passes: Passes) -> tuple[float, float]:
    """Return the time of gathering weights as they are stored, and of reducing their gradients, over the shards [s].

    Experts are shared out among the ranks that hold the same ones; a single rank gathers and reduces nothing.
    """
    gather = scatter = 0.0
    for alike in alike_ranks(setup, passes):
        shards = setup.sharing(alike.group)
        gather += exchange_time(shards, "all_gather", alike.held * passes.weight_bytes)
        scatter += exchange_time(shards, "reduce_scatter", alike.trained * setup.gradient_bytes)
    return gather, scatter


def gathers_once(setup: Setup) -> bool:
    """Return whether weights that are shared out stay gathered over the micro batches of a pipeline."""
    return setup.framework.gathers_once and setup.plan.pp > 1
