"""One micro batch on one GPU: layers, head and embedding, with the constants of training and their exchanges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.cluster.collectives import exchange_time
from perfmodel.prediction.launching import kernel_gap_s
from perfmodel.training.adapters import adapted, adapter_bytes, adapters_of
from perfmodel.training.dispatch import layer_launches
from perfmodel.training.exchange import (
    Routed,
    context_exchange,
    expert_exchange,
    expert_tensor_exchange,
    tensor_exchange,
)
from perfmodel.training.expert_overlap import Window, beside_shared_s, hidden_s, overlaps
from perfmodel.training.frozen import frozen_kernels
from perfmodel.training.kernels import CoreTime, needs_transposed, stream_time
from perfmodel.training.layer import LayerWork, head_work, layer_work
from perfmodel.training.plan import ContextAlgorithm, Recompute
from perfmodel.training.setup import Setup
from perfmodel.training.shard import Shard
from perfmodel.training.stages import encoder_stages
from perfmodel.training.stem import stem_work
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: the parts of the time of a micro batch, in the order of the vectors below
PARTS = (
    *("products", "attention", "memory_bound", "casts", "head", "tensor", "context", "expert"),
    *("recompute", "host", "gaps"),
)
INDEX = {name: index for index, name in enumerate(PARTS)}
Vector = NDArray[np.float64]


def _vector(**parts: float) -> Vector:
    vector = np.zeros(len(PARTS))
    for name, value in parts.items():
        vector[INDEX[name]] = value
    return vector


@dataclass(frozen=True)
class Passes:
    """One layer, or the head, of one micro batch on a GPU, by `PARTS`.

    Attributes
    ----------
    forward, backward : by part [s].
    weights_s : of backward, the products of the weights' gradients [s].
    parameters, expert_parameters : that the GPU holds, without and in routed experts.
    trained, trained_experts : of these, with gradients: adapters beside frozen ones count without them.
    weight_bytes : of a parameter as ranks that share it out gather it [B].
    launches : kernels that the host launches forward, and backward with what is computed anew.
    hidden_s : how much shorter both passes are beside those of another micro batch, whose exchanges they hide [s].
    attending_s : of both passes, attention to keys without states, and what of it is computed anew [s].
    """

    forward: Vector
    backward: Vector
    weights_s: float
    parameters: float
    trained: float
    weight_bytes: float
    expert_parameters: float = 0.0
    trained_experts: float = 0.0
    launches: tuple[float, float] = (0.0, 0.0)
    hidden_s: float = 0.0
    attending_s: float = 0.0


def layer_passes(setup: Setup, kind: Kind) -> Passes:
    """Return one layer of one micro batch, with the constants of training and its exchanges."""
    shard, config, fixed = setup.shard, setup.config, setup.constants
    if kind.encoder and config.encoder:
        shard, config = setup.encoder_shard, config.encoder
    config = config.windowed if kind.windowed else config
    facts = config.architecture
    if facts.sinks and not facts.shared_vector and setup.framework.unfused_sinks and not kind.windowed:
        shard = shard._replace(kernel="unfused")
    work = layer_work(setup.hardware, config, shard, kind)
    if setup.plan.frozen_dtype:
        more = frozen_kernels(config, kind, setup.plan.ep)
        work = replace(work, kernels=work.kernels + more, kernels_backward=work.kernels_backward + more)
    slow = fixed.memory_bound[setup.framework.streams]
    frozen = setup.plan.lora > 0
    weights_s = 0.0 if frozen else sum(passes.weight_s for passes in work.products.values())
    attention = _attention(setup, work)
    exchanges = _exchanges(setup, config, shard, work, kind, attention)
    adapters = _adapters(setup, config, shard, kind)
    gap_s = kernel_gap_s(setup.hardware)
    cast_s = _weight_cast_s(setup, work.parameters + work.expert_parameters)
    wide_s = _written_out_s(setup, work.parameters + work.expert_parameters)
    forward = _vector(
        products=sum(passes.forward_s for passes in work.products.values()),
        attention=attention[0],
        memory_bound=slow * (work.streams_s + adapters[0] + cast_s + wide_s),
        casts=fixed.casts * stream_time(setup.hardware, _cast_bytes(setup) * work.cast_elements),
        gaps=gap_s * work.kernels,
        **exchanges[0],
    )
    inputs_s = sum(passes.input_s for passes in work.products.values())
    backward = _vector(
        products=inputs_s + weights_s + (0.0 if frozen else work.accumulate_s),
        attention=attention[1],
        memory_bound=slow * (work.streams_backward_s + adapters[1] + cast_s + wide_s),
        casts=fixed.casts * stream_time(setup.hardware, _cast_bytes(setup) * work.cast_backward_elements)
        + fixed.casts * stream_time(setup.hardware, 2.0 * _transposed(setup) * work.gathered_elements),
        gaps=gap_s * work.kernels_backward,
        **exchanges[1],
    )
    hidden = _hidden_s(setup, work, forward, backward) if kind.moe and overlaps(setup.plan) else 0.0
    backward[INDEX["recompute"]] = _recompute(setup, forward, work)
    return Passes(
        forward,
        backward,
        weights_s,
        work.parameters,
        setup.trained(work.parameters, kind),
        setup.layer_weight_bytes,
        work.expert_parameters,
        setup.trained(work.expert_parameters),
        layer_launches(setup, work, _adapter_count(setup, config, kind)),
        hidden,
        _attending_s(setup, work),
    )


def _attending_s(setup: Setup, work: LayerWork) -> float:
    """Return attention to keys of both passes of a layer, with what of it backward computes anew [s]."""
    forward, backward = _core(setup, work.core)
    again = {Recompute.FULL: 1.0, Recompute.SELECTIVE_LAYER: 0.5}.get(Recompute(setup.plan.recompute), 0.0)
    return (1.0 + again) * forward + backward


def _hidden_s(setup: Setup, work: LayerWork, forward: Vector, backward: Vector) -> float:
    """Return how much shorter the passes of a layer with experts are in pairs, before anything is computed anew [s].

    Neither waits for the host nor what backward computes anew hide an exchange.
    """
    slow, experts = setup.constants.memory_bound[setup.framework.streams], work.experts
    trained = experts.input_s if setup.plan.lora else experts.backward_s
    inside = (
        experts.forward_s + slow * work.expert_streams_s,
        trained + slow * work.expert_streams_backward_s,
    )

    routed = _routed(setup, work)
    there = routed.there_s / routed.time_s if routed.time_s else 0.5

    def window(parts: Vector, experts_s: float) -> Window:
        exchange_s = float(parts[INDEX["expert"]])
        rest_s = float(parts.sum() - parts[INDEX["host"]]) - exchange_s - experts_s
        return Window(rest_s, experts_s, exchange_s, there)

    return hidden_s(window(forward, inside[0]), window(backward, inside[1]), setup.constants.sm_share)


def _exchanges(
    setup: Setup, config: ModelConfig, shard: Shard, work: LayerWork, kind: Kind, attention: tuple[float, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what exchanges add to the forward and the backward pass of a layer, and its waits for the host [s]."""
    share = setup.constants.sm_share
    tensor = tensor_exchange(
        setup.groups,
        shard,
        work,
        setup.config.hidden,
        setup.overlaps_tensor,
        setup.framework.overlaps_input_gradients,
        share,
    )
    maxima = setup.maxima * exchange_time(setup.groups.tensor, "all_reduce", 4.0)
    context = context_exchange(setup.groups, shard, config, *attention, share)
    forward = {"tensor": tensor[0] + maxima, "context": context[0]}
    backward = {"tensor": tensor[1] + maxima, "context": context[1]}
    if kind.moe:
        routed = _routed(setup, work)
        cut = expert_tensor_exchange(setup.groups, shard, work, setup.config.router, setup.dispatcher)
        for parts, hidden in zip((forward, backward), _beside_shared(setup, work, routed), strict=True):
            parts |= {"expert": routed.time_s - hidden + cut, "host": setup.host_s}
    return forward, backward


