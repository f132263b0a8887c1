"""The memory of a training step: what each GPU of the pipeline holds at the moment of its peak [B].

Three moments are compared: the loss, when all activations and the logits are alive; the backward pass of the last
layer, with what it computes anew and its gradients; and the update of the weights. Beside what lives there stand the
pools that the allocator keeps: blocks of other streams do not serve the stream of the layers.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perfmodel.cluster.cluster import Cluster
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.expert_overlap import overlaps
from perfmodel.training.frozen import FROZEN_BYTES, largest_matrix
from perfmodel.training.host_offload import RESIDENT_LAYERS, gradients_leave
from perfmodel.training.kept import activations_of, slice_of
from perfmodel.training.kernels import needs_transposed
from perfmodel.training.layer import held_weights
from perfmodel.training.memory_facts import MemoryFacts
from perfmodel.training.memory_result import MOMENTS, PARTS, Memory, StageMemory
from perfmodel.training.offloading import kept_on_device
from perfmodel.training.optimizer_state import root_bytes
from perfmodel.training.plan import ContextAlgorithm, Schedule, TrainingPlan
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.shard import key_value_width
from perfmodel.training.stages import encoder_stages, gpu_layers
from perfmodel.training.state_bytes import (
    HALF,
    SINGLE,
    gradient_bytes,
    optimizer_bytes,
    updated_gradient_bytes,
    weight_bytes,
)
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: NCCL registers and stages at most so much for the collectives of one group (assumed: 8 MiB for 32 channels)
_CHANNEL_BYTES = 32 * 8.0 * 2**20


def training_memory(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> Memory:
    """Return the memory of each GPU of the pipeline.

    Parameters
    ----------
    config : the shapes of the model.
    cluster : the GPUs.
    plan : how the model is trained.

    Raises
    ------
    UsageError
        When the plan does not divide the GPUs or the batch.
    """
    return _memory(_Holder(setup_of(config, cluster, plan)))


def fitting_memory(setup: Setup) -> Memory | None:
    """Return the memory of each GPU of the pipeline, or None where it does not fit: as `training_memory`, but sooner.

    The first GPU has the most micro batches alive; where it is too small, the others are not looked at.
    """
    holder = _Holder(setup)
    memory = _memory(holder, 1)
    if memory.fits and len(holder.placed) > 1:
        memory = _memory(holder)
    return memory if memory.fits else None


def _memory(holder: _Holder, most: int | None = None) -> Memory:
    """Return the memory of the GPUs of a pipeline, or of the first ones only."""
    stages = tuple(holder.stage(index) for index in range(len(holder.placed[:most])))
    capacity = holder.cluster.hardware.main_memory.capacity_bytes or math.inf
    host = holder.cluster.host_memory_per_gpu
    return Memory(stages, capacity, holder.facts.fragmentation, host, holder.cluster.sharing_host).settled()


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
    holder = _Holder(setup_of(config, cluster, plan))
    return tuple(holder.held(index) for index in range(len(holder.placed)))


def checkpoint_bytes(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> float:
    """Return what a checkpoint holds from which training goes on: trained weights, and the optimizer's state [B].

    Frozen weights beside adapters do not change and are not saved; ranks with the same weights save them once.

    Raises
    ------
    UsageError
        When the plan does not divide the GPUs or the batch.
    """
    return _Holder(setup_of(config, cluster, plan)).checkpoint()


class _Holder:
    """A model, a plan and a framework, and what their GPUs hold."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.config, self.plan, self.cluster = setup, setup.padded, setup.plan, setup.cluster
        self.framework = setup.framework
        self.facts: MemoryFacts = setup.framework.memory
        self.part = slice_of(setup)
        self.dp, self.micro_batches = setup.dp, setup.plan.micro_batches(setup.cluster.gpus)
        self.shards = setup.sharing(setup.groups.data).ranks * setup.copies
        self.expert_shards = setup.sharing(setup.groups.expert_data).ranks * setup.copies if setup.config.experts else 1
        self.placed = gpu_layers(setup.config, setup.plan)
        self.layers = {kind: activations_of(setup, kind, self.part) for gpu in self.placed for kind in gpu}

    def held(self, index: int) -> Held:
        """Return the parameters of one GPU of the pipeline."""
        return functools.reduce(Held.with_stage, (self._stage_held(place) for place in self._stages(index)))

    def _stages(self, index: int) -> tuple[int, ...]:
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

    def stage(self, index: int) -> StageMemory:
        """Return the memory of one GPU of the pipeline at its peak."""
        stages = self._stages(index)
        counts = sum((Counter(self.placed[place]) for place in stages), Counter[Kind]())
        held = self.held(index)
        trained = self.trained(held, counts)
        last = self.plan.pp - 1 in stages
        state, host = self._split(self._state(held, trained), trained)
        gathered, working_gradients, pools = self._gathered(held, trained)
        copies = self._copies(held)
        working = max((self.layers[kind].working for kind in counts), default=0.0) + self._written_out
        logits, head_input = self._logits() if last else (0.0, 0.0)
        common = {**state, "communication": self._communication(), "pools": pools}
        rest = sum(common.values()) + copies + gathered + max(logits + head_input, working + working_gradients)
        layer = max((self.layers[kind].kept for kind in counts), default=0.0)
        alive = self._alive(index, counts)
        if self.plan.on_host("activations"):
            activations = min(alive, RESIDENT_LAYERS * layer)
            host["activations"] = alive - activations
        else:
            activations = kept_on_device(self.cluster.hardware, self.plan, self.facts, alive, rest, layer)
        early = common["gradients"] if self._gradients_stay else 0.0
        at = {
            "loss": {**common, "gradients": early, "copies": copies, "gathered": gathered,
                     "activations": activations, "logits": logits, "temporary": head_input},
            "backward": {**common, "copies": copies, "gathered": gathered, "activations": activations,
                         "temporary": working + working_gradients},
            "update": {**common, "temporary": self._roots(trained)},
        }  # fmt: skip
        used = {moment: sum(parts.values()) - parts["pools"] for moment, parts in at.items()}
        moment = max(MOMENTS, key=lambda name: used[name])
        parts = {name: at[moment].get(name, 0.0) for name in PARTS}
        return StageMemory(index, moment, parts, used, pools, {name: size for name, size in host.items() if size})

    def _split(self, state: Mapping[str, float], trained: Held) -> tuple[dict[str, float], dict[str, float]]:
        """Return what of weights, gradients and optimizer is on the GPU, and what on its host [B].

        The gradients of what is updated there have a buffer on the host, also where they stay on the GPU until then.
        """
        share = self.plan.offload_fraction if self.plan.on_host("optimizer") else 0.0
        on_gpu = dict(state)
        updated = self._share(trained, self.plan.zero >= 1)
        host = {
            "optimizer": share * state["optimizer"],
            "gradients": share * updated_gradient_bytes(self.setup) * updated,
        }
        on_gpu["optimizer"] -= host["optimizer"]
        on_gpu["gradients"] -= host["gradients"] * gradients_leave(self.setup)
        if self.plan.on_host("parameters"):
            host["weights"], on_gpu["weights"] = state["weights"], 0.0
        return on_gpu, host

    @property
    def _gradients_stay(self) -> bool:
        """Whether gradients are there when the loss is computed: in a buffer, or from earlier micro batches."""
        return not self.facts.lazy_gradients or self.micro_batches > 1

    def _share(self, held: Held, shared_out: bool) -> float:
        """Return the parameters of one GPU of which it keeps something: all, or its share."""
        if not shared_out:
            return held.total
        return (held.dense + held.outer) / self.shards + held.experts / self.expert_shards

    def _outer_share(self, trained: Held) -> float:
        """Return the share of embedding and head in the parameters that one GPU updates: Muon leaves these to Adam."""
        shared_out = self.plan.zero >= 1
        outer = self._share(replace(trained, dense=0.0, experts=0.0), shared_out)
        return outer / max(self._share(trained, shared_out), 1.0)

    def _state(self, held: Held, trained: Held) -> dict[str, float]:
        """Return weights, gradients and optimizer of one GPU."""
        plan, each = self.plan, weight_bytes(self.setup)
        rules = {
            "gradients": (updated_gradient_bytes(self.setup), plan.zero >= 2),
            "optimizer": (optimizer_bytes(self.setup, self._outer_share(trained)), plan.zero >= 1),
        }
        rest = {name: bytes_ * self._share(trained, shared_out) for name, (bytes_, shared_out) in rules.items()}
        adapters = self._share(trained, self.setup.sharded) if plan.lora else 0.0  # beside all that is frozen
        return {"weights": self._weights(held, each) + each * adapters, **rest}

    def checkpoint(self) -> float:
        """Return what a checkpoint holds from which training goes on [B]."""
        config = self.setup.config
        trained, outer = float(config.parameters), float(config.embedding_parameters + config.head_parameters)
        if self.plan.lora:
            trained, outer = adapter_parameters(config, self.plan.lora, self.plan.lora_targets), 0.0
        return trained * (weight_bytes(self.setup) + optimizer_bytes(self.setup, outer / trained))

    def _weights(self, held: Held, each: float) -> float:
        """Return the weights of one GPU, those of the layers in fewer bits where they are frozen so [B]."""
        frozen = FROZEN_BYTES.get(self.plan.frozen_dtype, each)
        outer = self._share(replace(held, dense=0.0, experts=0.0), self.setup.sharded)
        layers = self._share(replace(held, outer=0.0), self.setup.sharded)
        return each * outer + frozen * layers

    @property
    def _written_out(self) -> float:
        """Return the frozen matrix that a product has in 16 bits [B]; 0 where weights are wide."""
        if not self.plan.frozen_dtype:
            return 0.0
        return self.part.element_bytes * largest_matrix(self.config) / self.plan.tp

    def _roots(self, trained: Held) -> float:
        """Return what the update of one GPU's parameters needs beside their state [B]."""
        each = root_bytes(self.plan.optimizer, self.facts.temporary_bytes, self._outer_share(trained))
        stays = 1.0 - self.plan.offload_fraction if self.plan.on_host("optimizer") else 1.0
        return stays * each * self._share(trained, self.plan.zero >= 1)

    def _elsewhere(self, held: Held) -> Held:
        """Return the parameters that ranks share out: what a single rank holds, as experts may be, is there."""
        host = self.plan.on_host("parameters")
        several, more = self.shards > 1 or host, self.expert_shards > 1 or host
        return replace(held, dense=held.dense * several, experts=held.experts * more, outer=held.outer * several)

    def _gathered(self, held: Held, trained: Held) -> tuple[float, float, float]:
        """Return weights that are gathered, gradients of one layer in backward, and pools of other streams [B]."""
        facts, plan = self.facts, self.plan
        e = self.part.element_bytes
        if not self._shares_weights:
            # ZeRO 2 keeps its share of a layer's gradients once they are reduced
            return 0.0, gradient_bytes(self.setup) * trained.largest_layer if plan.zero == 2 else 0.0, 0.0
        held, trained = self._elsewhere(held), self._elsewhere(trained)
        outer, layers = held.outer, held.dense + held.experts
        stored = FROZEN_BYTES.get(plan.frozen_dtype, e)
        wide = SINGLE if self.setup.gradient_bytes == SINGLE else 0.0  # of the copy that is reduced, if it is one
        if self.framework.gathers_once and plan.pp > 1:
            # unsharded gradients add up in the dtype in which they are reduced until the last micro batch
            return e * outer + stored * layers + (wide or e) * trained.total, 0.0, 0.0
        stays = plan.zero == 2  # gathered for the forward pass, weights stay until backward
        gathered = e * outer + stored * (layers if stays else facts.gathered_layers * held.largest_layer)
        layer = (e + wide) * trained.largest_layer
        leaving = self.plan.offload_fraction * gradients_leave(self.setup)
        shards = (1.0 - leaving) * gradient_bytes(self.setup) * self._share(trained, True)
        pools = e * outer + (wide or e) * trained.outer + shards if facts.stream_pools else 0.0
        return gathered, layer, pools

    @property
    def _shares_weights(self) -> bool:
        """Whether weights are elsewhere between their uses."""
        return self.setup.sharded and (max(self.shards, self.expert_shards) > 1 or self.plan.on_host("parameters"))

    def _copies(self, held: Held) -> float:
        """Return the copies of whole weights that stay beside them through the step: of autocast, and in 8 bits [B]."""
        if self._shares_weights:
            return 0.0
        casts = self.part.element_bytes == HALF and not self.setup.narrow_weights
        cast = self.facts.cast_bytes * held.total if casts else 0.0
        return cast + self._narrow_copy * (held.dense + held.experts)

    @property
    def _narrow_copy(self) -> float:
        """Return the copies of a weight in 8 bits or fewer beside it: along both axes where products need it [B]."""
        if not (self.facts.narrow_weights and self.setup.shard.narrow):
            return 0.0
        one = 0.5 if self.plan.dtype == "nvfp4" else 1.0
        same = self.plan.dtype == "fp8" and not needs_transposed(self.setup.hardware)
        return one if same else 2.0 * one

    def _alive(self, index: int, counts: Mapping[Kind, int]) -> float:
        """Return the activations of all micro batches that wait for their backward on one GPU [B].

        1F1B: min(m, p - i) micro batches on stage i; interleaved: (v - 1) p + 2 (p - i - 1) + 1 of its v p parts, which
        is L (1 + (p - 1) / (p v)) layers on the first; GPipe: all m (Narayanan et al. 2021, Korthikanti et al. 2022);
        zero bubble: p on every stage, until their weights have gradients (Qi et al. 2023, ZB-H1). Passes in pairs keep
        one part more, and without a pipeline one layer: a forward pass takes what the backward pass beside it frees
        (`perfmodel.training.expert_overlap`). DualPipe: p + 1 micro batches, half of them of each of two stages
        (DeepSeek-AI 2024, table 2).

        Parameters
        ----------
        index : place of the GPU.
        counts : its layers, of all its stages.
        """
        plan, m, together = self.plan, self.micro_batches, overlaps(self.plan)
        one = sum(self.layers[kind].kept * count for kind, count in counts.items())
        # what the encoder gives stays for all layers of the decoder
        one += any(not kind.encoder for kind in counts) * (
            self.part.element_bytes
            * self.part.cross_tokens
            * self.config.hidden
            / (self.plan.tp if self.part.sp else 1)
        )
        one += any(kind.encoder for kind in counts) * self._stem()
        if plan.schedule == Schedule.GPIPE:
            return m * one
        if plan.schedule == Schedule.ZERO_BUBBLE:
            return min(m, plan.pp) * one
        if plan.schedule == Schedule.DUALPIPE:
            return 0.5 * min(m, plan.pp + 1) * one
        if plan.vp > 1:
            parts = (plan.vp - 1) * plan.pp + 2 * (plan.pp - index - 1) + 1 + together
            return min(m, parts / plan.vp) * one
        layer = max((self.layers[kind].kept for kind in counts), default=0.0) if together and m > 1 else 0.0
        return min(m, plan.pp - index) * one + layer

    def _stem(self) -> float:
        """Return what the convolutions before an encoder of sound keep: the spectrum, and each before its GELU [B].

        What a GELU gives is what the next one reads; the second's is the input of the layers.
        """
        bands, width = self.config.audio_bands, self.config.hidden
        return self.part.element_bytes * self.part.cross_tokens * (2 * bands + 5 * width) * (bands > 0)

    def _logits(self) -> tuple[float, float]:
        """Return logits with their gradients, and the input of the head [B]."""
        facts, part = self.facts, self.part
        each = facts.parallel_loss_bytes if self.plan.tp > 1 else facts.loss_bytes
        wide = part.element_bytes / HALF if each > SINGLE else 1.0
        tokens = part.tokens if self.plan.tp > 1 else part.outer
        return each * wide * part.tokens * self.config.vocab / self.plan.tp, (
            part.element_bytes * tokens * self.config.hidden
        )

    def _communication(self) -> float:
        """Return what exchanges stage: channels of each group, and received micro batches of a pipeline [B]."""
        plan = self.plan
        groups = sum(size > 1 for size in (plan.tp, plan.cp, plan.ep, self.dp, plan.pp))
        cross = self.part.cross_tokens / (plan.tp if self.part.sp else 1)
        passed = self.config.hidden * self.config.residual_streams
        sent = 2.0 * self.part.element_bytes * (self.part.outer + cross) * passed * (plan.pp > 1)
        keys = max(key_value_width(config, plan.tp) for config in (self.config, self.config.windowed))
        ring = 2.0 * self.part.element_bytes * self.part.tokens * keys if plan.cp > 1 else 0.0
        if plan.cp_algorithm == ContextAlgorithm.ULYSSES:
            ring *= 2.0
        return _CHANNEL_BYTES * groups + sent + ring + self._overlap_buffers()

    def _overlap_buffers(self) -> float:
        """Return the buffers of tensor parallel exchanges that run beside products: whole hidden states [B]."""
        if not (self.part.sp and self.setup.overlaps_tensor):
            return 0.0
        gathers, scatters = self.facts.overlap_buffers
        each = gathers * self.part.input_bytes + scatters * self.part.element_bytes
        return each * self.part.tokens * self.config.hidden
