"""One GPU's part of a model: shapes after tensor, expert, data and pipeline parallelism."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.operators.routing import Router
from perfmodel.serving.parallel import Parallel, check_parallel
from perfmodel.workloads.compressor import Compressor
from perfmodel.workloads.layer_kinds import chunk_sizes, layer_kinds
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.reach import Reach, compressed_layers, counted_reaches
from perfmodel.workloads.state_layer import StateLayer


@dataclass(frozen=True)
class Shard:
    """Shapes of the part of one GPU.

    Attributes
    ----------
    hidden, head_dim, vocab : width of the residual stream, size of a head, rows of this GPU's part of the head.
    embedding_dim : width of the embedding and of the head, that of the residual stream but for OPT-350M.
    layers : layers of a stage (not whole where the stages differ; the mean).
    heads, kv_heads : of this GPU; key and value heads are repeated where there are fewer than GPUs.
    ffn : width inside the MLP of this GPU.
    gated, qk_norm, parallel_block : an MLP with a gate; norms of queries and keys; attention and MLP side by side.
    moe_layers, experts, top_k, expert_ffn, shared_ffn : layers with experts; experts of the whole model and those that
        a token visits; this GPU's width of each, and of the expert that all tokens visit.
    kv_shared_layers, kv_shared_window_layers, kv_shared_ffn : layers with the keys and values of others, those of them
        with a window, and this GPU's width inside their MLPs.
    borrows_keys : the part of such a layer: it computes and keeps no keys and values.
    shared_blocks : blocks of attention and an MLP that ``joint_layers`` share, whose weights this GPU has once.
    block_matrices : columns and rows of the matrices that each of these layers has of its own, adapters and others.
    layer_embedding, layer_embedding_vocab : width of layers' own embeddings, whose matrices each GPU has all of, and
        this GPU's rows of their table.
    scored_experts : experts that the router scores, those without weights among them.
    expert_hidden : width of what goes into an expert and comes out; other than ``hidden`` two matrices lead there and
        back.
    bare_layers : layers without an MLP.
    window, window_layers : most keys of a query, in how many layers of the stage.
    chunked : the window is a piece of the sequence, to whose keys alone its queries attend.
    windowed : the same part with the heads of these layers, where they are others; None where they are not.
    keys_are_values : no matrix computes values, keys are values, too.
    head_gate : a gate of one number a head multiplies what attention gives.
    kv_lora, q_lora, rope_dim, value_dim : ranks of latent attention (0: none), and its sizes of a head.
    expanded : numbers of each head's key, and of its value, that are kept in place of the latent key; 0: none.
    expert_groups, token_groups : groups of experts, and from how many a token's come.
    index_layers : layers of the stage with an indexer of their own; each GPU has all of it.
    index_heads, index_head_dim, index_keys : its heads and their size, and the keys that it leaves each query.
    block_indexer : its heads are shared out with those of keys, for each of which it chooses blocks; layers without one
        attend to all keys.
    index_ratio, index_compressors : tokens that each of these keys stands for, and what compresses them.
    pool_layers, pool_ratio, pool_compressors : layers that attend to all compressed keys, beside a window.
    shared_vector : one vector a token, which each GPU computes and keeps, is key and value of all heads.
    output_groups, output_lora : this GPU's groups of heads whose output has a matrix of its own, and its rank.
    residual_streams : that hyper-connections mix, which each GPU has all of.
    altup, laurel_rank : layers predict and correct these streams; rank of a layer's second residual. Each GPU has all
        of both.
    joint_output : attention has no matrix behind it: that of the state beside it follows both.
    sparse_layers : layers whose MLP keeps the largest values of its gate alone.
    causal : each token attends to those before it; in an encoder to all.
    encoder, cross_tokens, stem : this GPU's part of an encoder of sound, the tokens that its sequences have, to which
        every layer of the decoder attends as well, and the convolutions before it, which each GPU has all of.
    output_gate : a gate as wide as the queries multiplies what attention gives.
    linear_layers : layers of the stage with a state; ``joint_layers`` of them attend to keys as well.
    state : what these have on this GPU.
    """

    hidden: int
    layers: float
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    embedding_dim: int
    gated: bool
    qk_norm: bool
    parallel_block: bool
    moe_layers: float = 0.0
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    window: int = 0
    window_layers: float = 0.0
    kv_lora: int = 0
    q_lora: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    expanded: int = 0
    expert_groups: int = 1
    token_groups: int = 1
    index_layers: float = 0.0
    index_heads: int = 0
    index_head_dim: int = 0
    index_keys: int = 0
    output_gate: bool = False
    linear_layers: float = 0.0
    state: StateLayer | None = None
    expert_hidden: int = 0
    bare_layers: float = 0.0
    windowed: Shard | None = None
    keys_are_values: bool = False
    head_gate: bool = False
    joint_layers: float = 0.0
    chunked: bool = False
    index_ratio: int = 1
    index_compressors: tuple[Compressor, ...] = ()
    pool_layers: float = 0.0
    pool_ratio: int = 0
    pool_compressors: tuple[Compressor, ...] = ()
    shared_vector: bool = False
    output_groups: int = 0
    output_lora: int = 0
    residual_streams: int = 1
    scored_experts: int = 0
    kv_shared_layers: float = 0.0
    kv_shared_window_layers: float = 0.0
    kv_shared_ffn: int = 0
    borrows_keys: bool = False
    layer_embedding: int = 0
    layer_embedding_vocab: int = 0
    shared_blocks: int = 0
    block_matrices: tuple[tuple[int, int], ...] = ()
    block_indexer: bool = False
    altup: bool = False
    laurel_rank: int = 0
    sparse_layers: float = 0.0
    joint_output: bool = False
    causal: bool = True
    encoder: Shard | None = None
    cross_tokens: int = 0
    stem: tuple[Linear, ...] = ()

    @property
    def router(self) -> Router:
        """Which experts a token takes."""
        return Router(self.experts, self.top_k, self.expert_groups, self.token_groups)

    @property
    def dense_layers(self) -> float:
        """Layers with one dense MLP."""
        return self.layers - self.moe_layers - self.bare_layers

    @property
    def has_latent_experts(self) -> bool:
        """Whether two matrices lead to the experts and back."""
        return self.experts > 0 and self.expert_hidden != self.hidden

    @property
    def attending_layers(self) -> float:
        """Layers whose queries attend to keys, which they keep."""
        return self.layers - self.linear_layers + self.joint_layers

    @property
    def reaches(self) -> tuple[tuple[Reach, float], ...]:
        """What a query attends to in each kind of layers that attend to keys, and how many of these there are."""
        return counted_reaches(self)

    @property
    def compressed_layers(self) -> float:
        """Layers that attend to compressed keys, beside a window."""
        return compressed_layers(self)

    @property
    def compressors(self) -> tuple[tuple[Compressor, float], ...]:
        """What compresses tokens, each with the layers that have it."""
        chosen = ((one, self.index_layers) for one in self.index_compressors)
        return (*chosen, *((one, self.pool_layers) for one in self.pool_compressors))

    @property
    def attentions(self) -> tuple[tuple[Shard, float], ...]:
        """The part with the heads of each kind of layers that attend to keys, and how many of these there are."""
        windowed, borrowed = self.windowed or self, self.kv_shared_window_layers
        if self.windowed is None and not self.kv_shared_layers:
            return ((self, self.attending_layers),) if self.attending_layers else ()
        kinds = (
            (self, self.attending_layers - self.window_layers, self.kv_shared_layers - borrowed),
            (windowed, self.window_layers, borrowed),
        )
        own = tuple((part, layers - shared) for part, layers, shared in kinds)
        return (*own, *((replace(part, borrows_keys=True), shared) for part, _, shared in kinds if shared))

    @property
    def mlps(self) -> tuple[tuple[int, float], ...]:
        """Width inside the dense MLPs of layers, and how many of these have it."""
        wider = self.kv_shared_layers if self.kv_shared_ffn else 0.0
        found = ((self.ffn, self.dense_layers - wider), (self.kv_shared_ffn, wider))
        return tuple((width, layers) for width, layers in found if layers > 0)

    @property
    def attention_input(self) -> int:
        """Width of what goes into attention: the residual stream, beside the embedding in blocks that are shared."""
        return self.hidden * (1 + (self.shared_blocks > 0))

    @property
    def mixes_streams(self) -> bool:
        """Whether hyper-connections mix several residual streams before and after each block."""
        return self.residual_streams > 1 and not self.altup

    def held(self, layers: float) -> float:
        """Return how many sets of weights so many layers with attention, or with an MLP, have."""
        return float(self.shared_blocks) if self.shared_blocks else layers

    @property
    def values_width(self) -> int:
        """Width of the values that are kept beside keys; of latent attention they count as its keys do."""
        if self.shared_vector or self.borrows_keys:
            return 0
        return self.kv_heads * (self.head_dim if self.kv_lora else self.value_dim)

    @property
    def keys_width(self) -> int:
        """Width of keys and values that are computed."""
        return self.kv_heads * self.head_dim * (not self.borrows_keys) + self.values_width

    @property
    def kept_width(self) -> int:
        """Width of what a layer keeps of a token: keys and values, or the latent key that all heads share."""
        return 2 * self.heads * self.expanded if self.expanded else self.made_width

    @property
    def made_width(self) -> int:
        """Width of what a layer's first matrix makes of a token beside queries: keys and values, or a latent key."""
        return self.kv_lora + self.rope_dim if self.kv_lora else self.keys_width

    @property
    def is_latent(self) -> bool:
        """Whether each GPU computes and keeps all that a layer has of a token: one vector for all heads."""
        return self.kv_lora > 0 or self.shared_vector

    @property
    def keeps_alike(self) -> bool:
        """Whether all GPUs keep the same of a token."""
        return self.is_latent and not self.expanded

    @property
    def output_matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The products that follow attention on this GPU: how many beside each other, their columns and their rows."""
        values = self.heads * self.value_dim
        if self.joint_output:
            return ()
        if not self.output_groups:
            return ((1, self.hidden, values),)
        groups, rank = self.output_groups, self.output_lora
        return ((groups, rank, values // groups), (1, self.hidden, groups * rank))

    @property
    def heads_width(self) -> int:
        """Width of queries, keys and values."""
        return self.heads * self.head_dim + self.keys_width

    @property
    def qkv_width(self) -> int:
        """Columns of the product that computes queries, keys and values, and the gate of the output."""
        gates = self.heads * (self.output_gate * self.head_dim + self.head_gate)
        return self.heads_width - self.keys_are_values * self.values_width + gates


#: what the model counts of its layers, which stages share out
#: numbers to which queries, keys and values of a head are padded where latent keys are expanded before they are kept:
#: a size that kernels of grouped heads have (vllm/model_executor/models/deepseek_v2.py before 0.7.1, SGLang's as well)
EXPANDED_HEAD = 256
_LAYERS = (
    "layers", "moe_layers", "bare_layers", "window_layers", "linear_layers", "joint_layers", "index_layers",
    "pool_layers", "sparse_layers", "kv_shared_layers", "kv_shared_window_layers",
)  # fmt: skip


def shard(config: ModelConfig, parallel: Parallel, expands: bool = False) -> Shard:
    """Return one GPU's part; ``expands`` is whether keys and values of all heads are kept in place of latent keys.

    Raises
    ------
    UsageError
        When the GPUs do not divide the heads, the layers or the experts.
    """
    check_parallel(config, parallel)
    tp = parallel.tp
    return Shard(
        hidden=config.hidden,
        embedding_dim=config.embedding_dim,
        heads=config.heads // tp,
        kv_heads=min(config.kv_heads, max(1, config.kv_heads // tp)),
        head_dim=config.head_dim,
        ffn=math.ceil(config.ffn / tp),
        vocab=math.ceil(config.vocab / tp),
        gated=config.gated,
        qk_norm=config.qk_norm,
        parallel_block=config.parallel_block,
        experts=config.experts,
        top_k=config.top_k,
        expert_ffn=math.ceil(config.expert_ffn / parallel.expert_parts),
        shared_ffn=math.ceil(config.shared_ffn / tp),
        window=config.window,
        kv_lora=config.kv_lora,
        q_lora=config.q_lora,
        rope_dim=config.rope_head_dim,
        value_dim=config.value_dim,
        expanded=EXPANDED_HEAD if expands and config.kv_lora else 0,
        expert_groups=config.router.groups,
        token_groups=config.router.chosen,
        index_heads=max(1, config.index_heads // tp) if config.block_indexer else config.index_heads,
        block_indexer=config.block_indexer,
        index_head_dim=config.index_head_dim,
        index_keys=config.index_keys,
        output_gate=config.architecture.output_gate,
        state=config.state_layer.share(tp) if config.linear_layers else None,
        expert_hidden=config.expert_width,
        windowed=None if config.windowed is config else shard(config.windowed, parallel),
        keys_are_values=config.keys_are_values,
        head_gate=config.architecture.head_gate,
        chunked=config.chunked,
        index_ratio=config.index_ratio,
        index_compressors=config.index_compressors,
        pool_ratio=config.pool_ratio,
        pool_compressors=config.pool_compressors,
        shared_vector=config.architecture.shared_vector,
        output_groups=config.output_groups // tp,
        output_lora=config.output_lora,
        residual_streams=config.residual_streams,
        altup=config.architecture.altup,
        laurel_rank=config.laurel_rank,
        joint_output=config.architecture.joint_output,
        causal=config.architecture.causal,
        encoder=shard(config.encoder, parallel) if config.encoder else None,
        cross_tokens=config.encoder_positions,
        stem=config.stem_linears(),
        scored_experts=config.scored_experts,
        kv_shared_ffn=math.ceil(config.kv_shared_ffn / tp),
        shared_blocks=config.shared_blocks,
        block_matrices=_block_matrices(config, tp),
        layer_embedding=config.layer_embedding,
        layer_embedding_vocab=math.ceil(config.layer_embedding_vocab / tp),
        **_stage_layers(config, parallel.pp),
    )


def _stage_layers(config: ModelConfig, stages: int) -> dict[str, Any]:
    """Return how many layers of each kind a stage of a pipeline has, in the mean."""
    return {name: getattr(config, name) / stages for name in _LAYERS}


def _block_matrices(config: ModelConfig, tp: int) -> tuple[tuple[int, int], ...]:
    """Return columns and rows of the matrices that a layer has of its own around a block that it shares.

    GPUs share out what leads from the rank of adapters; each has all of the others (assumed of engines).
    """
    ups = "adapter_up"
    return tuple((math.ceil(one.n / tp) if one.name == ups else one.n, one.k) for one in config.block_linears())


def stage_parts(config: ModelConfig, part: Shard, stages: int) -> tuple[Shard, ...]:
    """Return the parts of the stages of a pipeline, each once of those that are alike; ``part`` is that of the mean.

    Layers lie on the stages as in training (assumed of engines).
    """
    if stages == 1:
        return (part,)
    kinds = iter(layer_kinds(config))
    chunks = ([*itertools.islice(kinds, size)] for size in chunk_sizes(config.layers, stages))
    named = {
        "moe": "moe_layers", "windowed": "window_layers", "linear": "linear_layers", "bare": "bare_layers",
        "joint": "joint_layers", "indexed": "index_layers", "pooled": "pool_layers",
    }  # fmt: skip
    counts = {(len(chunk), *(sum(getattr(kind, name) for kind in chunk) for name in named)) for chunk in chunks}
    return tuple(
        replace(part, layers=layers, **dict(zip(named.values(), found, strict=True)))
        for layers, *found in sorted(counts)
    )
