"""The matrices of weights that follow from the shapes of a transformer."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.workloads.compressor import Compressor
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_shape import ModelShape


@dataclass(frozen=True)
class ModelMatrices(ModelShape):
    """The shapes of a transformer and its matrices, without a count of what they hold."""

    def attention_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one layer that compute queries, keys and values."""
        if self.latent_attention:
            return self._latent_linears()
        if self.architecture.shared_vector:
            return (*self._query_linears(), Linear("key_value", self.kv_width, self.hidden, self.qkv_bias))
        queries = self.query_width + self.gate_width
        if self.architecture.fused_qkv:
            return (Linear("query_key_value", queries + 2 * self.kv_width, self.hidden, self.qkv_bias),)
        widths = {"query": queries, "key": self.kv_width, "value": self.computed_value_width}
        gates = (Linear("gate", self.heads, self.hidden),) if self.architecture.head_gate else ()
        biases = {name: self.qkv_bias and (name != "key" or self.architecture.key_bias) for name in widths}
        found = (Linear(name, width, self.attention_input, biases[name]) for name, width in widths.items() if width)
        return (*found, *gates)

    def stem_linears(self) -> tuple[Linear, ...]:
        """Return the convolutions before an encoder of sound, as matrices of the bands or columns under three taps."""
        if not self.audio_bands:
            return ()
        return (
            Linear("stem_first", self.hidden, 3 * self.audio_bands, True),
            Linear("stem_second", self.hidden, 3 * self.hidden, True),
        )

    def index_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one indexer: its queries, the key that they share, and a weight for each head.

        One that chooses blocks for each head of keys has no such weights. The keys of an indexer that chooses among
        compressed ones are compressed, too.
        """
        if not self.index_heads:
            return ()
        compressors = self.index_compressors
        keys = compressors[-1].matrices if compressors else (Linear("index_key", self.index_head_dim, self.hidden),)
        weights = () if self.block_indexer else (Linear("index_weight", self.index_heads, self.hidden),)
        return (
            Linear("index_query", self.index_heads * self.index_head_dim, self.q_lora or self.hidden),
            *keys,
            *weights,
        )

    @property
    def index_compressors(self) -> tuple[Compressor, ...]:
        """What compresses the tokens of a layer with an indexer: to keys, and to the keys of the indexer."""
        if not self.index_heads or self.index_ratio == 1:
            return ()
        return (
            Compressor(self.hidden, self.head_dim, self.index_ratio, overlaps=True),
            Compressor(self.hidden, self.index_head_dim, self.index_ratio, overlaps=True, prefix="index"),
        )

    @property
    def pool_compressors(self) -> tuple[Compressor, ...]:
        """What compresses the tokens of a layer that attends to all compressed keys."""
        return (Compressor(self.hidden, self.head_dim, self.pool_ratio),) if self.pool_layers else ()

    def _latent_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of DeepSeek's attention: down to a latent vector, and up from it."""
        down = Linear("key_value_down", self.kv_lora + self.rope_head_dim, self.hidden, self.qkv_bias)
        up = Linear("key_value_up", self.heads * (self.nope_head_dim + self.value_dim), self.kv_lora)
        return (*self._query_linears(), down, up)

    def _query_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of queries: one, or two with a rank between them."""
        if not self.q_lora:
            return (Linear("query", self.query_width, self.hidden),)
        down = Linear("query_down", self.q_lora, self.hidden, self.qkv_bias)
        return (down, Linear("query_up", self.query_width, self.q_lora))

    def output_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one layer that follow attention; none where a state's follows both.

        Where groups of heads come first, the rows of their matrix are those of all groups, each of which multiplies
        what the heads of its own group give.
        """
        values = self.heads * self.value_dim
        if self.architecture.joint_output:
            return ()
        if not self.output_groups:
            return (Linear("output", self.hidden, values, self.output_bias),)
        ranks = self.output_groups * self.output_lora
        return (
            Linear("output_down", ranks, values // self.output_groups),
            Linear("output", self.hidden, ranks, self.output_bias),
        )

    def block_linears(self) -> tuple[Linear, ...]:
        """Return the matrices that a layer has of its own around a block that it shares: adapters, and one behind it.

        Those that lead to a rank come before those that lead from it, of queries, keys and values and of the MLP.
        """
        if not self.shared_blocks:
            return ()
        rank, inner = self.block_rank, self.ffn * (1 + self.gated)
        widths = (self.query_width, self.kv_width, self.kv_heads * self.value_dim) if self.block_adapters else ()
        pairs = [(self.attention_input, width) for width in widths] + [(self.hidden, inner)]
        adapters = (
            *(Linear("adapter_down", rank, into) for into, _ in pairs),
            *(Linear("adapter_up", width, rank) for _, width in pairs),
        )
        return (*(adapters if rank else ()), Linear("block_out", self.hidden, self.hidden))

    def layer_embedding_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of a layer's own embedding: a gate, and what brings it to the residual stream."""
        if not self.layer_embedding:
            return ()
        return (
            Linear("layer_embedding_gate", self.layer_embedding, self.hidden),
            Linear("layer_embedding_out", self.hidden, self.layer_embedding),
        )

    def laurel_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of a layer's second residual: to a rank, and back."""
        if not self.laurel_rank:
            return ()
        return (
            Linear("laurel_down", self.laurel_rank, self.hidden),
            Linear("laurel_up", self.hidden, self.laurel_rank),
        )

    def stream_linears(self) -> tuple[Linear, ...]:
        """Return the matrices that make the other residual streams of the first, and lead back from each of them."""
        if not self.architecture.altup:
            return ()
        return 2 * (self.residual_streams - 1) * (Linear("stream", self.hidden, self.hidden),)

    def attention_matrices(self) -> tuple[Linear, ...]:
        """Return every matrix of one attention."""
        return (*self.attention_linears(), *self.output_linears())

    def mixer_matrices(self, states: bool, attends: bool) -> tuple[Linear, ...]:
        """Return every matrix of a layer that mixes tokens: of its state, if it keeps one, and of its attention."""
        kept = self.state_layer.matrices() if states else ()
        return (*kept, *(self.attention_matrices() if attends else ()))

    def mlp_linears(self, width: int = 0, hidden: int = 0) -> tuple[Linear, ...]:
        """Return the matrices of one MLP: gate if there is one, up, down; of a dense layer unless widths are given."""
        width, hidden = width or self.ffn, hidden or self.hidden
        names = ("gate", "up") if self.gated else ("up",)
        into = tuple(Linear(name, width, hidden, self.mlp_bias) for name in names)
        return (*into, Linear("down", hidden, width, self.mlp_bias))

    def expert_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one routed expert."""
        return self.mlp_linears(self.expert_ffn, self.expert_width) if self.experts else ()

    def latent_linears(self) -> tuple[Linear, ...]:
        """Return the matrices that lead to experts of another width than ``hidden``, and back."""
        if not self.expert_hidden:
            return ()
        return (
            Linear("experts_in", self.expert_hidden, self.hidden, self.mlp_bias),
            Linear("experts_out", self.hidden, self.expert_hidden, self.mlp_bias),
        )

    def shared_linears(self) -> tuple[Linear, ...]:
        """Return the matrices that every token of a layer with experts visits: router, shared experts, their gate.

        Those that lead to experts of another width and back are among them.
        """
        if not self.experts:
            return ()
        router = (Linear("router", self.scored_experts, self.hidden, self.router_bias),)
        shared = self.mlp_linears(self.shared_ffn) if self.shared_ffn else ()
        gate = (Linear("shared_gate", 1, self.hidden),) if self.shared_gate else ()
        return (*router, *self.latent_linears(), *shared, *gate)

    def layer_linears(self) -> tuple[Linear, ...]:
        """Return every matrix of one layer with a dense MLP, whose queries attend to keys."""
        return (*self.attention_matrices(), *self.mlp_linears())

    def head_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of the language model's head; BERT transforms the hidden state first."""
        if self.architecture.head_transform:
            transform = Linear("transform", self.hidden, self.hidden, True)
            return (transform, Linear("logits", self.vocab, self.hidden, True))
        return (*self.projections()[1:], Linear("logits", self.vocab, self.embedding_dim, self.head_bias))

    def projections(self) -> tuple[Linear, ...]:
        """Return the matrices between ``hidden`` and an embedding of another width: in and out."""
        if self.embedding_dim == self.hidden:
            return ()
        return (
            Linear("project_in", self.hidden, self.embedding_dim),
            Linear("project_out", self.embedding_dim, self.hidden),
        )
