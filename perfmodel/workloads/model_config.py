"""A transformer by its shapes: its parameters counted to the last one, its cache of keys and values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from perfmodel.workloads.matrices import Linear, count_parameters
from perfmodel.workloads.model_matrices import ModelMatrices
from perfmodel.workloads.reach import Reach


@dataclass(frozen=True)
class ModelConfig(ModelMatrices):
    """A transformer: its shapes and matrices, and the counts that follow from them."""

    @cached_property
    def attention_parameters(self) -> int:
        """Parameters of one attention: its matrices, the norms inside it, and its sinks."""
        shape = self.architecture
        latent = self.q_lora + (self.head_dim if shape.shared_vector else self.kv_lora)
        width = self.query_width + self.kv_width if shape.qk_norm_all else 2 * self.head_dim
        norms = width * shape.qk_norm * (int(shape.qk_norm_scale) + shape.qk_norm_bias)
        matrices = count_parameters(self.attention_matrices())
        return matrices + latent + norms + self.heads * shape.sinks

    @cached_property
    def windowed(self) -> ModelConfig:
        """The model as its layers with a window are; itself where they attend as the others do."""
        facts, own = self.architecture, (self.window_heads, self.window_kv_heads, self.window_head_dim)
        if not (any(own) or self.window_value_dim or self.keys_are_values or facts.window_sinks):
            return self
        return dataclasses.replace(
            self,
            heads=self.window_heads or self.heads,
            kv_heads=self.window_kv_heads or self.kv_heads,
            head_dim=self.window_head_dim or self.head_dim,
            value_head_dim=self.window_value_dim or self.value_head_dim,
            facts=dataclasses.replace(facts, sinks=facts.sinks or facts.window_sinks, window_sinks=False),
            window_heads=0,
            window_kv_heads=0,
            window_head_dim=0,
            window_value_dim=0,
            keys_are_values=False,
        )

    def attentions(self) -> tuple[tuple[tuple[Linear, ...], int], ...]:
        """Return the matrices of each kind of attention, and of a state, and how many layers have them."""
        indexed = self.index_layers if self.index_ratio > 1 else 0
        full = self.attending_layers - self.window_layers - indexed - self.pool_layers
        kinds = (
            (self.attention_matrices(), full),
            ((*self.attention_matrices(), *self.sparse_matrices(indexed=True)), indexed),
            ((*self.attention_matrices(), *self.sparse_matrices(pooled=True)), self.pool_layers),
            (self.windowed.attention_matrices(), self.window_layers),
            (self.state_layer.matrices() if self.linear_layers else (), self.linear_layers),
        )
        return tuple((matrices, layers) for matrices, layers in kinds if layers)

    def sparse_matrices(self, indexed: bool = False, pooled: bool = False) -> tuple[Linear, ...]:
        """Return the matrices beside attention of a layer with an indexer, or one that attends to compressed keys."""
        compressors = (*self.index_compressors[:1] * indexed, *self.pool_compressors * pooled)
        compressed = tuple(matrix for one in compressors for matrix in one.matrices)
        return (*(self.index_linears() if indexed else ()), *compressed)

    @cached_property
    def key_value_parameters(self) -> int:
        """Parameters of one attention that a layer with the keys and values of another one has not."""
        shape = self.architecture
        matrices = count_parameters(tuple(one for one in self.attention_linears() if one.name in ("key", "value")))
        return matrices + self.head_dim * shape.qk_norm * (int(shape.qk_norm_scale) + shape.qk_norm_bias)

    @cached_property
    def kv_sharing_surplus(self) -> int:
        """Parameters that layers with the keys and values of others have beyond those that compute them."""
        windowed = self.kv_shared_window_layers
        lacking = (self.kv_shared_layers - windowed) * self.key_value_parameters
        lacking += windowed * self.windowed.key_value_parameters
        wider = count_parameters(self.mlp_linears(self.kv_shared_ffn)) - count_parameters(self.mlp_linears())
        return self.kv_shared_layers * wider - lacking

    @cached_property
    def block_parameters(self) -> int:
        """Parameters of a block that layers share: attention, an MLP, and norms of what goes into both; 0 without."""
        if not self.shared_blocks:
            return 0
        norms = self.norm_parameters + self.norm_parameters * self.attention_input // self.hidden
        return self.attention_parameters + count_parameters(self.mlp_linears()) + norms

    @property
    def block_surplus(self) -> int:
        """Parameters of blocks that layers share beyond those of as many layers with attention and an MLP each."""
        if not self.shared_blocks:
            return 0
        apart = self.attention_parameters + count_parameters(self.mlp_linears()) + self.norm_parameters
        own = self.joint_layers * (count_parameters(self.block_linears()) - apart)
        return self.shared_blocks * self.block_parameters + own

    @cached_property
    def layer_embedding_parameters(self) -> int:
        """Parameters of what leads from layers' own embeddings to the residual stream, without their table.

        One matrix computes a second part of all of them from the embedding, with a norm of their width; each layer has
        two matrices and a norm (``Gemma4TextModel`` of transformers).
        """
        width = self.layer_embedding
        each = count_parameters(self.layer_embedding_linears()) + self.norm_parameters + self.hidden * width
        return self.layers * each + width if width else 0

    @property
    def window_layer_surplus(self) -> int:
        """Parameters of a layer with a window beyond those of one that attends to all keys."""
        return self.windowed.attention_parameters - self.attention_parameters

    def mixer_surplus(self, states: int, without_keys: int) -> int:
        """Return the parameters that layers have beyond those of as many whose queries attend to keys.

        Parameters
        ----------
        states, without_keys : how many of them keep a state, and how many do not attend to keys.
        """
        found = states * self.state_layer.parameters if states else 0
        if self.architecture.joint_output:  # a norm of what each of both gives
            found += 2 * (states - without_keys) * self.state_layer.value_width
        return found - without_keys * self.attention_parameters

    @cached_property
    def bare_layer_lack(self) -> int:
        """Parameters that a layer without an MLP lacks: those of a dense MLP, and its norm."""
        return count_parameters(self.mlp_linears()) + self.norm_parameters if self.bare_layers else 0

    @cached_property
    def index_parameters(self) -> int:
        """Parameters of one indexer: its matrices, and the norm of its key with a scale and a shift; 0 without one.

        One of blocks has two norms with a scale, of its queries and of its key, which are as many.

        Where it chooses among compressed keys, what compresses them and its own keys counts in place of that norm.
        """
        if not self.index_compressors:
            return count_parameters(self.index_linears()) + 2 * self.index_head_dim * (self.index_heads > 0)
        own = count_parameters(self.index_linears()) - count_parameters(self.index_compressors[-1].matrices)
        return own + sum(one.parameters for one in self.index_compressors)

    @cached_property
    def pool_parameters(self) -> int:
        """Parameters of what compresses the tokens of one layer that attends to all compressed keys; 0 without."""
        return sum(one.parameters for one in self.pool_compressors)

    @cached_property
    def mixing_parameters(self) -> int:
        """Parameters of one hyper-connection, before and after a block; 0 with one residual stream.

        One matrix multiplies all m streams of a token and gives weights that sum the streams (m), that spread the
        block's output (m) and that mix the streams (m m); they have a bias each, and a factor for each of the three.
        """
        m = self.residual_streams
        return m * (m + 2) * (m * self.hidden + 1) + 3 if m > 1 else 0

    @cached_property
    def stream_parameters(self) -> int:
        """Parameters of one layer that mix its residual streams, or predict and correct them.

        To predict and to correct m streams, one matrix makes m numbers of the stream that the layer computes with,
        after a norm; of these one matrix gives m m weights of the streams and another one m of the correction; what
        goes to the layer's own embedding is scaled column by column (``Gemma3nTextAltUp`` of transformers).
        """
        m = self.residual_streams
        if not self.architecture.altup:
            return 2 * self.mixing_parameters
        return m * self.hidden + m**3 + m**2 + self.norm_parameters + self.hidden

    @cached_property
    def laurel_parameters(self) -> int:
        """Parameters of a layer's second residual: two matrices and a norm; 0 without."""
        return count_parameters(self.laurel_linears()) + self.norm_parameters * (self.laurel_rank > 0)

    @cached_property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return count_parameters(self.expert_linears())

    @cached_property
    def dense_layer_parameters(self) -> int:
        """Parameters of one layer with a dense MLP; of a decoder with cross attention if there is an encoder.

        This layer, and that with experts, attends to keys: others have `mixer_surplus` more.
        """
        return self._frame_parameters + count_parameters(self.mlp_linears()) + self.architecture.activation_parameters

    @cached_property
    def moe_layer_parameters(self) -> int:
        """Parameters of one layer with experts, all of them; 0 for a dense model."""
        if not self.experts:
            return 0
        scale = self.hidden * self.architecture.router_scale
        shared = count_parameters(self.shared_linears()) + scale
        return self._frame_parameters + shared + self.experts * self.expert_parameters

    @property
    def _frame_parameters(self) -> int:
        """Parameters of one layer without its MLP."""
        cross = 1 if self.encoder_layers else 0
        norms = (self.architecture.norms + cross) * self.norm_parameters
        beside = self.stream_parameters + self.laurel_parameters
        return (1 + cross) * self.attention_parameters + norms + beside

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: with its experts in a mixture of experts, else with its dense MLP."""
        return self.moe_layer_parameters or self.dense_layer_parameters

    @cached_property
    def encoder_parameters(self) -> int:
        """Parameters of the encoder's layers in a model with encoder and decoder; 0 for a single stack."""
        mlp = count_parameters(self.mlp_linears(self.encoder_ffn))
        norms = self.architecture.norms * self.norm_parameters
        return self.encoder_layers * (self.attention_parameters + mlp + norms)

    @cached_property
    def encoder(self) -> ModelConfig | None:
        """The layers of the encoder as a model of one stack whose tokens attend to all others; None without one."""
        if not self.encoder_layers:
            return None
        facts = dataclasses.replace(self.architecture, causal=False)
        width = self.encoder_ffn or self.ffn
        return dataclasses.replace(
            self, layers=self.encoder_layers, ffn=width, encoder_layers=0, encoder_ffn=0, encoder_positions=0,
            audio_bands=0, facts=facts,
        )  # fmt: skip

    @cached_property
    def stem_parameters(self) -> int:
        """Parameters of the convolutions before an encoder of sound; 0 without."""
        return count_parameters(self.stem_linears())

    @property
    def stem_flop(self) -> float:
        """FLOP of these convolutions for a token of the encoder: the first one has two results for it."""
        return float(sum(2 * times * one.n * one.k for times, one in zip((2, 1), self.stem_linears(), strict=False)))

    @property
    def cross_key_parameters(self) -> int:
        """Parameters of a decoder's layers that multiply the encoder's tokens: keys and values of its attention."""
        biases = self.kv_width * self.qkv_bias * (1 + self.architecture.key_bias)
        pair = 2 * self.kv_width * self.hidden + biases
        return self.layers * pair if self.encoder_layers else 0

    @cached_property
    def embedding_parameters(self) -> int:
        """Parameters of the tables that are looked up: tokens, for layers too, positions, token types, distances."""
        shape, stacks = self.architecture, 2 if self.encoder_layers else 1
        places = stacks * (self.positions + shape.extra_positions) * shape.learned_positions
        places += (self.encoder_positions - self.positions) * (self.encoder_positions > 0)
        rows = places + self.token_types
        rows += self.memory_tokens
        own = self.layer_embedding_vocab * self.layers * self.layer_embedding
        tables = self.layers + self.encoder_layers if shape.layer_buckets else stacks
        return self.vocab * self.embedding_dim + own + rows * self.hidden + tables * self.position_buckets * self.heads

    @cached_property
    def head_parameters(self) -> int:
        """Parameters of the head that are its own: no matrix that is shared with the embedding, no norm."""
        shared = self.vocab * self.embedding_dim * self.tied
        return count_parameters((*self.projections()[:1], *self.head_linears())) - shared

    @cached_property
    def outer_norm_parameters(self) -> int:
        """Parameters of the norms outside the layers: after the embedding, in BERT's head, and the final one.

        What sums several residual streams before the final norm counts with them: a matrix, biases and a factor, or
        the matrices that make these streams and lead back from them.
        """
        shape, stacks, m = self.architecture, 2 if self.encoder_layers else 1, self.residual_streams
        norms = stacks * (int(shape.embedding_norm) + int(not self.norm_after)) + int(shape.head_transform)
        if shape.altup:
            return norms * self.norm_parameters + count_parameters(self.stream_linears())
        return norms * self.norm_parameters + (m * (m * self.hidden + 1) + 1) * (m > 1)

    @cached_property
    def parameters(self) -> int:
        """Parameters of the model with a language model head; a tied matrix counts once."""
        dense = (self.layers - self.moe_layers) * self.dense_layer_parameters
        stacks = dense + self.moe_layers * self.moe_layer_parameters + self.encoder_parameters
        stacks += self.mixer_surplus(self.linear_layers, self.layers - self.attending_layers)
        stacks -= self.bare_layers * self.bare_layer_lack + (self.state_layer.first_lack if self.linear_layers else 0)
        stacks += self.index_layers * self.index_parameters + self.window_layers * self.window_layer_surplus
        stacks += self.pool_layers * self.pool_parameters - self.hash_layers * self.scored_experts * self.router_bias
        stacks += self.kv_sharing_surplus + self.layer_embedding_parameters + self.block_surplus + self.stem_parameters
        return self.embedding_parameters + stacks + self.outer_norm_parameters + self.head_parameters

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token visits: all but the routed experts that it does not, the embedding included."""
        return self.parameters - self.moe_layers * max(0, self.experts - self.top_k) * self.expert_parameters

    @cached_property
    def multiplied_parameters(self) -> int:
        """Parameters that multiply a token, the N of 6 N FLOP: active ones without lookups, with a tied head.

        Those of a block that layers share count once for each of these layers.
        """
        again = (self.joint_layers - self.shared_blocks) * self.block_parameters
        return self.active_parameters + again - self.embedding_parameters + self.vocab * self.embedding_dim * self.tied

    def kv_bytes_per_token(self, dtype_bytes: float = 2.0) -> float:
        """Return what one token adds to the cache of all layers while no window is full [B].

        2 kv_heads head_dim a layer that attends to keys, the latent vector with its rotary part (MLA), or the one
        vector that is key and value. A compressed key is shared out over its tokens. An indexer keeps a key in 8 bits
        with a scale in fp32.
        """
        kept = sum(width * layers * self._in_a_window(reach) for reach, layers, width in self._kept)
        return kept * dtype_bytes + self.index_layers * self.index_key_bytes / self.index_ratio

    @staticmethod
    def _in_a_window(reach: Reach) -> float:
        """Return how many keys of a layer one token is, while the window is not full."""
        return bool(reach.window) + (1.0 / reach.ratio if reach.ratio else 0.0)

    @property
    def _kept(self) -> tuple[tuple[Reach, float, int], ...]:
        """What layers attend to, how many of them keep keys, and the numbers that each keeps of a key."""
        shared = {True: self.kv_shared_window_layers, False: self.kv_shared_layers - self.kv_shared_window_layers}
        return tuple(
            (
                reach,
                layers - shared[reach.ratio == 0],
                self.windowed._kept_width if reach.ratio == 0 else self._kept_width,
            )
            for reach, layers in self.reaches
        )

    @property
    def _kept_width(self) -> int:
        """Numbers that a layer which attends to all keys keeps of a token."""
        if self.latent_attention:
            return self.kv_lora + self.rope_head_dim
        if self.architecture.shared_vector:
            return self.kv_width
        return self.kv_heads * (self.head_dim + self.value_dim)

    @property
    def index_key_bytes(self) -> float:
        """What an indexer keeps of one token, or of one compressed key [B]."""
        each = 2.0 * self.index_head_dim if self.block_indexer else self.index_head_dim + 4.0
        return each * (self.index_heads > 0)

    def kv_bytes(self, tokens: float, dtype_bytes: float = 2.0) -> float:
        """Return the cache of one sequence of ``tokens`` [B]: windowed layers keep no more than their window.

        Compressed keys count once their tokens are complete. What layers with a state keep is apart, see `state_bytes`,
        and so is what compression keeps of tokens that are not, see `unfinished_bytes`.
        """
        kept = sum(width * layers * float(reach.kept(tokens)) for reach, layers, width in self._kept)
        return kept * dtype_bytes + self.index_layers * self.index_key_bytes * float(tokens // self.index_ratio)

    @property
    def unfinished_bytes(self) -> float:
        """What all layers keep of the tokens of one sequence that no compressed key holds yet, at most [B]."""
        each = (
            self.index_layers * sum(one.unfinished_bytes for one in self.index_compressors),
            self.pool_layers * sum(one.unfinished_bytes for one in self.pool_compressors),
        )
        return sum(each)

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a state that is more than what a convolution reads."""
        return self.linear_layers > 0 and self.state_layer.has_states

    @property
    def state_bytes(self) -> float:
        """What layers with a state keep of one sequence beside keys, however long it is [B]."""
        return self.linear_layers * self.state_layer.state_bytes
