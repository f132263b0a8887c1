"""The shapes of a transformer, and what follows from them and its architecture."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfmodel.operators.routing import Router
from perfmodel.workloads.architectures import ARCHITECTURES, Architecture
from perfmodel.workloads.quantization import OTHER
from perfmodel.workloads.reach import Reach, compressed_layers, counted_reaches
from perfmodel.workloads.state_layer import USUAL_DTYPE, Rule, StateLayer

#: remark about a model that has encoders beside its language model; {} is what says so
LANGUAGE_ALONE = (
    "The language model alone is counted, without the encoders of images and sound beside it ({}). Tokens that they "
    "make of an image are tokens of the prompt."
)


#: remark about a model with learned tokens before each prompt
_MEMORY_TOKENS = "{} learned tokens stand before each prompt: count them with its tokens (--isl)."


def group_problem(experts: int, top_k: int, groups: int, chosen: int) -> str:
    """Return what is impossible about a router that takes k experts from some groups of all, or an empty string."""
    if not groups and not chosen:
        return ""
    if not 1 <= chosen <= groups:
        return f"the experts of a token come from {chosen} groups of {groups}"
    if experts % groups:
        return f"{groups} groups do not divide {experts} experts"
    held = experts // groups * chosen
    return f"{chosen} of {groups} groups have {held} experts, and a token visits {top_k}" if top_k > held else ""


@dataclass(frozen=True)
class ModelShape:
    """The shapes of a transformer.

    Attributes
    ----------
    model_type : the architecture by its Hugging Face name ("gpt2", "llama").
    hidden : width of the residual stream.
    layers : transformer layers, each attention or what stands for it, and an MLP; of an encoder with a decoder, those
        of the decoder.
    heads, kv_heads, head_dim : query heads, key and value heads, size of a query's head; ``heads head_dim`` need not be
        ``hidden``; 0 where no layer attends to keys (Mamba).
    ffn : width inside the MLP of a dense layer, 0 where no layer has an MLP.
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
    window_heads, window_kv_heads, window_head_dim, window_value_dim : heads and their sizes in layers with a window, 0
        for those of the others.
    keys_are_values : in layers without a window, no matrix computes values: keys before their norm are values, too.
    kv_shared_layers, kv_shared_window_layers : last layers that attend to the keys and values of the last layer before
        them of their kind, and compute and keep none (Gemma 4 E2B), and those of them with a window.
    kv_shared_ffn : width inside the MLPs of these layers, 0 for ``ffn``.
    layer_embedding, layer_embedding_vocab : width of an embedding that each layer has of its own for a token, and rows
        of its table; 0 for none (Gemma 4 E2B).
    experts, top_k, expert_ffn : routed experts of a layer, how many of them a token visits, the width inside one.
    zero_experts : experts beside these that give back what they are given (LongCat-Flash): they have scores, and no
        weights. A token takes some of them in place of others, so that ``top_k`` is how many it visits in the mean.
    expert_hidden : width of what goes into the experts and comes out, where two matrices of a layer lead there and
        back; 0 for ``hidden``.
    expert_groups, token_groups : groups of neighbouring experts, and from how many of them a token's come
        (`perfmodel.operators.routing.Router`); 0 where a token takes any experts.
    shared_ffn : width inside the experts that every token visits, together; 0 for none.
    shared_gate : a gate with one output scales the shared experts.
    dense_layers : layers of a mixture of experts whose MLP is one dense MLP of ``ffn``.
    dense_at : which these are, counted from 0, where they are not the first ones; () where they are.
    bare_layers : layers without an MLP (Nemotron-H); they alternate evenly with those that have one.
    router_bias : the router has a bias.
    q_lora, kv_lora : ranks of the queries' and of the keys' and values' compression (MLA), 0 for none.
    rope_head_dim, nope_head_dim : parts of a query's head with and without rotary positions (MLA); of a head of one
        vector for keys and values the first alone is stated.
    value_head_dim : size of a value's head, 0 for ``head_dim``.
    parallel_block : attention and MLP read the same residual stream, and share its additions and all-reduces.
    encoder_layers : layers of the encoder in a model with both, 0 for a single stack.
    encoder_ffn : width inside the encoder's MLPs, 0 for ``ffn``.
    encoder_positions : positions of an encoder of sound, and tokens that its sequences always have (Whisper: 30 s);
        its table is its own. 0 for an encoder of text.
    audio_bands : bands of the spectrum, at two times of each of these tokens, which two convolutions of three taps
        bring to ``hidden``, the second at every other time.
    position_buckets : rows of a table of relative positions, one column a head, in each stack (T5); 0 for none.
    head_bias : the head has a bias.
    index_heads, index_head_dim : heads of an indexer that chooses which keys attention reads (DeepSeek sparse
        attention, and in blocks MiniMax-M3), 0 for none, and the size of one; all of them share one key.
    index_keys : keys that it leaves each query.
    index_layers : layers with an indexer of their own; the others take what the one before them chose.
    index_ratio : tokens that each key which an indexer chooses among stands for: 1, or more where layers with an
        indexer attend to a window and to compressed keys (DeepSeek-V4), as no others then do.
    pool_layers, pool_ratio : layers that attend to a window and to all compressed keys, each of which stands for so
        many tokens; 0 for none.
    output_groups, output_lora : groups of heads whose output a matrix of their own brings to a rank, before one matrix
        mixes all of them; 0 where one matrix follows attention.
    residual_streams : residual streams beside each other, which hyper-connections mix before and after each block, or
        which a layer predicts and corrects (`Architecture.altup`).
    memory_tokens : learned tokens before each sequence (Hymba), which are tokens of its prompt; a window beside them
        counts them.
    laurel_rank : rank of a layer's second residual: two matrices beside attention, and a norm; 0 for none (Gemma 3n).
    sparse_layers : layers whose MLP keeps the largest values of its gate alone: those above a bound that follows from
        their mean and deviation. Its products are computed in full.
    hash_layers : first layers whose experts a table by token chooses, without a correction of each expert's score.
    linear_layers : layers with a state of the sequence (`perfmodel.workloads.state_layer`), in place of keys but for
        ``joint_layers``; they alternate evenly with those that attend to keys.
    joint_layers : of these, those that attend to keys as well: both read the same normed input, and what they give is
        summed (Falcon-H1).
    shared_blocks : blocks of attention and an MLP, before the state of ``joint_layers``, which these share in turn
        (Zamba2): they read the residual stream beside the embedding, and a matrix of the layer's own brings what they
        give to what goes into its state; 0 where each layer has its own.
    block_rank : rank of adapters that each of these layers has of the MLP's matrices, 0 for none.
    block_adapters : they have adapters of queries, keys and values, too.
    linear_rule : how a token changes that state, as `Rule` names it.
    linear_heads, linear_key_heads : heads of their values, and of their queries and keys; 0 for as many.
    linear_head_dim, linear_value_dim : size of a head of their queries and keys, and of their values.
    linear_conv : taps of the convolution over neighbouring tokens before it, 0 for none.
    linear_rank : rank of the steps of Mamba of the first kind, and of RWKV's decays.
    linear_rate_rank, linear_value_rank, linear_gate_rank, linear_mix_rank : other ranks of RWKV, see `StateLayer`.
    linear_state_dtype : dtype in which the model asks engines to keep its states between steps; "" for none.
    facts : the facts of the architecture where they are not those of ``model_type``; None for these.
    name : what the model is called, for people.
    stored : format of the checkpoint's weights, as `perfmodel.serving.precision.FORMATS` names them; "" for 16 bits,
        `perfmodel.workloads.quantization.OTHER` for one that is not read.
    stored_words : what the configuration says of it, for people.
    remarks : what is not counted, or contradicts the configuration, for people.
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
    stored: str = ""
    expert_groups: int = 0
    token_groups: int = 0
    index_heads: int = 0
    index_head_dim: int = 128
    index_keys: int = 2048
    index_layers: int = 0
    linear_layers: int = 0
    linear_heads: int = 0
    linear_key_heads: int = 0
    linear_head_dim: int = 128
    linear_value_dim: int = 128
    linear_conv: int = 4
    linear_rule: str = Rule.GATED_DELTA
    bare_layers: int = 0
    expert_hidden: int = 0
    window_heads: int = 0
    window_kv_heads: int = 0
    window_head_dim: int = 0
    window_value_dim: int = 0
    keys_are_values: bool = False
    joint_layers: int = 0
    linear_state_dtype: str = ""
    linear_rank: int = 0
    linear_rate_rank: int = 0
    linear_value_rank: int = 0
    linear_gate_rank: int = 0
    linear_mix_rank: int = 0
    zero_experts: int = 0
    kv_shared_layers: int = 0
    kv_shared_window_layers: int = 0
    kv_shared_ffn: int = 0
    layer_embedding: int = 0
    layer_embedding_vocab: int = 0
    shared_blocks: int = 0
    block_rank: int = 0
    block_adapters: bool = False
    dense_at: tuple[int, ...] = ()
    index_ratio: int = 1
    pool_layers: int = 0
    pool_ratio: int = 0
    output_groups: int = 0
    output_lora: int = 0
    residual_streams: int = 1
    hash_layers: int = 0
    memory_tokens: int = 0
    laurel_rank: int = 0
    sparse_layers: int = 0
    encoder_positions: int = 0
    audio_bands: int = 0
    stored_words: str = field(default="", compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.dense_at:
            object.__setattr__(self, "dense_layers", len(self.dense_at))
            leading = self.dense_at == tuple(range(self.dense_layers))
            object.__setattr__(self, "dense_at", () if leading else self.dense_at)
        object.__setattr__(self, "index_layers", (self.index_layers or self.layers) if self.index_heads else 0)
        others = self.attending_layers - self.compressed_layers
        every = others if self.window and not self.window_layers else self.window_layers
        object.__setattr__(self, "window_layers", every)
        object.__setattr__(self, "linear_key_heads", self.linear_key_heads or self.linear_heads)
        if self.memory_tokens and not self.remarks:
            object.__setattr__(self, "remarks", (_MEMORY_TOKENS.format(self.memory_tokens),))

    @property
    def architecture(self) -> Architecture:
        """The facts that all models of this type share."""
        return self.facts or ARCHITECTURES[self.model_type]

    @property
    def router(self) -> Router:
        """Which experts a token takes."""
        return Router(self.experts, self.top_k, max(1, self.expert_groups), max(1, self.token_groups))

    @property
    def usual_weights(self) -> str:
        """The format in which the weights are served if none is asked for: that of the checkpoint, bf16 if unknown."""
        return "bf16" if self.stored in ("", OTHER) else self.stored

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
    def chunked(self) -> bool:
        """Whether the window is a piece of the sequence, to whose keys alone its queries attend."""
        return self.architecture.chunked

    @property
    def block_indexer(self) -> bool:
        """Whether an indexer chooses blocks of keys, and layers without one attend to all keys."""
        return self.architecture.block_indexer

    @property
    def compressed_layers(self) -> int:
        """Layers that attend to keys which stand for several tokens, beside a window."""
        return int(compressed_layers(self))

    @property
    def reaches(self) -> tuple[tuple[Reach, float], ...]:
        """What a query attends to in each kind of layers that attend to keys, and how many of these there are."""
        return counted_reaches(self)

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers - self.bare_layers if self.experts else 0

    @property
    def mlp_layers(self) -> int:
        """Layers with one dense MLP."""
        return self.layers - self.moe_layers - self.bare_layers

    @property
    def scored_experts(self) -> int:
        """Experts that the router scores: all that a token may take."""
        return self.experts + self.zero_experts

    @property
    def expert_width(self) -> int:
        """Width of what goes into an expert and comes out."""
        return self.expert_hidden or self.hidden

    @property
    def attending_layers(self) -> int:
        """Layers whose queries attend to keys, which they keep."""
        return self.layers - self.linear_layers + self.joint_layers

    @property
    def value_dim(self) -> int:
        """Size of a value's head."""
        return self.value_head_dim or self.head_dim

    @property
    def attention_input(self) -> int:
        """Width of what goes into attention: the residual stream, beside the embedding in blocks that are shared."""
        return self.hidden * (1 + (self.shared_blocks > 0))

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def gate_width(self) -> int:
        """Width of the gate of attention's output, 0 without one."""
        return self.query_width * self.architecture.output_gate

    @property
    def state_layer(self) -> StateLayer:
        """What layers with a state have of it."""
        facts = self.architecture
        return StateLayer(
            Rule(self.linear_rule), self.hidden, self.linear_heads, self.linear_key_heads, self.linear_head_dim,
            self.linear_value_dim, self.linear_conv, facts.state_norm, facts.state_bias, facts.state_conv_bias,
            facts.state_output_bias, self.linear_state_dtype or USUAL_DTYPE,
            self.linear_rank, facts.state_inner_norms, self.linear_rate_rank, self.linear_value_rank,
            self.linear_gate_rank, self.linear_mix_rank,
        )  # fmt: skip

    @property
    def kv_width(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim

    @property
    def computed_value_width(self) -> int:
        """Width of the values that a matrix computes."""
        return 0 if self.keys_are_values else self.kv_heads * self.value_dim

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over ``hidden``: a scale, and a shift for LayerNorm."""
        shape = self.architecture
        shift = not shape.rms_norm if shape.norm_bias is None else shape.norm_bias
        return self.hidden * (int(shape.norm_scale) + int(shift))
