"""What a layer keeps of a micro batch for its backward pass, and what it needs beside that while backward runs [B].

Formulas: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198),
section 4, for attention with separate kernels; flash kernels keep a logarithm a row and head instead of the scores.
"""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.training.compressed import compressed_kept
from perfmodel.training.plan import Recompute
from perfmodel.training.shard import expert_tokens, key_heads, key_value_width
from perfmodel.training.states import states_kept
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: bytes that flash attention keeps a token and head: the logarithm of the sum of exponentials, fp32
_LOGARITHM_BYTES = 4.0
#: bytes of one router score a token and expert, fp32
_SCORE_BYTES = 4.0
UNFUSED = ("unfused", "eager-unfused")


class Slice(NamedTuple):
    """The share of a layer that one GPU has, and how its framework keeps activations.

    Attributes
    ----------
    tokens : of a micro batch on this GPU: micro batch x sequence / cp.
    keys : keys that a query has scores for: the sequence, or the model's window.
    tp, etp : ranks that share out a layer, and its experts.
    sp : norms, residuals and dropouts are shared out too.
    element_bytes : of an activation, 2 or 4.
    kernel : of attention.
    dropout : masks are kept.
    norm_copies, gate_copies, expert_outputs : see `perfmodel.training.memory_facts.MemoryFacts`.
    gathered_inputs : inputs of products are kept as a whole where tensor parallel ranks gather them.
    narrow_inputs : inputs of products in 8 bits are kept in 8 bits.
    last_output : recomputation of every second product keeps the output of the layer's last one.
    cross_tokens, cross_keys : of the encoder, in a micro batch and in a sequence, that a decoder's layers attend to.
    imbalance : tokens of the busiest expert parallel rank over the mean, which is taken to be the same in all layers.
    """

    tokens: float
    keys: float
    tp: int
    etp: int
    sp: bool
    element_bytes: float
    kernel: str
    dropout: bool
    norm_copies: bool
    gate_copies: bool
    expert_outputs: bool
    gathered_inputs: bool
    narrow_inputs: bool
    last_output: bool
    cross_tokens: float = 0.0
    cross_keys: float = 0.0
    imbalance: float = 1.0

    @property
    def outer(self) -> float:
        """Tokens whose norms and residuals this GPU has."""
        return self.tokens / self.tp if self.sp else self.tokens

    @property
    def expert_tokens(self) -> float:
        """Tokens for which the busiest GPU computes its part of the experts, each as often as experts it is sent to."""
        return self.imbalance * expert_tokens(self.tokens, self.tp, self.etp, self.sp)

    @property
    def input_bytes(self) -> float:
        """Bytes of an element of the input of a product."""
        return 1.0 if self.narrow_inputs else self.element_bytes


class LayerActivations(NamedTuple):
    """What one layer and micro batch keeps, by where it comes from, and what backward adds [B].

    Attributes
    ----------
    kept : from the forward pass until backward.
    working : while this layer's backward runs: what is computed anew, gradients of activations, gathered inputs.
    """

    kept: float
    working: float


class Kept(NamedTuple):
    """What a layer keeps without recomputation [B].

    Attributes
    ----------
    block_input : the residual stream that enters.
    norms : inputs of the matrix products that follow norms, the second residual, and copies of norms.
    queries : queries, keys and values.
    scores : what attention keeps with its scores; with a flash kernel the logarithms.
    values : output of attention.
    mlp : inside the MLP or the experts.
    masks : of dropout outside attention.
    cross : attention to the encoder: its normed input and residual, queries, keys, values, scores, output and mask.
    """

    block_input: float
    norms: float
    queries: float
    scores: float
    values: float
    mlp: float
    masks: float
    cross: float = 0.0

    @property
    def total(self) -> float:
        """All of it [B]."""
        return sum(self)


