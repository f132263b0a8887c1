"""The shapes of a transformer: its matrices, its parameters counted to the last one, its cache of keys and values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from perfmodel.workloads.architectures import ARCHITECTURES, Architecture


class Linear(NamedTuple):
    """A matrix of weights [n, k], applied to every token: y[n] = W x[k] + bias."""

    name: str
    n: int
    k: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.n * self.k + self.n * self.bias


def _count(linears: tuple[Linear, ...]) -> int:
    """Return the parameters of some matrices."""
    return sum(linear.parameters for linear in linears)


@dataclass(frozen=True)
class ModelConfig:
    """The shapes of a transformer.

    Attributes
    ----------
    model_type : the architecture by its Hugging Face name ("gpt2", "llama").
    hidden : width of the residual stream.
    layers : transformer layers; of an encoder with a decoder, those of the decoder.
    heads, kv_heads, head_dim : query heads, key and value heads, size of a query's head; ``heads head_dim`` need not be
        ``hidden``.
    ffn : width inside the MLP of a dense layer.
    vocab : size of the vocabulary.
    positions : the longest sequence.
    activation : activation of the MLP ("gelu", "gelu_new", "relu", "silu").
    tied : the embedding is also the matrix of the head.
    embedding_dim : width of the embedding; a projection follows if it is not ``hidden``.
    token_types : rows of a table of token types, 0 for none.
    window : most keys that a query of a windowed layer attends to, 0 for all.
    qkv_bias, output_bias, mlp_bias : which matrices of a layer have a bias.
    norm_after : the norms follow the residual additions.
    window_layers : layers with that window, the others attend to all keys; 0 with a window means every layer.
    experts, top_k, expert_ffn : routed experts of a layer, how many of them a token visits, the width inside one.
    shared_ffn : width inside the experts that every token visits, together; 0 for none.
    shared_gate : a gate with one output scales the shared experts.
    dense_layers : layers of a mixture of experts whose MLP is one dense MLP of ``ffn``.
    router_bias : the router has a bias.
    q_lora, kv_lora : ranks of the queries' and of the keys' and values' compression (MLA), 0 for none.
    rope_head_dim, nope_head_dim : parts of a query's head with and without rotary positions (MLA).
    value_head_dim : size of a value's head, 0 for ``head_dim``.
    parallel_block : attention and MLP read the same residual stream, and share its additions and all-reduces.
    encoder_layers : layers of the encoder in a model with both, 0 for a single stack.
    encoder_ffn : width inside the encoder's MLPs, 0 for ``ffn``.
    position_buckets : rows of a table of relative positions, one column a head, in each stack (T5); 0 for none.
    head_bias : the head has a bias.
    facts : the facts of the architecture where they are not those of ``model_type``; None for these.
    name : what the model is called, for people.
    """

    model_type: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    positions: int
    activation: str
    tied: bool
    embedding_dim: int
    token_types: int = 0
    window: int = 0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norm_after: bool = False
    window_layers: int = 0
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    router_bias: bool = False
    q_lora: int = 0
    kv_lora: int = 0
    rope_head_dim: int = 0
    nope_head_dim: int = 0
    value_head_dim: int = 0
    parallel_block: bool = False
    encoder_layers: int = 0
    encoder_ffn: int = 0
    position_buckets: int = 0
    head_bias: bool = False
    facts: Architecture | None = None
    name: str = ""

    def __post_init__(self) -> None:
        every = self.layers if self.window and not self.window_layers else self.window_layers
        object.__setattr__(self, "window_layers", every)

    @property
    def architecture(self) -> Architecture:
        """The facts that all models of this type share."""
        return self.facts or ARCHITECTURES[self.model_type]

    @property
    def gated(self) -> bool:
        """Whether the MLP multiplies activation(gate x) by (up x)."""
        return self.architecture.gated

    @property
    def rms_norm(self) -> bool:
        """Whether the norms are RMSNorm; LayerNorm otherwise."""
        return self.architecture.rms_norm

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated by their positions."""
        return self.architecture.rotary

    @property
    def learned_positions(self) -> bool:
        """Whether a table of positions is added to the embedding."""
        return self.architecture.learned_positions

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normalised."""
        return self.architecture.qk_norm

    @property
    def latent_attention(self) -> bool:
        """Whether keys and values are kept as one compressed vector a token (MLA)."""
        return self.kv_lora > 0

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def value_dim(self) -> int:
        """Size of a value's head."""
        return self.value_head_dim or self.head_dim

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over ``hidden``: a scale, and a shift for LayerNorm."""
        shape = self.architecture
        shift = not shape.rms_norm if shape.norm_bias is None else shape.norm_bias
        return self.hidden * (int(shape.norm_scale) + int(shift))

    def attention_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one layer that compute queries, keys and values."""
        if self.latent_attention:
            return self._latent_linears()
        if self.architecture.fused_qkv:
            return (Linear("query_key_value", self.query_width + 2 * self.kv_width, self.hidden, self.qkv_bias),)
        widths = {"query": self.query_width, "key": self.kv_width, "value": self.kv_width}
        return tuple(Linear(name, width, self.hidden, self.qkv_bias) for name, width in widths.items())

    def _latent_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of DeepSeek's attention: down to a latent vector, and up from it."""
        down = Linear("key_value_down", self.kv_lora + self.rope_head_dim, self.hidden, self.qkv_bias)
        up = Linear("key_value_up", self.heads * (self.nope_head_dim + self.value_dim), self.kv_lora)
        if not self.q_lora:
            return (Linear("query", self.query_width, self.hidden), down, up)
        queries = Linear("query_down", self.q_lora, self.hidden, self.qkv_bias)
        return (queries, Linear("query_up", self.query_width, self.q_lora), down, up)

    def output_linear(self) -> Linear:
        """Return the matrix of one layer that follows attention."""
        return Linear("output", self.hidden, self.heads * self.value_dim, self.output_bias)

    def mlp_linears(self, width: int = 0) -> tuple[Linear, ...]:
        """Return the matrices of one MLP: gate if there is one, up, down; of a dense layer unless a width is given."""
        width = width or self.ffn
        names = ("gate", "up") if self.gated else ("up",)
        into = tuple(Linear(name, width, self.hidden, self.mlp_bias) for name in names)
        return (*into, Linear("down", self.hidden, width, self.mlp_bias))

    def expert_linears(self) -> tuple[Linear, ...]:
        """Return the matrices of one routed expert."""
        return self.mlp_linears(self.expert_ffn) if self.experts else ()

    def shared_linears(self) -> tuple[Linear, ...]:
        """Return the matrices that every token of a layer with experts visits: router, shared experts, their gate."""
        if not self.experts:
            return ()
        router = (Linear("router", self.experts, self.hidden, self.router_bias),)
        shared = self.mlp_linears(self.shared_ffn) if self.shared_ffn else ()
        return (*router, *shared, *((Linear("shared_gate", 1, self.hidden),) if self.shared_gate else ()))

    def layer_linears(self) -> tuple[Linear, ...]:
        """Return every matrix of one layer with a dense MLP."""
        return (*self.attention_linears(), self.output_linear(), *self.mlp_linears())

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

    @cached_property
    def attention_parameters(self) -> int:
        """Parameters of one attention: its matrices, the norms inside it, and its sinks."""
        shape = self.architecture
        latent = self.q_lora + self.kv_lora
        width = self.query_width + self.kv_width if shape.qk_norm_all else 2 * self.head_dim
        norms = width * shape.qk_norm * (1 + shape.qk_norm_bias)
        return _count((*self.attention_linears(), self.output_linear())) + latent + norms + self.heads * shape.sinks

    @cached_property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return _count(self.expert_linears())

    @cached_property
    def dense_layer_parameters(self) -> int:
        """Parameters of one layer with a dense MLP; of a decoder with cross attention if there is an encoder."""
        return self._frame_parameters + _count(self.mlp_linears())

    @cached_property
    def moe_layer_parameters(self) -> int:
        """Parameters of one layer with experts, all of them; 0 for a dense model."""
        if not self.experts:
            return 0
        return self._frame_parameters + _count(self.shared_linears()) + self.experts * self.expert_parameters

    @property
    def _frame_parameters(self) -> int:
        """Parameters of one layer without its MLP."""
        cross = 1 if self.encoder_layers else 0
        return (1 + cross) * self.attention_parameters + (self.architecture.norms + cross) * self.norm_parameters

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: with its experts in a mixture of experts, else with its dense MLP."""
        return self.moe_layer_parameters or self.dense_layer_parameters

    @property
    def active_layer_parameters(self) -> int:
        """Parameters of one layer that a token visits."""
        return self.layer_parameters - max(0, self.experts - self.top_k) * self.expert_parameters

    @cached_property
    def encoder_parameters(self) -> int:
        """Parameters of the encoder's layers in a model with encoder and decoder; 0 for a single stack."""
        mlp = _count(self.mlp_linears(self.encoder_ffn))
        norms = self.architecture.norms * self.norm_parameters
        return self.encoder_layers * (self.attention_parameters + mlp + norms)

    @cached_property
    def encoder(self) -> ModelConfig | None:
        """The layers of the encoder as a model of one stack whose tokens attend to all others; None without one."""
        if not self.encoder_layers:
            return None
        facts = dataclasses.replace(self.architecture, causal=False)
        width = self.encoder_ffn or self.ffn
        return dataclasses.replace(self, layers=self.encoder_layers, ffn=width, encoder_layers=0, facts=facts)

    @property
    def cross_key_parameters(self) -> int:
        """Parameters of a decoder's layers that multiply the encoder's tokens: keys and values of its attention."""
        pair = 2 * (self.kv_width * self.hidden + self.kv_width * self.qkv_bias)
        return self.layers * pair if self.encoder_layers else 0

    @cached_property
    def embedding_parameters(self) -> int:
        """Parameters of the tables that are looked up: tokens, positions, token types, relative positions."""
        shape, stacks = self.architecture, 2 if self.encoder_layers else 1
        rows = stacks * (self.positions + shape.extra_positions) * shape.learned_positions + self.token_types
        return self.vocab * self.embedding_dim + rows * self.hidden + stacks * self.position_buckets * self.heads

    @cached_property
    def head_parameters(self) -> int:
        """Parameters of the head that are its own: no matrix that is shared with the embedding, no norm."""
        shared = self.vocab * self.embedding_dim * self.tied
        return _count((*self.projections()[:1], *self.head_linears())) - shared

    @cached_property
    def outer_norm_parameters(self) -> int:
        """Parameters of the norms outside the layers: after the embedding, in BERT's head, and the final one."""
        shape, stacks = self.architecture, 2 if self.encoder_layers else 1
        norms = stacks * (int(shape.embedding_norm) + int(not self.norm_after)) + int(shape.head_transform)
        return norms * self.norm_parameters

    @cached_property
    def parameters(self) -> int:
        """Parameters of the model with a language model head; a tied matrix counts once."""
        dense = (self.layers - self.moe_layers) * self.dense_layer_parameters
        stacks = dense + self.moe_layers * self.moe_layer_parameters + self.encoder_parameters
        return self.embedding_parameters + stacks + self.outer_norm_parameters + self.head_parameters

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token visits: all but the routed experts that it does not, the embedding included."""
        return self.parameters - self.moe_layers * max(0, self.experts - self.top_k) * self.expert_parameters

    @cached_property
    def multiplied_parameters(self) -> int:
        """Parameters that multiply a token, the N of 6 N FLOP: active ones without lookups, with a tied head."""
        return self.active_parameters - self.embedding_parameters + self.vocab * self.embedding_dim * self.tied

    def kv_bytes_per_token(self, dtype_bytes: float = 2.0) -> float:
        """Return what one token adds to the cache of all layers while no window is full [B].

        2 kv_heads head_dim a layer, or the latent vector with its rotary part (MLA).
        """
        latent = self.kv_lora + self.rope_head_dim
        width = latent if self.latent_attention else self.kv_heads * (self.head_dim + self.value_dim)
        return self.layers * width * dtype_bytes

    def kv_bytes(self, tokens: float, dtype_bytes: float = 2.0) -> float:
        """Return the cache of one sequence of ``tokens`` [B]: windowed layers keep no more than their window."""
        kept = min(tokens, self.window) if self.window else tokens
        share = (self.window_layers * kept + (self.layers - self.window_layers) * tokens) / self.layers
        return share * self.kv_bytes_per_token(dtype_bytes)
