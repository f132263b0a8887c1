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
from dataclasses import replace

from perfmodel.cluster.cluster import Cluster
from perfmodel.training.activations import LayerActivations
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.choices import offloaded
from perfmodel.training.frozen import FROZEN_BYTES, largest_matrix
from perfmodel.training.held import Held, Parameters
from perfmodel.training.host_offload import RESIDENT_LAYERS
from perfmodel.training.host_update import gradients_leave, host_buffer_bytes
from perfmodel.training.kept import activations_of, slice_of
from perfmodel.training.kernels import needs_transposed
from perfmodel.training.memory_facts import MemoryFacts
from perfmodel.training.memory_result import MOMENTS, PARTS, Memory, StageMemory
from perfmodel.training.offloading import kept_on_device
from perfmodel.training.optimizer_state import root_bytes
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.staging import staged_bytes
from perfmodel.training.state_bytes import (
    HALF,
    SINGLE,
    gradient_bytes,
    optimizer_bytes,
    updated_gradient_bytes,
    weight_bytes,
)
from perfmodel.training.waiting import waiting_activations
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig


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

    The first GPU has the most micro batches alive; where it is too small, the others are not looked at, and where it
    is too small for its weights, gradients and optimizer alone, nothing else is.
    """
    holder = _Holder(setup)
    if holder.state_bytes(0) > (holder.cluster.hardware.main_memory.capacity_bytes or math.inf):
        return None
    memory = _memory(holder, 1)
    if memory.fits and len(holder.parameters.placed) > 1:
        memory = _memory(holder)
    return memory if memory.fits else None


def _memory(holder: _Holder, most: int | None = None) -> Memory:
    """Return the memory of the GPUs of a pipeline, or of the first ones only."""
    stages = tuple(holder.stage(index) for index in range(len(holder.parameters.placed[:most])))
    capacity = holder.cluster.hardware.main_memory.capacity_bytes or math.inf
    host = holder.cluster.host_memory_per_gpu
    return Memory(stages, capacity, holder.facts.fragmentation, host, holder.cluster.sharing_host).settled()


def checkpoint_bytes(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> float:
    """Return what a checkpoint holds from which training goes on: trained weights, and the optimizer's state [B].

    Frozen weights beside adapters do not change and are not saved; ranks with the same weights save them once.

    Raises
    ------
    UsageError
        When the plan does not divide the GPUs or the batch.
    """
    setup = setup_of(config, cluster, plan)
    trained, outer_share = _trained(setup)
    return trained * (weight_bytes(setup) + optimizer_bytes(setup, outer_share))


def cannot_fit(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> bool:
    """Return whether no way to share out a model fits: the GPUs together are too small for what each must have once.

    That is weight, gradient and optimizer's state of each trained parameter, where none of it lives on the host.
    """
    setup, capacity = setup_of(config, cluster, plan), cluster.hardware.main_memory.capacity_bytes
    if capacity is None or offloaded(plan.offload):
        return False
    trained, outer_share = _trained(setup)
    each = weight_bytes(setup) + updated_gradient_bytes(setup) + optimizer_bytes(setup, outer_share)
    return trained * each > cluster.gpus * capacity


def _trained(setup: Setup) -> tuple[float, float]:
    """Return how many parameters a plan trains, and the share of embedding and head in them."""
    config, plan = setup.config, setup.plan
    if plan.lora:
        return adapter_parameters(config, plan.lora, plan.lora_targets), 0.0
    return float(config.parameters), (config.embedding_parameters + config.head_parameters) / config.parameters


#: layers of a GPU, its parameters, those with gradients, and part -> bytes on the GPU and on its host
_Kept = tuple[Counter[Kind], Held, Held, dict[str, float], dict[str, float]]


class _Holder:
    """A model, a plan and a framework, and what their GPUs hold."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.config, self.plan, self.cluster = setup, setup.padded, setup.plan, setup.cluster
        self.framework = setup.framework
        self.facts: MemoryFacts = setup.framework.memory
        self.part = slice_of(setup)
        self.parameters = Parameters(setup)
        self._known: dict[int, _Kept] = {}

    @functools.cached_property
    def layers(self) -> dict[Kind, LayerActivations]:
        """What the layers of each kind keep for their backward pass."""
        return {kind: activations_of(self.setup, kind, self.part) for gpu in self.parameters.placed for kind in gpu}

    def state_bytes(self, index: int) -> float:
        """Return weights, gradients and optimizer of one GPU of the pipeline, as from the backward pass on [B]."""
        return sum(self._kept(index)[3].values())

    def _kept(self, index: int) -> _Kept:
        """Return what one GPU of the pipeline keeps between the steps, found once."""
        if index not in self._known:
            counts = sum((Counter(self.parameters.placed[place]) for place in self.parameters.stages(index)), Counter())
            held = self.parameters.held(index)
            trained = self.parameters.trained(held, counts)
            self._known[index] = counts, held, trained, *self._split(self._state(held, trained), trained)
        return self._known[index]

    def stage(self, index: int) -> StageMemory:
        """Return the memory of one GPU of the pipeline at its peak."""
        counts, held, trained, state, on_host = self._kept(index)
        host = dict(on_host)
        last = self.plan.pp - 1 in self.parameters.stages(index)
        gathered, working_gradients, pools = self._gathered(held, trained)
        copies = self._copies(held)
        working = max((self.layers[kind].working for kind in counts), default=0.0) + self._written_out
        logits, head_input = self._logits() if last else (0.0, 0.0)
        common = {**state, "communication": staged_bytes(self.setup, self.part), "pools": pools}
        rest = sum(common.values()) + copies + gathered + max(logits + head_input, working + working_gradients)
        layer = max((self.layers[kind].kept for kind in counts), default=0.0)
        alive = waiting_activations(self.setup, self.part, self.layers, counts, index)
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
        updated = self.parameters.share(trained, self.plan.zero >= 1)
        gradients = share * updated_gradient_bytes(self.setup) * updated
        host = {
            "optimizer": share * state["optimizer"],
            "gradients": share * updated * host_buffer_bytes(self.setup),
        }
        on_gpu["optimizer"] -= host["optimizer"]
        on_gpu["gradients"] -= gradients * gradients_leave(self.setup)
        if self.plan.on_host("parameters"):
            host["weights"], on_gpu["weights"] = state["weights"], 0.0
        return on_gpu, host

    @property
    def _gradients_stay(self) -> bool:
        """Whether gradients are there when the loss is computed: in a buffer, or from earlier micro batches."""
        return not self.facts.lazy_gradients or self.plan.micro_batches(self.cluster.gpus) > 1

    def _state(self, held: Held, trained: Held) -> dict[str, float]:
        """Return weights, gradients and optimizer of one GPU."""
        plan, each = self.plan, weight_bytes(self.setup)
        rules = {
            "gradients": (updated_gradient_bytes(self.setup), plan.zero >= 2),
            "optimizer": (optimizer_bytes(self.setup, self.parameters.outer_share(trained)), plan.zero >= 1),
        }
        share = self.parameters.share
        rest = {name: bytes_ * share(trained, shared_out) for name, (bytes_, shared_out) in rules.items()}
        adapters = share(trained, self.setup.sharded) if plan.lora else 0.0  # beside all that is frozen
        return {"weights": self._weights(held, each) + each * adapters, **rest}

    def _weights(self, held: Held, each: float) -> float:
        """Return the weights of one GPU, those of the layers in fewer bits where they are frozen so [B]."""
        frozen = FROZEN_BYTES.get(self.plan.frozen_dtype, each)
        outer = self.parameters.share(replace(held, dense=0.0, experts=0.0), self.setup.sharded)
        layers = self.parameters.share(replace(held, outer=0.0), self.setup.sharded)
        return each * outer + frozen * layers

    @property
    def _written_out(self) -> float:
        """Return the frozen matrix that a product has in 16 bits [B]; 0 where weights are wide."""
        if not self.plan.frozen_dtype:
            return 0.0
        return self.part.element_bytes * largest_matrix(self.config) / self.plan.tp

    def _roots(self, trained: Held) -> float:
        """Return what the update of one GPU's parameters needs beside their state [B]."""
        each = root_bytes(self.plan.optimizer, self.facts.temporary_bytes, self.parameters.outer_share(trained))
        stays = 1.0 - self.plan.offload_fraction if self.plan.on_host("optimizer") else 1.0
        return stays * each * self.parameters.share(trained, self.plan.zero >= 1)

    def _gathered(self, held: Held, trained: Held) -> tuple[float, float, float]:
        """Return weights that are gathered, gradients of one layer in backward, and pools of other streams [B]."""
        facts, plan = self.facts, self.plan
        e = self.part.element_bytes
        if not self.parameters.shares_weights:
            # ZeRO 2 keeps its share of a layer's gradients once they are reduced
            return 0.0, gradient_bytes(self.setup) * trained.largest_layer if plan.zero == 2 else 0.0, 0.0
        held, trained = self.parameters.elsewhere(held), self.parameters.elsewhere(trained)
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
        shards = (1.0 - leaving) * gradient_bytes(self.setup) * self.parameters.share(trained, True)
        pools = e * outer + (wide or e) * trained.outer + shards if facts.stream_pools else 0.0
        return gathered, layer, pools

    def _copies(self, held: Held) -> float:
        """Return the copies of whole weights that stay beside them through the step: of autocast, and in 8 bits [B]."""
        if self.parameters.shares_weights:
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

    def _logits(self) -> tuple[float, float]:
        """Return logits with their gradients, and the input of the head [B]."""
        facts, part = self.facts, self.part
        each = facts.parallel_loss_bytes if self.plan.tp > 1 else facts.loss_bytes
        wide = part.element_bytes / HALF if each > SINGLE else 1.0
        tokens = part.tokens if self.plan.tp > 1 else part.outer
        return each * wide * part.tokens * self.config.vocab / self.plan.tp, (
            part.element_bytes * tokens * self.config.hidden
        )