def kept_by_layer(config: ModelConfig, part: Slice, kind: Kind) -> Kept:
    """Return what a layer keeps of one micro batch without recomputation [B].

    With T = b s / cp tokens, x = t under sequence parallelism else 1, e bytes an element:
    block input e T h / x; outputs of two norms and the second residual 3 e T h / x (4 T h / x more for each RMSNorm in
    separate kernels); q, k, v e T (q + 2 k) / t; output of attention e T q / t;
    scores a s T (e, and e + 1 with dropout) / t, or 4 T a / t;
    MLP e T f / t twice, three times if gated, four times in separate kernels; dropout masks 2 T h / x.
    For GPT with 16 bits and dropout this is Korthikanti's T h (10 / x + 24 / t + 5 a s / (h t)). A gate of attention's
    output keeps itself and what it multiplies; of a state see `states_kept`, of compression `compressed_kept`. With m
    residual streams both residuals are m times as wide, and what goes into a block is none of them: e T h / x each.
    """
    e, hidden = part.element_bytes, part.outer * config.hidden
    inputs = part.input_bytes * config.hidden * (part.tokens if part.gathered_inputs else part.outer)
    norms = 1 if config.parallel_block and config.architecture.norms == 1 else kind.blocks
    copies = 4.0 * hidden * norms if part.norm_copies and config.rms_norm else 0.0
    streams = config.residual_streams
    residual = streams * e * hidden if norms == 2 and not config.parallel_block else 0.0
    residual += kind.blocks * e * hidden * (streams > 1)
    mixers = [states_kept(config, part.tokens, part.tp, e)] * kind.linear
    mixers += [_attention(config, part)] if kind.attends else []
    queries, scores, values = (sum(kept) for kept in zip(*mixers, strict=True))
    queries += compressed_kept(config, kind, part.outer, e)
    return Kept(
        block_input=streams * e * hidden,
        norms=norms * inputs + residual + copies,
        queries=queries,
        scores=scores,
        values=values,
        mlp=_experts(config, part) if kind.moe else _mlp(config, part, part.tokens * _inner(config, kind) / part.tp),
        masks=kind.blocks * hidden if part.dropout else 0.0,
        cross=_cross(config, part) if part.cross_tokens else 0.0,
    )


def _inner(config: ModelConfig, kind: Kind) -> int:
    """Return the width inside the dense MLP of a layer, 0 for one without."""
    return 0 if kind.bare else config.ffn


def _attention(config: ModelConfig, part: Slice) -> tuple[float, float, float]:
    """Return what attention keeps: its inputs, its scores, and its output."""
    gate = 2.0 * part.element_bytes * part.tokens * config.gate_width / part.tp
    values = _output_bytes(part) * part.tokens * config.heads * config.value_dim / part.tp
    ranks = part.input_bytes * part.tokens * config.output_groups * config.output_lora / part.tp
    return _queries(config, part) + gate, _scores(config, part), values + ranks


def _output_bytes(part: Slice) -> float:
    """Return what is kept of an element of attention's output: the projection's input, and what attention reads [B].

    A flash kernel's backward reads its 16-bit output (Dao 2023, arXiv 2307.08691, algorithm 2: D = rowsum(dO o O)); the
    projection keeps an 8-bit copy beside it, or the same tensor.
    """
    apart = part.kernel not in UNFUSED and part.input_bytes < part.element_bytes
    return part.input_bytes + (part.element_bytes if apart else 0.0)


def _cross(config: ModelConfig, part: Slice) -> float:
    """Return what attention to the encoder keeps: e T (2 h / x + 2 q / t), keys and values of the encoder's tokens."""
    e, hidden = part.element_bytes, part.outer * config.hidden
    keys = key_value_width(config, part.tp)
    normed = part.input_bytes * hidden + e * hidden + (hidden if part.dropout else 0.0)
    queries = e * (part.tokens * config.query_width / part.tp + part.cross_tokens * keys)
    values = _output_bytes(part) * part.tokens * config.heads * config.value_dim / part.tp
    return normed + queries + values + _scores(config, part._replace(keys=part.cross_keys))


def _queries(config: ModelConfig, part: Slice) -> float:
    """Return queries, keys and values; with latent attention also the compressed vectors.

    One vector that is key and value counts before and after its norm, as compressed queries do.
    """
    e, tokens = part.element_bytes, part.tokens
    if config.architecture.shared_vector:
        return e * tokens * (config.query_width / part.tp + 2 * (config.q_lora + config.kv_width))
    if config.latent_attention:
        heads = config.heads * (2 * config.head_dim + config.value_dim) / part.tp
        return e * tokens * (heads + 2 * (config.q_lora + config.kv_lora))
    return e * tokens * (config.query_width / part.tp + key_value_width(config, part.tp))


