"""What the memory-bound kernels of a layer move: norms, rotary positions, activations, additions, dropouts."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.training.compressed import compressor_stream_bytes, residual_elements
from perfmodel.training.kernels import row_slowness
from perfmodel.training.shard import Shard, key_heads, key_value_width, key_width
from perfmodel.training.states import state_stream_bytes
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: what a fused norm moves for an element forward, with activations in 16 bits [B]
FUSED_NORM_BYTES = 4.0
#: what one kernel of a chain of elementwise kernels moves for an element: 16-bit and fp32 reads and writes, or one to
#: two reads and a write in fp32 [B]
CHAIN_BYTES, WIDE_CHAIN_BYTES = 7.0, 10.0


def stream_bytes(hardware: Hardware, config: ModelConfig, shard: Shard, kind: Kind) -> tuple[list[float], list[float]]:
    """Return what each memory-bound kernel moves, forward and backward, without those inside attention [B].

    A norm counts as the copy that takes as long as the norm is predicted to.

    Fused kernels move, in elements: norms T h in and out (backward 2 in, 1 out), rotary positions T (q + k) / t in and
    out, the activation 1 in and 1 out (gated 2 in, 1 out; backward 2 in and 1 out, gated 3 in and 2 out). Kernels that
    are not fused move what their framework's file says. The additions of residuals move 2 in and 1 out, a dropout of
    the hidden state one byte an element more, and as a kernel of its own 1 in and 1 out beside; a bias has its gradient
    summed from one read of the output. T is divided by t for norms, residuals and dropouts under sequence parallelism.
    Experts also sort tokens there and back. Attention to an encoder has a norm, an addition and a dropout of its own. A
    gate of attention's output moves 2 in and 1 out, backward 3 in and 2 out; what is around a state,
    `state_stream_bytes` says. The sum of what attention and a state beside it give moves 2 in and 1 out, and so does
    that of their input's gradients. Hyper-connections stand for the additions, see `residual_elements`; compression has
    its own kernels.
    """
    e, hidden = shard.element_bytes, shard.outer_tokens * config.hidden
    wide = e / 2.0
    dtype = shard.sixteen if shard.sixteen != "tf32" else "fp32"
    slow = 1.0  # unfused norms are chains of elementwise kernels
    if shard.norm_bytes[0] <= 2 * FUSED_NORM_BYTES:
        slow = row_slowness(hardware, "norm", round(shard.outer_tokens), config.hidden, dtype, shard.row_library)
    norms = slow * shard.norm_bytes[0], slow * shard.norm_bytes[1]
    blocks = kind.blocks + (shard.cross_seq > 0)
    added = residual_elements(config.residual_streams)
    forward = [wide * norms[0] * hidden, added[0] * e * hidden] * blocks
    backward = [wide * norms[1] * hidden, added[1] * e * hidden] * blocks
    if shard.dropout:
        dropped = (2 * e + 1) * hidden
        forward, backward = (
            [*forward, *[hidden if shard.fused_dropout else dropped] * blocks],
            [*backward, *[dropped] * blocks],
        )
    for around in _around_mixers(config, shard, kind, norms):
        forward, backward = [*forward, *around[0]], [*backward, *around[1]]
    if kind.joint:
        forward, backward = [*forward, 3 * e * hidden], [*backward, 3 * e * hidden]
    into, back = _activation_bytes(config, shard)
    for inner in [] if kind.bare else _activated(config, shard, kind.moe):
        forward, backward = [*forward, wide * into * inner], [*backward, wide * back * inner]
    if shard.bias and config.qkv_bias:
        width = config.query_width / shard.tp + key_value_width(config, shard.tp) + 2 * config.hidden
        backward = [*backward, e * shard.tokens * (width + (0.0 if kind.bare else config.ffn / shard.tp))]
    if kind.moe:
        routed = shard.outer_tokens * config.top_k * config.expert_width
        there, back = (wide * moved / 2.0 * routed for moved in shard.routed_bytes)
        forward, backward = [*forward, *[there] * 2], [*backward, *[back] * 2]
    return forward, backward


def _around_mixers(
    config: ModelConfig, shard: Shard, kind: Kind, norms: tuple[float, float]
) -> list[tuple[list[float], list[float]]]:
    """Return what the kernels around a layer's state and around its attention move, forward and backward [B]."""
    states = [state_stream_bytes(config, shard.tokens, shard.tp, shard.element_bytes)] if kind.linear else []
    attention = [_around_attention(config, shard, norms)] if kind.attends else []
    return [*states, *attention, compressor_stream_bytes(config, kind, shard.outer_tokens)]