def _routed(setup: Setup, work: LayerWork) -> Routed:
    """Return the exchanges of tokens with experts of other ranks in one pass of a layer [s]."""
    plan, router = setup.plan, setup.config.router
    narrow = plan.dispatch_dtype == "fp8"
    return expert_exchange(setup.groups, work, router, setup.dispatcher, setup.constants.routing, narrow)


def _beside_shared(setup: Setup, work: LayerWork, routed: Routed) -> tuple[float, float]:
    """Return what shared experts hide of the exchanges of each pass of a layer [s]; 0 unless the plan has it so."""
    if not (setup.plan.shared_expert_overlap and "shared_up" in work.products):
        return 0.0, 0.0
    up, down = work.products["shared_up"], work.products["shared_down"]
    backward = (down.input_s, up.input_s) if setup.plan.lora else (down.backward_s, up.backward_s)
    share = setup.constants.sm_share
    return (
        beside_shared_s(*routed, up.forward_s, down.forward_s, share),
        beside_shared_s(*routed, *backward, share),
    )


def _adapter_count(setup: Setup, config: ModelConfig, kind: Kind) -> int:
    """Return how many adapters the host launches the kernels of in a layer."""
    if not setup.plan.lora:
        return 0
    return adapters_of(adapted(config, kind, setup.plan.lora_targets), setup.framework.joins_adapters)