def _scores(config: ModelConfig, part: Slice) -> float:
    """Return what attention keeps of its scores."""
    rows = part.tokens * config.heads / part.tp
    if part.kernel not in UNFUSED or config.architecture.shared_vector:
        return rows * _LOGARITHM_BYTES
    wide = 4.0 if part.kernel == "eager-unfused" and part.element_bytes == 2.0 else 0.0
    dropped = part.element_bytes + 1.0 if part.dropout else 0.0
    return rows * part.keys * (part.element_bytes + wide + dropped)


def _mlp(config: ModelConfig, part: Slice, inner: float) -> float:
    """Return what an MLP keeps with ``inner`` elements inside: products, and the input of the last one."""
    products = 2 if config.gated else 1
    apart = part.element_bytes if config.gated and part.gate_copies else 0.0
    return inner * (products * part.element_bytes + part.input_bytes + apart)


def _experts(config: ModelConfig, part: Slice) -> float:
    """Return what routed and shared experts keep: tokens sent to them, what is inside, what they send back, scores."""
    rows = part.expert_tokens * config.top_k
    routed = _mlp(config, part, rows * config.expert_ffn / part.etp)
    back = part.element_bytes if part.expert_outputs else 0.0
    moved = rows * config.expert_width * (part.input_bytes + back)
    latent = part.outer * config.expert_hidden * (part.input_bytes + part.element_bytes)
    shared = _mlp(config, part, part.tokens * config.shared_ffn / part.tp)
    return routed + moved + latent + shared + _SCORE_BYTES * part.outer * config.scored_experts


def layer_activations(config: ModelConfig, part: Slice, kind: Kind, recompute: str) -> LayerActivations:
    """Return what a layer keeps and what its backward needs beside that, for one way of recomputing."""
    kept = kept_by_layer(config, part, kind)
    remains = _remains(config, part, kept, recompute, kind)
    return LayerActivations(remains, kept.total - _least(kept, remains, recompute) + _gradients(config, part, kept))


def _least(kept: Kept, remains: float, recompute: str) -> float:
    """Return what the layer whose backward runs still has from its forward pass.

    With every second layer recomputed it is either kept as a whole or recomputed: the mean of both.
    """
    mean = 0.5 * (kept.total + kept.block_input)
    return mean if recompute == Recompute.SELECTIVE_LAYER else remains


def _remains(config: ModelConfig, part: Slice, kept: Kept, recompute: str, kind: Kind) -> float:
    """Return what is kept of a layer under recomputation."""
    if recompute == Recompute.FULL:
        return kept.block_input
    if recompute == Recompute.SELECTIVE and part.kernel in UNFUSED and kind.attends:
        # the triangle of a delta rule is kept by its kernel, as a flash kernel keeps its logarithms
        return kept.total - _scores(config, part)
    if recompute == Recompute.SELECTIVE_LAYER:
        return 0.5 * (kept.total + kept.block_input)
    if recompute == Recompute.SELECTIVE_OP:
        return kept.block_input + kept.scores + _every_second_product(config, part, kind)
    return kept.total


def _every_second_product(config: ModelConfig, part: Slice, kind: Kind) -> float:
    """Return the outputs that torchtitan keeps: of attention and of every second of its layer's products.

    These are q, k, v, out, gate, up and down; of a state the first is one for q, k, v and mostly the gate, and one
    follows it.
    """
    e, tokens = part.element_bytes, part.tokens
    routed = part.expert_tokens * config.top_k * config.expert_ffn / part.etp
    inner = routed if kind.moe else tokens * _inner(config, kind) / part.tp
    mixed = 0.0
    if kind.linear:
        state = config.state_layer
        mixed += (state.matrices()[0].n + state.value_width) / part.tp
    if kind.attends:
        queries = (config.query_width + config.gate_width + config.heads * config.value_dim) / part.tp
        mixed += queries + key_heads(config, part.tp) * config.value_dim
    last = part.outer * config.hidden if part.last_output or not kind.attends else 0.0
    return e * (tokens * mixed + inner + last)


def _gradients(config: ModelConfig, part: Slice, kept: Kept) -> float:
    """Return the gradients that live together in the backward pass of an MLP, the widest part of a layer.

    The gradient of the residual stream, of the MLP's inner activations, and under tensor parallelism the gathered input
    and the gathered gradient of the output.
    """
    hidden = part.element_bytes * part.outer * config.hidden * config.residual_streams
    gathered = 2.0 * part.element_bytes * part.tokens * config.hidden if part.sp else 0.0
    return hidden + gathered + 0.5 * kept.mlp
