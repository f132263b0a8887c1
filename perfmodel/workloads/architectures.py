"""Facts about model types that their configurations do not state."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Architecture:
    """Facts that all models of one ``model_type`` share and their configuration does not state.

    Attributes
    ----------
    causal : each token attends only to the tokens before it and to itself.
    learned_positions : a table of positions is added to the embedding; otherwise keys and queries are rotated.
    extra_positions : rows that this table has beyond ``positions``.
    rms_norm : RMSNorm with only a scale, instead of LayerNorm with scale and shift.
    gated : the MLP multiplies activation(gate x) by (up x) (SwiGLU).
    fused_qkv : one matrix computes queries, keys and values.
    qkv_bias, output_bias, mlp_bias : which matrices of a layer have a bias, unless the configuration states it.
    qk_norm : the queries and keys of each head are normalised.
    norm_after : the norms follow the residual additions (BERT) instead of coming first; there is no final norm.
    tied : the embedding is also the matrix of the head, unless the configuration states otherwise.
    rotary : queries and keys are rotated by their positions.
    norm_scale, norm_bias : the norms have a scale, and a shift; by default LayerNorm has both and RMSNorm a scale.
    norms : norms over ``hidden`` in a layer, in a decoder's without that of cross attention.
    qk_norm_all, qk_norm_bias : the norm of queries and keys has a scale for all heads, not one that they share; it has
        a shift.
    sinks : each head has one logit that takes part in its softmax (gpt-oss).
    embedding_norm : a norm follows the embedding.
    head_transform : the head is BERT's: a matrix, a norm and logits with a bias.
    """

    causal: bool = True
    learned_positions: bool = False
    extra_positions: int = 0
    rms_norm: bool = True
    gated: bool = True
    fused_qkv: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm_after: bool = False
    tied: bool = False
    rotary: bool = True
    norm_scale: bool = True
    norm_bias: bool | None = None
    norms: int = 2
    qk_norm_all: bool = False
    qk_norm_bias: bool = False
    sinks: bool = False
    embedding_norm: bool = False
    head_transform: bool = False


_PLAIN = {"learned_positions": True, "rotary": False, "rms_norm": False, "gated": False, "tied": True} | dict.fromkeys(
    ("qkv_bias", "output_bias", "mlp_bias"), True
)
ARCHITECTURES = MappingProxyType(
    {
        "bert": Architecture(causal=False, norm_after=True, embedding_norm=True, head_transform=True, **_PLAIN),
        "gpt2": Architecture(fused_qkv=True, **_PLAIN),
        # OPT reserves two rows of its table of positions for padding.
        "opt": Architecture(extra_positions=2, **_PLAIN),
        "llama": Architecture(),
        "mistral": Architecture(),
        "qwen2": Architecture(qkv_bias=True),
        "qwen3": Architecture(qk_norm=True),
    }
)
