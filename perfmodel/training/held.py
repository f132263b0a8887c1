"""Which parameters each GPU of a pipeline holds in training: all of them, those with gradients, those shared out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perfmodel.cluster.cluster import Cluster
from perfmodel.training.layer_matrices import held_weights
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.stages import encoder_stages, gpu_layers
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class Held:
    """Parameters of one GPU: of its layers without experts, of its routed experts, of embedding and head.

    The largest layer is that of which most is shared out: without what no other rank holds, as experts may be.
    """

    dense: float
    experts: float
    outer: float
    largest_layer: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.dense + self.experts + self.outer

    def with_stage(self, other: Held) -> Held:
        """Return the parameters of a GPU that holds another stage, too."""
        return Held(
            self.dense + other.dense,
            self.experts + other.experts,
            self.outer + other.outer,
            max(self.largest_layer, other.largest_layer),
        )


def held_parameters(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> tuple[Held, ...]:
    """Return the parameters of each GPU of the pipeline before anything is shared out.

    Raises
    ------
    UsageError
        When the plan does not divide the GPUs or the batch.
    """
    parameters = Parameters(setup_of(config, cluster, plan))
    return tuple(parameters.held(index) for index in range(len(parameters.placed)))


class Parameters:
    """The parameters of the GPUs of a pipeline, and the ranks that share them out."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.config, self.plan = setup, setup.padded, setup.plan
        self.shards = setup.sharing(setup.groups.data).ranks * setup.copies
        self.expert_shards = setup.sharing(setup.groups.expert_data).ranks * setup.copies if setup.config.experts else 1
        self.placed = gpu_layers(setup.config, setup.plan)

    def held(self, index: int) -> Held:
        """Return the parameters of one GPU of the pipeline."""
        return functools.reduce(Held.with_stage, (self._stage_held(place) for place in self.stages(index)))

    def stages(self, index: int) -> tuple[int, ...]:
        """Return the places of the stages of one GPU: under DualPipe that from the other end, too."""
        return (index, self.plan.pp - 1 - index)[: self.setup.copies]

    def _stage_held(self, index: int) -> Held:
        """Return the parameters of one stage of the pipeline."""
        config, plan, counts = self.config, self.plan, self.placed[index]
        expert = config.experts * config.expert_parameters / (plan.ep * self.setup.etp)
        frames = {kind: self._frame(kind) for kind in counts}
        outer = config.embedding_parameters / plan.tp + config.stem_parameters if index == 0 else 0.0
        if index and index == encoder_stages(config, plan):
            outer += config.vocab * config.embedding_dim / plan.tp  # of the decoder's tokens
        if index == plan.pp - 1:
            copied = config.tied and plan.pp > 1
            outer += (config.head_parameters + copied * config.vocab * config.embedding_dim) / plan.tp
            outer += config.outer_norm_parameters
        host = plan.on_host("parameters")
        dense, shared = self.shards > 1 or host, expert * (self.expert_shards > 1 or host)
        largest = max((dense * frames[kind] + shared * kind.moe for kind in counts), default=0.0)
        return Held(
            dense=sum(frames[kind] * count for kind, count in counts.items()),
            experts=sum(expert * count for kind, count in counts.items() if kind.moe),
            outer=outer,
            largest_layer=largest,
        )

    def _frame(self, kind: Kind) -> float:
        """Return the parameters of a layer on a GPU, without routed experts.

        Tensor parallel ranks share out the matrices as the time of a layer has it, but where they do not divide the
        heads of a state: these count evenly. Norms, biases and the like are whole on each rank, and so are indexers.
        """
        config, shard = self.config.windowed if kind.windowed else self.config, self.setup.shard
        if kind.encoder and config.encoder:
            whole = config.encoder_parameters / config.encoder_layers
            config, shard = config.encoder, self.setup.encoder_shard
        else:
            whole = config.moe_layer_parameters - config.experts * config.expert_parameters if kind.moe else 0
            whole = whole if kind.moe else config.dense_layer_parameters
            whole += config.mixer_surplus(kind.linear, not kind.attends)
            whole -= kind.bare * config.bare_layer_lack
            whole += kind.indexed * config.index_parameters + kind.pooled * config.pool_parameters
        own, matrices = (held_weights(config, one, kind) for one in (shard, shard._replace(tp=1)))
        return whole - matrices + max(own, matrices / shard.tp)

    def trained(self, held: Held, counts: Mapping[Kind, int]) -> Held:
        """Return how many of the parameters of one GPU have gradients and moments: all, or the adapters' own.

        ``counts`` are its layers, of all its stages.
        """
        if not self.plan.lora:
            return held
        each = {kind: self.setup.trained(0.0, kind) for kind in counts}
        dense = sum(each[kind] * count for kind, count in counts.items())
        return Held(dense, 0.0, 0.0, max(each.values(), default=0.0) * (self.shards > 1))

    def share(self, held: Held, shared_out: bool) -> float:
        """Return the parameters of one GPU of which it keeps something: all, or its share."""
        if not shared_out:
            return held.total
        return (held.dense + held.outer) / self.shards + held.experts / self.expert_shards

    def outer_share(self, trained: Held) -> float:
        """Return the share of embedding and head in the parameters that one GPU updates: Muon leaves these to Adam."""
        shared_out = self.plan.zero >= 1
        outer = self.share(replace(trained, dense=0.0, experts=0.0), shared_out)
        return outer / max(self.share(trained, shared_out), 1.0)

    def elsewhere(self, held: Held) -> Held:
        """Return the parameters that ranks share out: what a single rank holds, as experts may be, is there."""
        host = self.plan.on_host("parameters")
        several, more = self.shards > 1 or host, self.expert_shards > 1 or host
        return replace(held, dense=held.dense * several, experts=held.experts * more, outer=held.outer * several)

    @property
    def shares_weights(self) -> bool:
        """Whether weights are elsewhere between their uses."""
        return self.setup.sharded and (max(self.shards, self.expert_shards) > 1 or self.plan.on_host("parameters"))
