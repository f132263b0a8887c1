"""Facts about model types that their configurations do not state.

They follow the classes of Hugging Face's transformers 4.57, or 5.24 for types that came later; the parameters of each
type were compared with those of the class, built without weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """Facts that all models of one ``model_type`` share and their configuration does not state.

    Attributes
    ----------
    causal : each token attends only to the tokens before it and to itself.
    learned_positions : a table of positions is added to the embedding.
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
    qk_norm_scale : it has a scale.
    sinks : each head has one logit that takes part in its softmax (gpt-oss).
    window_sinks : the same, in layers with a window alone.
    embedding_norm : a norm follows the embedding.
    head_transform : the head is BERT's: a matrix, a norm and logits with a bias.
    head_bias : the head has a bias.
    router_bias : the router of the experts has a bias, or a correction of each expert's score.
    parallel_block : attention and MLP read the same residual stream.
    output_gate : a gate as wide as the queries, computed beside them, multiplies what attention gives.
    head_gate : a gate of one number a head multiplies what attention gives, computed by a matrix of its own.
    router_scale : the router's input is scaled column by column.
    activation_parameters : parameters of the activation of a dense layer's MLP (xIELU).
    state_inner_norms : steps, keys and queries of Mamba of the first kind have a norm each.
    state_norm : a norm follows Mamba-2's states, beside their gate.
    state_bias, state_conv_bias, state_output_bias : the matrix before Mamba-2's states, the convolution behind it and
        the matrix after the states have a bias; of LFM2's layers the first and the third say so, and the first of the
        convolution, too.
    chunked : the window is a chunk: the sequence is cut into pieces of that many tokens, and a query attends to the
        keys of its own piece alone (Llama 4), half of them in the mean.
    altup : a layer predicts all residual streams, computes with one of them, and corrects them (Gemma 3n), in place of
        the hyper-connections before and after each block.
    layer_buckets : each layer has a table of relative positions of its own, not one for its stack (UMT5).
    joint_output : attention and the state beside it give as wide a result each; a norm each and their mean come before
        the state's output matrix, and attention has none (Hymba).
    key_bias : keys have a bias where queries and values have one; Whisper's have none.
    block_indexer : an indexer chooses blocks of keys for each head of these (MiniMax-M3): it has no weights of its
        heads, keeps its keys in 16 bits, and layers without one attend to all keys.
    shared_vector : a layer computes and keeps one vector of ``head_dim`` for each token, which is the key and the value
        of all heads at once (DeepSeek-V4).
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
    qk_norm_scale: bool = True
    sinks: bool = False
    window_sinks: bool = False
    embedding_norm: bool = False
    head_transform: bool = False
    head_bias: bool = False
    router_bias: bool = False
    parallel_block: bool = False
    output_gate: bool = False
    head_gate: bool = False
    router_scale: bool = False
    activation_parameters: int = 0
    state_inner_norms: bool = False
    state_norm: bool = True
    state_bias: bool = False
    state_conv_bias: bool = True
    state_output_bias: bool = False
    chunked: bool = False
    shared_vector: bool = False
    block_indexer: bool = False
    altup: bool = False
    key_bias: bool = True
    joint_output: bool = False
    layer_buckets: bool = False