def _adapters(setup: Setup, config: ModelConfig, shard: Shard, kind: Kind) -> tuple[float, float]:
    """Return the time of the adapters of a layer, forward and backward [s]; 0 without."""
    if not setup.plan.lora:
        return 0.0, 0.0
    cross, targets = shard.cross_tokens, setup.plan.lora_targets
    forward, backward = adapter_bytes(config, kind, shard.tokens, shard.tp, shard.element_bytes, cross, targets)
    return stream_time(setup.hardware, forward), stream_time(setup.hardware, backward)


def _written_out_s(setup: Setup, parameters: float) -> float:
    """Return what writing some frozen weights out for the products of a pass takes [s]; 0 where they are wide."""
    if not setup.plan.frozen_dtype:
        return 0.0
    return stream_time(setup.hardware, (setup.layer_weight_bytes + setup.shard.element_bytes) * parameters)


def _cast_bytes(setup: Setup) -> float:
    """Return the bytes that the cast of one element to 8 bits or fewer moves, with a second copy where one is needed.

    Where 8-bit products need both factors with the summed axis innermost, the gradients' products read a transposed
    copy (`needs_transposed`). Blocks that share a scale lie along the summed axis: their casts write both copies on
    any machine. Frozen weights have no such product, and what they multiply no second copy
    (NVIDIA/TransformerEngine, pytorch/module/linear.py: columnwise=backward_needs_input).
    """
    return setup.framework.cast_bytes(setup.plan.dtype, setup.plan.lora > 0) + _transposed(setup)


def _transposed(setup: Setup) -> float:
    """Return the bytes of a second, transposed copy of an element: what is gathered is read and written for it."""
    return float(setup.plan.dtype == "fp8" and not setup.plan.lora and needs_transposed(setup.hardware))


def _attention(setup: Setup, work: LayerWork) -> tuple[float, float]:
    """Return attention and states in training, forward and backward [s]; of the slowest context parallel rank."""
    forward, backward = zip(_core(setup, work.core), _core(setup, work.states), strict=True)
    return sum(forward), sum(backward)


def _core(setup: Setup, core: CoreTime) -> tuple[float, float]:
    """Return one core in training, forward and backward [s]; of the slowest context parallel rank."""
    plan = setup.plan
    chart = setup.constants.chart_factor.get(setup.kernel, 1.0) if core.charted else 1.0
    share = 1.0 / plan.cp
    if plan.cp_algorithm == ContextAlgorithm.RING and setup.config.architecture.causal:
        share *= (2.0 * plan.cp - 1.0) / plan.cp
    return core.forward_s * chart * share, core.backward_s * chart * share


def _recompute(setup: Setup, forward: Vector, work: LayerWork) -> float:
    """Return what backward computes anew of a layer [s]."""
    whole = float(forward.sum() - forward[INDEX["host"]])
    products, memory = (
        float(forward[INDEX["products"]]),
        float(forward[INDEX["memory_bound"]] + forward[INDEX["casts"]]),
    )
    if setup.plan.recompute == Recompute.FULL:
        return whole
    if setup.plan.recompute == Recompute.SELECTIVE_LAYER:
        return 0.5 * whole
    if setup.plan.recompute == Recompute.SELECTIVE_OP:
        return 0.5 * products + memory
    if setup.plan.recompute == Recompute.SELECTIVE and work.core.softmax_bytes:
        slow = setup.constants.memory_bound[setup.framework.streams]
        softmax = slow * stream_time(setup.hardware, work.core.softmax_bytes)
        return _core(setup, work.core)[0] + softmax
    return 0.0