def _around_attention(config: ModelConfig, shard: Shard, norms: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return what the kernels between the projections and attention move, forward and backward [B]."""
    wide, forward, backward = shard.element_bytes / 2.0, list[float](), list[float]()
    heads = shard.tokens * (config.query_width / shard.tp + key_width(config, shard.tp))
    if config.rotary:
        forward, backward = [wide * shard.rotary_bytes[0] * heads], [wide * shard.rotary_bytes[1] * heads]
    if shard.split_bytes:
        backward = [*backward, wide * shard.split_bytes * shard.tokens * config.hidden]
    if config.qk_norm:
        forward, backward = [*forward, wide * norms[0] * heads], [*backward, wide * norms[1] * heads]
    if config.architecture.output_gate:
        gated = shard.element_bytes * shard.tokens * config.gate_width / shard.tp
        forward, backward = [*forward, 3 * gated], [*backward, 5 * gated]
    apart = config.latent_attention or config.architecture.shared_vector
    if shard.copies_queries and config.rotary and not apart:
        copied = _copied_queries(config, shard)
        forward, backward = [*forward, copied[0]], [*backward, copied[1]]
    if shard.cp > 1 and not shard.ulysses:
        merged = _merged_bytes(config, shard)
        forward, backward = [*forward, merged[0]], [*backward, merged[1]]
    return forward, backward


def _activation_bytes(config: ModelConfig, shard: Shard) -> tuple[float, float]:
    """Return what an activation moves for an element of its output, forward and backward [B]."""
    if config.gated:
        return shard.gate_bytes
    if config.activation == "gelu_new":
        return shard.gelu_new_bytes
    return shard.square_bytes if config.activation in SQUARED else (4.0, 6.0)


#: names of the squared ReLU in configurations
SQUARED = ("relu2", "squared-relu", "squared_relu")


def _copied_queries(config: ModelConfig, shard: Shard) -> tuple[float, float]:
    """Return what moves queries and values out of the projection's output, and joins all three gradients [B].

    The output holds the queries of a key head, its key and its value side by side. Queries of several heads a key head
    are copied, and values; keys the rotary kernel copies anyway. Backward joins the gradients of all three.
    """
    queries, values = config.query_width / shard.tp, key_heads(config, shard.tp) * config.value_dim
    e = 2.0 * shard.element_bytes * shard.tokens
    copied = queries * (config.kv_heads < config.heads) + values
    return e * copied, e * (queries + key_value_width(config, shard.tp))


def _merged_bytes(config: ModelConfig, shard: Shard) -> tuple[float, float]:
    """Return what a ring of context parallel ranks moves to join the parts of attention, forward and backward [B].

    Each of c steps adds its output, or its gradients, to a sum: 2 in and 1 out. Half of a zigzag's steps but the first
    have half of the queries, the others half of the keys: (3 c + 1) / 4 of whole ones (Transformer Engine,
    ``AttnFuncWithCPAndKVP2P``).
    """
    steps = 3.0 * shard.element_bytes * (3.0 * shard.cp + 1.0) / 4.0
    queries = shard.tokens * config.heads * config.value_dim / shard.tp
    keys = shard.tokens * key_value_width(config, shard.tp)
    return steps * queries, steps * (queries + keys)


def chains(config: ModelConfig, shard: Shard, backward: int, kind: Kind) -> int:
    """Return how many kernels unfused norms, rotary positions, gates and routes run beyond one each, in a pass.

    Each kernel of such a chain moves about `CHAIN_BYTES` an element.
    """
    counted = [shard.norm_bytes[backward]] * (kind.blocks + (shard.cross_seq > 0))
    counted += [shard.routed_bytes[backward] / 2.0] * (2 * kind.moe)
    counted += [shard.rotary_bytes[backward]] * (config.rotary and kind.attends) + [shard.gate_bytes[backward]] * (
        config.gated and not kind.bare
    )
    wide = shard.element_bytes / 2.0
    each = CHAIN_BYTES if wide == 1.0 else WIDE_CHAIN_BYTES / wide
    return sum(max(0, round(moved / each) - 1) for moved in counted)


def expert_stream_bytes(config: ModelConfig, shard: Shard) -> tuple[float, float]:
    """Return what the activation inside routed experts moves, forward and backward [B]; `stream_bytes` counts it."""
    routed, *_ = _activated(config, shard, True)
    into, back = _activation_bytes(config, shard)
    wide = shard.element_bytes / 2.0
    return wide * into * routed, wide * back * routed


def _activated(config: ModelConfig, shard: Shard, moe: bool) -> list[float]:
    """Return the elements behind each activation of one GPU; those of routed experts come first."""
    if not moe:
        return [shard.tokens * config.ffn / shard.tp]
    routed = shard.imbalance * shard.expert_tokens * config.top_k * config.expert_ffn / shard.etp
    return [routed, *([shard.tokens * config.shared_ffn / shard.tp] if config.shared_ffn else [])]
