"""How many kernels a layer launches: an engine's own, and those of what a model has beside attention and an MLP."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.serving.engine import Engine
from perfmodel.serving.shard import Shard
from perfmodel.serving.streams import ALTUP_KERNELS, LAUREL_KERNELS

#: kernels of a layer with latent attention in a step with prompts over those in decode: nothing is absorbed, so that
#: keys and values are expanded, joined and quantised by kernels of their own; time to the first token of DeepSeek by
#: concurrency, half of the runs, on a grid of 1 to 6
LATENT_PROMPT_KERNELS = 5.0
#: kernels that latent attention adds to a layer where an engine has joined what it can
FUSED_LATENT_KERNELS = 3.0
#: kernels of an indexer: two products, the norm and rotation of keys and queries with their conversion to 8 bits, the
#: write of the key, the scores and the choice among them (SGLang's and vLLM's ``Indexer``)
INDEX_KERNELS = 6.0
#: kernels of attention to one vector a token: a second product of queries, their norm with its own, the rotation of the
#: output, and a second product of the output (vLLM's ``DeepseekV4Attention``)
SHARED_KERNELS = 4.0
#: kernels of what compresses tokens: the product of keys and gates, and their sum with the cache's write
COMPRESSOR_KERNELS = 2.0
#: kernels of two hyper-connections beyond the additions with norms that they replace: of each a product, and the
#: spreading of the block's output over the streams; the sum of the streams is one with the norm (vLLM's mhc kernels)
MIXING_KERNELS = 4.0
#: kernels of an MLP with its norm, which a layer without one lacks: addition with norm, two products, activation
MLP_KERNELS = 4.0
#: kernels that a state beside attention adds to a layer: two products, the convolution, the states, their gate with its
#: norm, and the addition of what both give. Falcon-H1's products by fixed numbers are not counted: some engines fuse
#: them (SGLang's ``FalconH1HybridAttentionDecoderLayer`` does not)
JOINT_KERNELS = 6.0
#: kernels of a layer's own embedding: a product with its activation and the embedding multiplied in, a second product,
#: and the addition with a norm (vLLM's ``Gemma4DecoderLayer``)
LAYER_EMBEDDING_KERNELS = 4.0
#: kernels of attention to an encoder's tokens in a layer: a norm with its addition, a product before and one after, and
#: attention (vLLM's ``WhisperCrossAttention``)
CROSS_KERNELS = 4.0

#: kernels that look for the tokens of each expert where they are computed one after another: which are above zero,
#: their number, their places and its copy to the host; and of an expert that has some: gathered rows, three products,
#: the activation and the product with it, the weights of the router, the product with them, and the sum
#: (huggingface/transformers, ``Qwen3MoeSparseMoeBlock`` and others before 4.53)
LOOK_KERNELS, LOOPED_KERNELS = 4.0, 9.0


@dataclass(frozen=True)
class KernelCounts:
    """What launches: a GPU's part of a model in an engine.

    Attributes
    ----------
    shard, engine : the part of the model, the engine's profile.
    weights : name of the format of the weights.
    shared : whether several GPUs share the layers' matrices, and exchange.
    """

    shard: Shard
    engine: Engine
    weights: str
    shared: bool

    @property
    def per_layer(self) -> float:
        """Kernels of one layer: the engine's, exchanges, and those of experts and of latent attention."""
        shard = self.shard
        linear, bare = shard.linear_layers / shard.layers, shard.bare_layers / shard.layers
        attends, joint = shard.attending_layers / shard.layers, shard.joint_layers / shard.layers
        exchanges = 0.0 if not self.shared else 1.0 if shard.parallel_block else 2.0 - bare
        exchanges += (shard.cross_tokens > 0) * self.shared
        own = self.engine.kernels + self.engine.format_kernels.get(self.weights, 0) - MLP_KERNELS * bare
        attention = attends * (shard.qk_norm + (shard.output_gate or shard.head_gate) + self.latent)
        attention += SHARED_KERNELS * shard.shared_vector + MIXING_KERNELS * shard.mixes_streams
        attention += ALTUP_KERNELS * shard.altup + LAUREL_KERNELS * (shard.laurel_rank > 0)
        attention += shard.sparse_layers / shard.layers + CROSS_KERNELS * (shard.cross_tokens > 0)
        attention += COMPRESSOR_KERNELS * sum(layers for _, layers in shard.compressors) / shard.layers
        attention += joint * (JOINT_KERNELS + len(shard.block_matrices) + (shard.shared_blocks > 0))
        attention += LAYER_EMBEDDING_KERNELS * (shard.layer_embedding > 0)
        attention += INDEX_KERNELS * shard.index_layers / shard.layers
        if shard.state:
            attention += linear * shard.state.more_kernels
        experts = (5 + 2 * shard.has_latent_experts) * (1.0 - bare) * (shard.moe_layers > 0)
        return own + exchanges + experts + attention + self.looped * shard.moe_layers / shard.layers

    @property
    def looped(self) -> float:
        """Kernels of the experts of a token where each is looked at, and computed, one after another."""
        return self.engine.looped * (LOOK_KERNELS * self.shard.experts + LOOPED_KERNELS * self.shard.top_k)

    @property
    def latent(self) -> float:
        """Kernels that latent attention adds to a layer."""
        return self.engine.latent_kernels * float(self.shard.kv_lora > 0)

    @property
    def unfused(self) -> float:
        """Those that an engine has joined with others by now: rotations, conversions and copies of queries and keys."""
        return max(0.0, self.latent - FUSED_LATENT_KERNELS)

    @property
    def per_prompt_layer(self) -> float:
        """Kernels of one layer in a step with prompts."""
        shard, found = self.shard, self.per_layer
        if shard.kv_lora:
            joined = found - self.unfused
            found += joined * (LATENT_PROMPT_KERNELS - 1.0) * shard.attending_layers / shard.layers
        if shard.state:
            found += shard.state.more_prompt_kernels * shard.linear_layers / shard.layers
        return found