def head_passes(setup: Setup) -> Passes:
    """Return the head and the loss of one micro batch; the loss counts as backward."""
    work = head_work(setup.hardware, setup.padded, setup.shard)
    slow = setup.constants.memory_bound[setup.framework.streams]
    loss = slow * stream_time(setup.hardware, setup.loss_bytes * work.logits)
    cast_s = _weight_cast_s(setup, work.parameters)
    forward = work.products.forward_s + slow * (work.streams_s + cast_s)
    weights_s = 0.0 if setup.plan.lora else work.products.weight_s
    again_s = work.products.forward_s if setup.framework.recomputes_logits else 0.0
    backward = work.products.input_s + weights_s + again_s + loss + slow * cast_s
    held = work.parameters
    return Passes(_vector(head=forward), _vector(head=backward), weights_s, held, setup.trained(held), setup.wide_bytes)


def _weight_cast_s(setup: Setup, parameters: float) -> float:
    """Return what casting some weights to 16 bits, or their gradients back, takes in a pass under autocast [s]."""
    cast = setup.shard.element_bytes == 2.0 and not setup.narrow_weights
    return stream_time(setup.hardware, setup.framework.weight_cast_bytes * parameters) if cast else 0.0


def looked_up(setup: Setup, index: int) -> float:
    """Return the tokens whose embedding one GPU of the pipeline looks up: of each stack on its first stage."""
    shard, first = setup.shard, encoder_stages(setup.config, setup.plan)
    encoded = 0.0 if setup.config.audio_bands else shard.cross_tokens
    if not first:
        return shard.tokens + encoded if index == 0 else 0.0
    return {0: encoded, first: shard.tokens}.get(index, 0.0)


def stem_passes(setup: Setup) -> Passes:
    """Return the convolutions before an encoder of sound, as products, with a GELU behind each.

    The spectrum needs no gradient, so that the first has none of its input.
    """
    shard, config = setup.encoder_shard, setup.config
    products, moved, held = stem_work(setup.hardware, config, shard)
    slow = setup.constants.memory_bound[setup.framework.streams]
    forward = sum(one.forward_s for one in products)
    inputs_s, weights_s = products[1].input_s, 0.0 if setup.plan.lora else sum(one.weight_s for one in products)
    streams_s = slow * stream_time(setup.hardware, moved)
    forward_pass = _vector(products=forward, memory_bound=streams_s)
    backward_pass = _vector(products=inputs_s + weights_s, memory_bound=1.5 * streams_s)
    return Passes(forward_pass, backward_pass, weights_s, held, setup.trained(held), setup.wide_bytes)


def embedding_passes(setup: Setup, tokens: float) -> Passes:
    """Return the look-up of the embedding, and the addition of its gradients, as copies of the hidden state.

    An encoder looks its tokens up in the same table. The gradient of the table is dense: a tensor of its size is
    written (``embedding_dense_backward`` of PyTorch), and added to what earlier micro batches or a tied head gave.
    """
    shard, config = setup.shard, setup.padded
    slow = setup.constants.memory_bound[setup.framework.streams]
    moved = 2.0 * shard.element_bytes * tokens * config.hidden
    time = slow * stream_time(setup.hardware, moved)
    table = stream_time(setup.hardware, _table_bytes(setup) * config.vocab * config.embedding_dim / shard.tp)
    own = 0.0 if config.tied and setup.plan.pp == 1 else config.vocab * config.embedding_dim / shard.tp
    back = 0.0 if setup.plan.lora else 2.0 * time + slow * table
    return Passes(_vector(head=time), _vector(head=back), 0.0, own, setup.trained(own), setup.wide_bytes)


def _table_bytes(setup: Setup) -> float:
    """Return what the gradient of an element of the embedding moves in a micro batch [B]."""
    e = setup.shard.element_bytes
    if setup.shard.accumulates:
        return e + e + 2.0 * (4.0 if setup.shard.main_gradients == "fp32" else e)
    return e + (3.0 * e if setup.config.tied and setup.plan.pp == 1 else 0.0)
