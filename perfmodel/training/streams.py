"""What the memory-bound kernels of a layer move: norms, rotary positions, activations, additions, dropouts."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.training.kernels import row_slowness
from perfmodel.training.shard import Shard, key_width
from perfmodel.workloads.model_config import ModelConfig

#: what a fused norm moves for an element forward, with activations in 16 bits [B]
FUSED_NORM_BYTES = 4.0
#: what one kernel of a chain of elementwise kernels moves for an element [B]
CHAIN_BYTES = 7.0


def stream_bytes(hardware: Hardware, config: ModelConfig, shard: Shard, moe: bool) -> tuple[list[float], list[float]]:
    """Return what each memory-bound kernel moves, forward and backward, without those inside attention [B].

    A norm counts as the copy that takes as long as the norm is predicted to.

    Fused kernels move, in elements: norms T h in and out (backward 2 in, 1 out), rotary positions T (q + k) / t in and
    out, the activation 1 in and 1 out (gated 2 in, 1 out; backward 2 in and 1 out, gated 3 in and 2 out). Kernels that
    are not fused move what their framework's file says. The additions of residuals move 2 in and 1 out, a dropout of
    the hidden state one byte an element more; a bias has its gradient summed from one read of the output. T is divided
    by t for norms, residuals and dropouts under sequence parallelism. Experts also sort tokens there and back.
    Attention to an encoder has a norm, an addition and a dropout of its own.
    """
    e, hidden = shard.element_bytes, shard.outer_tokens * config.hidden
    wide = e / 2.0
    heads = shard.tokens * (config.query_width / shard.tp + key_width(config, shard.tp))
    dtype = shard.sixteen if shard.sixteen != "tf32" else "fp32"
    slow = 1.0  # unfused norms are chains of elementwise kernels
    if shard.norm_bytes[0] <= 2 * FUSED_NORM_BYTES:
        slow = row_slowness(hardware, "norm", round(shard.outer_tokens), config.hidden, dtype)
    norms, turns = (slow * shard.norm_bytes[0], slow * shard.norm_bytes[1]), shard.rotary_bytes
    blocks = 3 if shard.cross_seq else 2
    forward = [wide * norms[0] * hidden, 3 * e * hidden] * blocks
    backward = [wide * norms[1] * hidden, 3 * e * hidden] * blocks
    if shard.dropout:
        forward, backward = [*forward, *[hidden] * blocks], [*backward, *[(2 * e + 1) * hidden] * blocks]
    if config.rotary:
        forward, backward = [*forward, wide * turns[0] * heads], [*backward, wide * turns[1] * heads]
    if shard.split_bytes:
        backward = [*backward, wide * shard.split_bytes * shard.tokens * config.hidden]
    if config.qk_norm:
        forward, backward = [*forward, wide * norms[0] * heads], [*backward, wide * norms[1] * heads]
    into, back = shard.gate_bytes if config.gated else (4.0, 6.0)
    for inner in _activated(config, shard, moe):
        forward, backward = [*forward, wide * into * inner], [*backward, wide * back * inner]
    if shard.bias and config.qkv_bias:
        width = config.query_width / shard.tp + 2 * key_width(config, shard.tp) + 2 * config.hidden
        backward = [*backward, e * shard.tokens * (width + config.ffn / shard.tp)]
    if moe:
        routed = shard.outer_tokens * config.top_k * config.hidden
        forward, backward = [*forward, *[2 * e * routed] * 2], [*backward, *[2 * e * routed] * 2]
    return forward, backward


def chains(config: ModelConfig, shard: Shard, backward: int) -> int:
    """Return how many kernels unfused norms, rotary positions and gates run beyond one each, in a pass.

    Each kernel of such a chain moves about 7 B an element: 16-bit and fp32 reads and writes.
    """
    counted = [shard.norm_bytes[backward]] * (3 if shard.cross_seq else 2)
    counted += [shard.rotary_bytes[backward]] * config.rotary + [shard.gate_bytes[backward]] * config.gated
    return sum(max(0, round(moved / CHAIN_BYTES) - 1) for moved in counted)


def _activated(config: ModelConfig, shard: Shard, moe: bool) -> list[float]:
    """Return the elements behind each activation of one GPU."""
    if not moe:
        return [shard.tokens * config.ffn / shard.tp]
    routed = shard.imbalance * shard.outer_tokens * config.top_k * config.expert_ffn
    return [routed, *([shard.tokens * config.shared_ffn / shard.tp] if config.shared_ffn else [])]
