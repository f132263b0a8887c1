"""What the model types have in common that their configurations do not say."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Architecture:
    """What all models of one ``model_type`` share and their configuration does not say.

    Attributes
    ----------
    causal : each token sees the earlier ones only.
    learned_positions : a table of positions is added to the embedding; without it, keys and queries are rotated.
    extra_positions : rows that this table has beyond ``positions``.
    rms_norm : RMSNorm with a scale only, in place of LayerNorm with scale and shift.
    gated : the MLP multiplies activation(gate x) by (up x) (SwiGLU).
    fused_qkv : one matrix makes queries, keys and values.
    qkv_bias, output_bias, mlp_bias : which matrices of a layer have a bias, where the configuration has no say.
    qk_norm : queries and keys of a head are normalised.
    norm_after : the norms follow the residual additions (BERT) in place of coming first; none is left for the end.
    tied : the embedding is the matrix of the head as well, unless the configuration says otherwise.
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


_PLAIN = {"learned_positions": True, "rms_norm": False, "gated": False, "tied": True} | dict.fromkeys(
    ("qkv_bias", "output_bias", "mlp_bias"), True
)
ARCHITECTURES = MappingProxyType(
    {
        "bert": Architecture(causal=False, norm_after=True, **_PLAIN),
        "gpt2": Architecture(fused_qkv=True, **_PLAIN),
        # OPT keeps two rows of its table of positions for padding.
        "opt": Architecture(extra_positions=2, **_PLAIN),
        "llama": Architecture(),
        "mistral": Architecture(),
        "qwen2": Architecture(qkv_bias=True),
        "qwen3": Architecture(qk_norm=True),
    }
)
