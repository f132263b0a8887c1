"""The matrices of one layer on one GPU: their sizes, and which of them tensor parallel ranks gather and sum around."""

from __future__ import annotations

import functools
from typing import NamedTuple

from perfmodel.training.compressed import compressors_of
from perfmodel.training.shard import Shard, key_heads, key_value_width
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: how the names of the matrices of routed experts begin
EXPERT = "expert_"
#: products whose input tensor parallel ranks gather, those together that read the same one, as all around a state do
#: (Kimi's delta rule has six, lightning attention two); and products whose outputs they sum
COLUMNS = (
    ("state", "decay_rate", "rate", "gate", "decay_down", "gate_down"),
    *(("qkv",), ("cross_q",), ("cross_kv",), ("up",), ("shared_up",)),
)
ROWS = ("state_out", "out", "cross_out", "down", "shared_down")


class Matrix(NamedTuple):
    """A matrix [n, k] of one GPU and the rows that it multiplies."""

    rows: float
    n: float
    k: float
    batch: float = 1.0


@functools.lru_cache(maxsize=1024)
def held_weights(config: ModelConfig, shard: Shard, kind: Kind) -> float:
    """Return the elements of the matrices of one layer that a GPU holds, without routed experts.

    A matrix that tensor parallel ranks do not share out, such as a router, counts whole.
    """
    matrices = matrices_of(config, shard, kind)
    return sum(one.batch * one.n * one.k for name, one in matrices.items() if not name.startswith(EXPERT))


def matrices_of(config: ModelConfig, shard: Shard, kind: Kind) -> dict[str, Matrix]:
    """Return the matrices of one layer by name, with the rows that they multiply."""
    return {
        **(_state_matrices(config, shard) if kind.linear else {}),
        **(_attention_matrices(config, shard) if kind.attends else {}),
        **_compressed_matrices(config, shard, kind),
        **({} if kind.bare else _mlp_matrices(config, shard, kind.moe)),
    }


def _attention_matrices(config: ModelConfig, shard: Shard) -> dict[str, Matrix]:
    """Return the matrices around attention: queries, keys and values together, as frameworks join them, and output."""
    tokens, hidden, tp = shard.tokens, config.hidden, shard.tp
    out = Matrix(tokens, hidden, config.heads * config.value_dim / tp)
    queries = Matrix(tokens, config.query_width / tp, config.q_lora or hidden)
    if config.architecture.shared_vector:
        down = config.q_lora + config.kv_width
        return {"latent_down": Matrix(shard.outer_tokens, down, hidden), "qkv": queries, **_outputs(config, shard)}
    if config.latent_attention:
        down = config.q_lora + config.kv_lora + config.rope_head_dim
        up = config.heads * (config.nope_head_dim + config.value_dim) / tp
        return {
            "latent_down": Matrix(shard.outer_tokens, down, hidden),
            "qkv": queries,
            "kv_up": Matrix(tokens, up, config.kv_lora),
            "out": out,
        }
    keys = key_value_width(config, tp)
    own = keys - (key_heads(config, tp) * config.value_dim if config.keys_are_values else 0.0)
    width = config.query_width + config.gate_width + config.heads * config.architecture.head_gate
    found = {"qkv": Matrix(tokens, width / tp + own, hidden), "out": out}
    if shard.cross_seq:
        found["cross_q"] = Matrix(tokens, config.query_width / tp, hidden)
        found["cross_kv"] = Matrix(shard.cross_tokens, keys, hidden)
        found["cross_out"] = out
    return found


def _outputs(config: ModelConfig, shard: Shard) -> dict[str, Matrix]:
    """Return the matrices that follow attention: one, or those of groups of heads before it."""
    *groups, out = config.output_linears()
    tokens, tp, count = shard.tokens, shard.tp, max(1, config.output_groups)
    found = {"out": Matrix(tokens, out.n, out.k / tp)}
    return {"out_groups": Matrix(tokens, groups[0].n / count, groups[0].k, count / tp), **found} if groups else found


def _compressed_matrices(config: ModelConfig, shard: Shard, kind: Kind) -> dict[str, Matrix]:
    """Return the matrices of a layer's indexer, of what compresses its tokens, and of its hyper-connections.

    Each GPU has all of them. Matrices of keys and gates that multiply one input are one product.
    """
    tokens, hidden, streams = shard.outer_tokens, config.hidden, config.residual_streams
    found = {}
    if kind.indexed and config.index_ratio > 1:
        found["index_query"] = Matrix(tokens, config.index_heads * config.index_head_dim, config.q_lora or hidden)
        found["index_weight"] = Matrix(tokens, config.index_heads, hidden)
    for one in compressors_of(config, kind):
        found[f"{one.prefix}_compressor"] = Matrix(tokens, sum(matrix.n for matrix in one.matrices), hidden)
    if streams > 1:
        for block in ("attention", "mlp")[: kind.blocks]:
            found[f"{block}_mixing"] = Matrix(tokens, streams * (streams + 2), streams * hidden)
    return found


def _state_matrices(config: ModelConfig, shard: Shard) -> dict[str, Matrix]:
    """Return the matrices around a layer's state: the first computes what goes into it, the last follows it."""
    into, *others, out = config.state_layer.share(shard.tp).matrices()
    return {
        "state": Matrix(shard.tokens, into.n, into.k),
        **{matrix.name: Matrix(shard.tokens, matrix.n, matrix.k) for matrix in others},
        "state_out": Matrix(shard.tokens, out.n, out.k),
    }


def _mlp_matrices(config: ModelConfig, shard: Shard, moe: bool) -> dict[str, Matrix]:
    tokens, hidden, gates = shard.tokens, config.hidden, 2 if config.gated else 1
    if not moe:
        ffn = config.ffn / shard.tp
        return {"up": Matrix(tokens, gates * ffn, hidden), "down": Matrix(tokens, hidden, ffn)}
    local, width = config.experts / shard.ep, config.expert_ffn / shard.etp
    rows = shard.imbalance * shard.expert_tokens * config.top_k * shard.ep / config.experts
    found = {
        "router": Matrix(shard.outer_tokens, config.scored_experts, hidden),
        "expert_up": Matrix(rows, gates * width, config.expert_width, local),
        "expert_down": Matrix(rows, config.expert_width, width, local),
        **{one.name: Matrix(shard.outer_tokens, one.n, one.k) for one in config.latent_linears()},
    }
    if config.shared_ffn:
        shared = config.shared_ffn / shard.tp
        found["shared_up"] = Matrix(tokens, gates * shared, hidden)
        found["shared_down"] = Matrix(tokens, hidden, shared)
    return found