_BIASES = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), True)
_LAYER_NORM: dict[str, Any] = {"rms_norm": False, "gated": False}
_PLAIN: dict[str, Any] = {**_LAYER_NORM, **_BIASES, "learned_positions": True, "rotary": False, "tied": True}
_BERT: dict[str, Any] = {**_PLAIN, "causal": False, "norm_after": True, "embedding_norm": True, "head_transform": True}
_LLAMA = Architecture()
_QK_NORM = Architecture(qk_norm=True)
_ROUTED = Architecture(router_bias=True)
_QK_NORM_ROUTED = Architecture(qk_norm=True, router_bias=True)
_GATED_DELTA = Architecture(qk_norm=True, output_gate=True)
_FALCON = Architecture(**_LAYER_NORM, fused_qkv=True, tied=True)
_T5 = Architecture(gated=False, rotary=False, tied=True)
ARCHITECTURES = MappingProxyType(
    {
        "afmoe": Architecture(qk_norm=True, output_gate=True, norms=4, router_bias=True),
        "apertus": Architecture(gated=False, qk_norm=True, activation_parameters=2),
        "arcee": Architecture(gated=False),
        "bamba": _LLAMA,
        "bailing_moe": Architecture(fused_qkv=True),
        "bart": Architecture(**_PLAIN, extra_positions=2, norm_after=True, embedding_norm=True),
        "bert": Architecture(**_BERT),
        "bloom": Architecture(**_LAYER_NORM, **_BIASES, rotary=False, tied=True, fused_qkv=True, embedding_norm=True),
        "camembert": Architecture(**_BERT),
        "chatglm": Architecture(qkv_bias=True),
        "codegen": Architecture(
            **_LAYER_NORM, mlp_bias=True, fused_qkv=True, head_bias=True, norms=1, parallel_block=True
        ),
        "cohere": Architecture(rms_norm=False, norm_bias=False, norms=1, parallel_block=True, tied=True),
        "cohere2": Architecture(rms_norm=False, norm_bias=False, norms=1, parallel_block=True, tied=True),
        "cohere2_moe": Architecture(rms_norm=False, norm_bias=False, norms=1, parallel_block=True, tied=True),
        "cwm": _LLAMA,
        "dbrx": Architecture(rms_norm=False, norm_bias=False, fused_qkv=True),
        "deepseek_v2": _LLAMA,
        "deepseek_v3": _ROUTED,
        "deepseek_v32": _ROUTED,
        "deepseek_v4": Architecture(sinks=True, router_bias=True, shared_vector=True),
        "distilbert": Architecture(**_BERT),
        "dots1": _QK_NORM_ROUTED,
        "ernie4_5": Architecture(tied=True),
        "ernie4_5_moe": Architecture(tied=True, router_bias=True),
        "exaone": _LLAMA,
        "exaone4": _QK_NORM,
        "exaone_moe": _QK_NORM_ROUTED,
        "falcon": _FALCON,
        "falcon_h1": _LLAMA,
        "falcon_mamba": Architecture(rotary=False, tied=True),
        "flex_olmo": Architecture(qk_norm=True, qk_norm_all=True),
        "gemma": Architecture(tied=True),
        "gemma2": Architecture(tied=True, norms=4),
        "gemma3_text": Architecture(tied=True, norms=4, qk_norm=True),
        "gemma3n_text": Architecture(tied=True, norms=4, qk_norm=True, altup=True),
        "gemma4_text": Architecture(tied=True, norms=4, qk_norm=True),
        "gemma4_unified_text": Architecture(tied=True, norms=4, qk_norm=True),
        "glm": Architecture(qkv_bias=True),
        "glm4": Architecture(qkv_bias=True, norms=4),
        "glm4_moe": _ROUTED,
        "glm4_moe_lite": _ROUTED,
        "glm4v_moe_text": Architecture(qkv_bias=True, router_bias=True),
        "glm4v_text": Architecture(qkv_bias=True, norms=4),
        "glm_moe_dsa": _ROUTED,
        "glm_ocr_text": Architecture(norms=4),
        "gpt2": Architecture(fused_qkv=True, **_PLAIN),
        "gpt_bigcode": Architecture(fused_qkv=True, **_PLAIN),
        "gpt_neo": Architecture(**(_PLAIN | {"qkv_bias": False})),
        "gpt_neox": Architecture(**_LAYER_NORM, **_BIASES, fused_qkv=True, parallel_block=True),
        "gpt_oss": Architecture(**_BIASES, sinks=True, router_bias=True),
        "gptj": Architecture(**_LAYER_NORM, mlp_bias=True, head_bias=True, norms=1, parallel_block=True),
        "granite": _LLAMA,
        "granitemoe": _LLAMA,
        "granitemoehybrid": _LLAMA,
        "granitemoeshared": _LLAMA,
        "granite_swa": Architecture(sinks=True, tied=True),
        "granitemoe_swa": Architecture(sinks=True),
        "helium": _LLAMA,
        "hunyuan_v1_dense": _QK_NORM,
        "hunyuan_v1_moe": _QK_NORM,
        "hy_v3": _QK_NORM_ROUTED,
        "hymba": Architecture(tied=True, state_inner_norms=True, joint_output=True),
        "hyperclovax": Architecture(norms=4),
        "internlm": _LLAMA,
        "internlm3": _LLAMA,
        "iquestcoder": _LLAMA,
        "jamba": Architecture(rotary=False, state_inner_norms=True),
        "jais2": Architecture(**_LAYER_NORM, **_BIASES),
        "kimi_linear": Architecture(rotary=False, router_bias=True),
        "kolibri1": Architecture(qk_norm=True, norms=4, router_bias=True),
        "lfm2": Architecture(qk_norm=True, tied=True),
        "lfm2_moe": Architecture(qk_norm=True, tied=True, router_bias=True),
        "llama": _LLAMA,
        "llama4_text": Architecture(chunked=True),
        # a layer is two: attention with experts and a dense MLP beside them, and attention with a dense MLP; what the
        # experts give is added after both, which engines may use to compute them meanwhile
        "longcat_flash": _ROUTED,
        "mamba": Architecture(rotary=False, tied=True, state_bias=True, state_output_bias=True),
        "mamba2": Architecture(rotary=False),
        # NLLB and M2M100 compute their positions; Pegasus and Marian have tables of them that are not trained
        "m2m_100": Architecture(**(_PLAIN | {"learned_positions": False})),
        "marian": Architecture(**_PLAIN, norm_after=True),
        "mbart": Architecture(**_PLAIN, extra_positions=2, embedding_norm=True),
        "pegasus": Architecture(**_PLAIN),
        "mellum": _QK_NORM,
        "minicpm": Architecture(tied=True),
        "minicpm3": Architecture(tied=True),
        "mimo_v2_flash": Architecture(window_sinks=True, router_bias=True),
        "minimax": _LLAMA,
        "ministral3": _LLAMA,
        "minimax_m3_vl_text": Architecture(qk_norm=True, router_bias=True, block_indexer=True),
        "minimax_m2": Architecture(qk_norm=True, qk_norm_all=True, router_bias=True),
        "mistral": _LLAMA,
        "mistral4": _LLAMA,
        "mixtral": _LLAMA,
        "mpt": Architecture(**_LAYER_NORM, rotary=False, norm_bias=False, fused_qkv=True, tied=True),
        "mt5": _T5,
        "muse_glimmer_text": Architecture(qk_norm=True, qk_norm_scale=False, output_gate=True, norms=4),
        "nanochat": Architecture(gated=False, qk_norm=True, qk_norm_scale=False, norm_scale=False, embedding_norm=True),
        "nemotron": Architecture(**_LAYER_NORM),
        "nemotron_h": Architecture(gated=False, rotary=False, router_bias=True),
        "olmo": Architecture(rms_norm=False, norm_scale=False, norm_bias=False),
        "olmo2": Architecture(qk_norm=True, qk_norm_all=True),
        "olmo3": Architecture(qk_norm=True, qk_norm_all=True),
        "olmo_hybrid": Architecture(qk_norm=True, qk_norm_all=True),
        "olmoe": Architecture(qk_norm=True, qk_norm_all=True),
        # OPT reserves two rows of its table of positions for padding.
        "opt": Architecture(extra_positions=2, **_PLAIN),
        "orion": Architecture(rms_norm=False),
        "persimmon": Architecture(**_LAYER_NORM, **_BIASES, fused_qkv=True, qk_norm=True, qk_norm_bias=True),
        "plamo2": Architecture(
            tied=True, norms=4, qk_norm=True, qk_norm_all=True, state_inner_norms=True, state_conv_bias=False
        ),
        "phi": Architecture(**_LAYER_NORM, **_BIASES, head_bias=True, norms=1, parallel_block=True),
        "phi3": Architecture(fused_qkv=True),
        "phi4_multimodal": Architecture(fused_qkv=True),
        "phimoe": Architecture(rms_norm=False),
        "qwen": Architecture(qkv_bias=True, fused_qkv=True),
        "qwen2": Architecture(qkv_bias=True),
        "qwen2_moe": Architecture(qkv_bias=True),
        "qwen3": _QK_NORM,
        "qwen3_5_moe_text": _GATED_DELTA,
        "qwen3_5_text": _GATED_DELTA,
        "qwen3_moe": _QK_NORM,
        "qwen3_next": _GATED_DELTA,
        "roberta": Architecture(**_BERT),
        **dict.fromkeys(("rwkv5", "rwkv6", "rwkv7"), Architecture(**_LAYER_NORM, rotary=False, embedding_norm=True)),
        "sarvam_mla": _ROUTED,
        "sarvam_moe": _QK_NORM_ROUTED,
        "seed_oss": Architecture(qkv_bias=True),
        "smollm3": Architecture(tied=True),
        "solar_open": _ROUTED,
        "stablelm": Architecture(rms_norm=False),
        "step3p5": Architecture(qk_norm=True, head_gate=True, router_bias=True),
        "starcoder2": Architecture(**_LAYER_NORM, **_BIASES, tied=True),
        "t5": _T5,
        "umt5": Architecture(rotary=False, tied=True, layer_buckets=True),
        "vaultgemma": Architecture(tied=True),
        "whisper": Architecture(**_PLAIN, key_bias=False),
        "xlm-roberta": Architecture(**_BERT),
        "youtu": Architecture(tied=True),
        "zamba": Architecture(tied=True, rotary=False),
        "zamba2": Architecture(tied=True, rotary=False),
    }
)
#: other names of the same layers: releases before Hugging Face had the class, models inside others, and copies
ALIASES = MappingProxyType(
    {
        "RefinedWeb": "falcon",
        "RefinedWebModel": "falcon",
        "Yi": "llama",
        "bailing_moe_v2": "bailing_moe",
        # Baichuan of 13 billion has ALiBi in place of rotary positions, as its sizes alone tell
        "baichuan": "llama",
        "deepseek": "deepseek_v2",
        "deepseek_vl": "llama",
        "deepseek_vl_v2": "deepseek_v2",
        "exaone4_5_text": "exaone4",
        "gemma3": "gemma3_text",
        "gemma3n": "gemma3n_text",
        "gemma4": "gemma4_text",
        "gemma4_unified": "gemma4_unified_text",
        "glm46v": "glm4v_text",
        "glm4v": "glm4v_text",
        "glm4v_moe": "glm4v_moe_text",
        "glm_ocr": "glm_ocr_text",
        "internlm2": "internlm3",
        "kimi_k2": "deepseek_v3",
        "kimi_k25": "deepseek_v3",
        "kimi_vl": "deepseek_v3",
        "llama4": "llama4_text",
        "mimo": "qwen2",
        "minimax_m1": "minimax",
        "minimax_m3_vl": "minimax_m3_vl_text",
        "minimax_text_01": "minimax",
        "ministral": "mistral",
        "mistral3": "mistral",
        "muse_glimmer": "muse_glimmer_text",
        "phi4mm": "phi4_multimodal",
        "qwen2_5_omni_text": "qwen2",
        "qwen2_vl": "qwen2",
        "qwen2_vl_text": "qwen2",
        "qwen2_5_vl": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen3_5": "qwen3_5_text",
        "skywork": "llama",
        "stablelm_epoch": "stablelm",
        "step3p7": "step3p5",
        "xverse": "llama",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "qwen3_omni_moe_text": "qwen3_moe",
        "qwen3_vl": "qwen3",
        "qwen3_vl_moe": "qwen3_moe",
        "qwen3_vl_moe_text": "qwen3_moe",
        "qwen3_vl_text": "qwen3",
    }
)
#: types of whole models whose language model may state another type than its class has -> that of its class
OF_WHOLES = MappingProxyType({"minimax_m3_vl": "minimax_m3_vl_text"})
_RECURRENT = "recurrent layers"
_OF_IMAGES = "experts for images beside those for text"
#: model types whose layers are not attention, or what stands for it, with an MLP, or differ -> what they have
REFUSED = MappingProxyType(
    {
        "rwkv": "recurrent layers of RWKV-4",
        **dict.fromkeys(("xlstm", "recurrent_gemma"), _RECURRENT),
        "bailing_hybrid": "latent attention with a gate for each head",
        "laguna": "layers whose heads of attention differ in number",
        **dict.fromkeys(("ernie4_5_moe_vl", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text"), _OF_IMAGES),
        **dict.fromkeys(("mistral_large4", "mistral_large4_text"), "layers that share keys and values"),
        "deepseek_v41": "layers that share compressed keys, and tables of n-grams",
        "longcat_flash_ngram": "tables of n-grams",
        "albert": "layers that share their weights",
        **dict.fromkeys(("nemotron-nas", "deci"), "layers whose sizes differ"),
        "deberta-v2": "attention to the distances of tokens",
        "mllama": "layers of cross attention to images",
        "mllama_text_model": "layers of cross attention to images",
    }
)
