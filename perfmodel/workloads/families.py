"""What configurations of single families state in their own way: biases, indexers, parallel blocks.

Every function takes the keys of one configuration and returns dimensions of `ModelConfig`, or facts of `Architecture`
that depend on the configuration. They follow the classes of Hugging Face's transformers 4.57, or 5.24 for
families that came later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads import hybrids, rwkv
from perfmodel.workloads.config_values import WrongValueError, stated_number

Raw = Mapping[str, Any]

#: keys under which configurations state the biases of a layer: queries, keys and values; output; MLP
_USUAL_BIASES = ("attention_bias", "attention_bias", "mlp_bias")
_BIAS_KEYS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("ernie4_5", "ernie4_5_moe"), ("use_bias", "use_bias", "use_bias")),
        "bailing_moe": ("use_qkv_bias", "use_bias", ""),
        "chatglm": ("add_qkv_bias", "", ""),
        "cwm": ("", "", "mlp_bias"),
        "falcon": ("bias", "bias", "bias"),
        "glm": ("attention_bias", "", ""),
        "glm4": ("attention_bias", "", ""),
        **dict.fromkeys(("glm4_moe", "glm4v_moe_text", "sarvam_moe", "solar_open"), ("attention_bias", "", "")),
        "gpt_neox": ("attention_bias", "attention_bias", ""),
        "gpt_oss": ("attention_bias", "attention_bias", ""),
        "phimoe": ("attention_bias", "attention_bias", ""),
        "qwen2_moe": ("qkv_bias", "", ""),
        "seed_oss": ("attention_bias", "attention_out_bias", "mlp_bias"),
        "stablelm": ("use_qkv_bias", "", ""),
        "starcoder2": ("use_bias", "use_bias", "use_bias"),
        **dict.fromkeys(("cohere", "cohere2", "deepseek_v2", "deepseek_v3"), ("attention_bias", "attention_bias", "")),
        "kimi_linear": ("attention_bias", "attention_bias", ""),
        "nemotron_h": ("", "", "mlp_bias"),
        **dict.fromkeys(("gemma3n_text", "gemma4_text", "gemma4_unified_text"), ("attention_bias",) * 2 + ("",)),
        "mimo_v2_flash": ("attention_bias", "", ""),
        **dict.fromkeys(("falcon_mamba", "hymba", "jamba", "mamba", "mamba2", "plamo2"), ("", "", "")),
        "zamba": ("", "", ""),
        "zamba2": ("", "", "add_bias_linear"),
        **dict.fromkeys(("lfm2", "lfm2_moe", "minimax", "minimax_m3_vl_text"), ("", "", "")),
        **dict.fromkeys(("olmo_hybrid", "granitemoehybrid"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), ("attention_bias", "attention_bias", "mlp_bias")),
        **dict.fromkeys(("afmoe", "apertus", "cohere2_moe", "dots1"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("flex_olmo", "glm4_moe_lite", "hunyuan_v1_moe"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("hy_v3", "minicpm3", "mistral4", "nanochat"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("granitemoe_swa", "mellum", "muse_glimmer_text"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("sarvam_mla", "vaultgemma", "youtu"), ("attention_bias", "attention_bias", "")),
        # these classes read no such key
        **dict.fromkeys(("exaone_moe", "glm4v_text", "glm_ocr_text", "internlm3", "kolibri1"), ("", "", "")),
        **dict.fromkeys(("internlm", "minicpm", "orion"), ("", "", "")),
        "longcat_flash": ("attention_bias", "attention_bias", ""),
        **dict.fromkeys(("ministral3", "phi4_multimodal"), ("", "", "")),
        **dict.fromkeys(("qwen", "qwen2", "phi", "phi3", "gptj", "codegen"), ("", "", "")),
        **dict.fromkeys(("gpt2", "gpt_neo", "bloom", "mpt", "whisper"), ("", "", "")),
        **dict.fromkeys(("m2m_100", "marian", "mbart", "pegasus"), ("", "", "")),
        **dict.fromkeys(("t5", "mt5", "umt5", "bart", "bert", "roberta", "distilbert"), ("", "", "")),
        **dict.fromkeys(("dbrx", "persimmon"), ("", "", "")),
        **dict.fromkeys(("gemma2", "gemma3_text", "olmo", "olmo2", "olmo3"), ("attention_bias", "attention_bias", "")),
    }
)
#: families whose latent attention reads the keys that an indexer chooses (DeepSeek sparse attention)
INDEXED = frozenset(("deepseek_v32", "glm_moe_dsa"))


def bias_keys(kind: str) -> tuple[str, str, str]:
    """Return the keys that state the biases of queries, keys and values, of the output and of the MLP."""
    return _BIAS_KEYS.get(kind, _USUAL_BIASES)


def index_layers(raw: Raw, layers: int) -> int:
    """Return how many layers have an indexer of their own; the others take what the one before them chose."""
    types = raw.get("indexer_types")
    if isinstance(types, list) and types:
        return sum(str(name) == "full" for name in types)
    pattern = raw.get("index_topk_pattern")
    if isinstance(pattern, str):
        return pattern.count("F")
    every = stated_number(raw, "index_topk_freq", 1, least=1)
    first = stated_number(raw, "index_skip_topk_offset", 2)
    return sum(max(index - first + 1, 0) % every == 0 for index in range(layers))


#: families whose indexers choose blocks of keys, and how they list layers with one
BLOCK_INDEXED, BLOCK_SPARSE = frozenset(("minimax_m3_vl_text",)), "minimax_m3_sparse"


def block_indexer(raw: Raw, layers: int) -> dict[str, int]:
    """Return the indexers of blocks of keys: as ``sparse_attention_config`` states them, or transformers' keys."""
    own = raw.get("sparse_attention_config")
    own = own if isinstance(own, dict) else {}
    names = {
        "index_n_heads": ("sparse_num_index_heads", 4),
        "index_head_dim": ("sparse_index_dim", 128),
        "index_block_size": ("sparse_block_size", 128),
        "index_topk_blocks": ("sparse_topk_blocks", 16),
    }
    stated = {key: own.get(other, raw.get(key)) for key, (other, _) in names.items()}
    heads, dim, size, blocks = (stated_number(stated, key, usual, least=1) for key, (_, usual) in names.items())
    types, listed = raw.get("layer_types"), own.get("sparse_attention_freq")
    if isinstance(types, list) and types:
        found = sum(str(name) == BLOCK_SPARSE for name in types)
    else:
        found = sum(map(bool, listed)) if isinstance(listed, list) else 0
    if isinstance(listed, list) and len(listed) != layers:
        raise WrongValueError(f"sparse_attention_freq has {len(listed)} entries for {layers} layers")
    if not found:
        return {}
    return {"index_heads": heads, "index_head_dim": dim, "index_keys": size * blocks, "index_layers": found}


def unlike(kind: str, raw: Raw) -> str:
    """Return what a configuration has that the other models of its family have not, "" for nothing."""
    check = _UNLIKE.get(kind)
    return check(raw) if check else ""


def _all_are(value: Any, expected: Any) -> bool:
    """Return whether a value, or each of a list with one a layer, is what is expected; null is."""
    return value is None or all(one == expected for one in (value if isinstance(value, list) else [value]))


def _unlike_hunyuan(raw: Raw) -> str:
    if raw.get("use_cla"):
        return "layers that share keys and values"
    width = raw.get("intermediate_size")
    if not _all_are(raw.get("num_shared_expert"), 1) or not _all_are(raw.get("moe_intermediate_size"), width):
        return "shared experts of another width than the routed ones"
    return "layers of one expert" if _all_are(raw.get("num_experts"), 1) else ""


def _unlike_gated(raw: Raw) -> str:
    return "gates without the biases of its other matrices" if raw.get("attention_bias") else ""


def _unlike_longcat(raw: Raw) -> str:
    zeros = raw.get("zero_expert_type")
    if zeros not in (None, "identity"):
        return f"experts without weights of the type {zeros!r}"
    return "routers with a bias beside their correction" if raw.get("router_bias") else ""


def _unlike_nemotron_h(raw: Raw) -> str:
    biased = raw.get("mlp_bias") and "moe" in hybrids.listed(raw)
    return "experts without the biases of its other matrices" if biased else ""


def _unlike_gemma4(raw: Raw) -> str:
    wide = raw.get("use_double_wide_mlp") and raw.get("num_kv_shared_layers")
    return "wider MLPs beside experts" if wide and raw.get("enable_moe_block") else ""


def _unlike_hymba(raw: Raw) -> str:
    if not _all_are(raw.get("layer_type"), "h"):
        return "layers of attention or of a state alone beside those of both"
    if raw.get("kq_norm") not in (None, "none"):
        return "norms of queries and keys"
    return "experts" if (raw.get("num_experts") or 1) > 1 else ""


def _unlike_stacks(raw: Raw) -> str:
    alike = raw.get("encoder_attention_heads") in (None, raw.get("decoder_attention_heads"))
    return "" if alike else "an encoder with other heads than its decoder"


#: family -> what a configuration has that is not modelled
_UNLIKE: Mapping[str, Callable[[Raw], str]] = MappingProxyType(
    {
        **dict.fromkeys(("afmoe", "muse_glimmer_text"), _unlike_gated),
        "ernie4_5_moe": lambda raw: "experts without the biases of its other matrices" if raw.get("use_bias") else "",
        **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _unlike_gemma4),
        "hunyuan_v1_moe": _unlike_hunyuan,
        "longcat_flash": _unlike_longcat,
        "nemotron_h": _unlike_nemotron_h,
        **dict.fromkeys(rwkv.SIZES, rwkv.unlike),
        "hymba": _unlike_hymba,
        **dict.fromkeys(("bart", "m2m_100", "marian", "mbart", "pegasus", "whisper"), _unlike_stacks),
    }
)


def _falcon(raw: Raw) -> dict[str, Any]:
    newer = bool(raw.get("new_decoder_architecture")) or raw.get("model_type") == "RefinedWeb"
    parallel = newer or bool(raw.get("parallel_attn", True))
    given = stated_number(raw, "num_ln_in_parallel_attn", 2, least=1, most=2)
    return {
        "parallel_block": parallel,
        "norms": given if newer or not parallel else 1,
        "rotary": not raw.get("alibi"),
    }


def _stablelm(raw: Raw) -> dict[str, Any]:
    parallel, normed = bool(raw.get("use_parallel_residual")), bool(raw.get("qk_layernorm"))
    return {"parallel_block": parallel, "norms": 1 if parallel else 2, "qk_norm": normed, "qk_norm_all": normed}


def _cohere(raw: Raw) -> dict[str, Any]:
    return {"qk_norm": bool(raw.get("use_qk_norm")), "qk_norm_all": True}


def _t5(raw: Raw) -> dict[str, Any]:
    return {"gated": str(raw.get("feed_forward_proj", "relu")).startswith("gated")}


def _phi(raw: Raw) -> dict[str, Any]:
    return {"qk_norm": bool(raw.get("qk_layernorm")), "qk_norm_bias": True}


def _gemma4(raw: Raw) -> dict[str, Any]:
    """Gemma 4's experts stand beside the dense MLP of their layer, each with norms of its own."""
    experts = bool(raw.get("enable_moe_block"))
    causal = raw.get("use_bidirectional_attention") != "all"
    return {"norms": 4 + 3 * experts, "router_bias": experts, "router_scale": experts, "causal": causal}


def _step(raw: Raw) -> dict[str, Any]:
    each = raw.get("gating", True) in (True, "per-head")
    return {"head_gate": each, "output_gate": not each}


def _apertus(raw: Raw) -> dict[str, Any]:
    return {"activation_parameters": 2 * (raw.get("hidden_act") in (None, "xielu"))}


def _bailing(raw: Raw) -> dict[str, Any]:
    """Tell Ling 2.0, whose class has the same type, from Ling: it corrects the scores of its experts."""
    names = (raw.get("model_type"), *(raw.get("architectures") or ()))
    second = any(str(name).lower().replace("_", "").startswith("bailingmoev2") for name in names)
    return {"qk_norm": bool(raw.get("use_qk_norm")), "router_bias": second, "output_bias": True}


def _internlm(raw: Raw) -> dict[str, Any]:
    biased = any(raw.get(key) for key in ("bias", "qkv_bias", "attention_bias", "mlp_bias"))
    return dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), biased)


def _internlm1(raw: Raw) -> dict[str, Any]:
    return dict.fromkeys(("qkv_bias", "output_bias"), bool(raw.get("bias", True)))


def _sarvam(raw: Raw) -> dict[str, Any]:
    return {"qk_norm": bool(raw.get("use_qk_norm", True)), "qkv_bias": bool(raw.get("use_qkv_bias"))}


def _mpt(raw: Raw) -> dict[str, Any]:
    alibi = bool(raw.get("alibi", True))
    return {"learned_positions": not alibi}


def _olmo_hybrid(raw: Raw) -> dict[str, Any]:
    """OLMo-Hybrid states rotary positions without a base where it has none."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling")
    return {"rotary": not isinstance(rope, dict) or rope.get("rope_theta") is not None}


def _mamba2_biases(raw: Raw, into: str, out: str, conv: str = "mamba_conv_bias") -> dict[str, Any]:
    """Mamba's convolution has a bias unless its key says otherwise, the matrices around the states have none."""
    stated = {"state_bias": raw.get(into), "state_output_bias": raw.get(out), "state_conv_bias": raw.get(conv, True)}
    return {name: bool(value) for name, value in stated.items()}


def _mamba(raw: Raw) -> dict[str, Any]:
    """Mamba's matrices have a bias by default; LayerNorm stands for RMSNorm where mamba-ssm says so."""
    biases = _mamba2_biases({"use_bias": True, **raw}, "use_bias", "use_bias", "use_conv_bias")
    return {"rms_norm": bool(raw.get("rms_norm", True)), **biases}


def _bamba(raw: Raw) -> dict[str, Any]:
    return _mamba2_biases(raw, "mamba_proj_bias", "mamba_proj_bias")


def _falcon_h1(raw: Raw) -> dict[str, Any]:
    biases = _mamba2_biases(raw, "mamba_proj_bias", "projectors_bias")
    return {"state_norm": bool(raw.get("mamba_rms_norm")), **biases}


def _granite(raw: Raw) -> dict[str, Any]:
    return {"rotary": raw.get("position_embedding_type") == "rope", **_bamba(raw)}


def _hymba(raw: Raw) -> dict[str, Any]:
    return {"state_inner_norms": bool(raw.get("mamba_inner_layernorms", True)), **_bamba(raw)}


def _lfm2(raw: Raw) -> dict[str, Any]:
    """LFM2's matrices before and after the convolution have a bias, and the convolution, too, or none has."""
    return dict.fromkeys(("state_bias", "state_output_bias"), bool(raw.get("conv_bias")))


def _nemotron_h(raw: Raw) -> dict[str, Any]:
    conv = "mamba_conv_bias" if "mamba_conv_bias" in raw else "use_conv_bias"
    return _mamba2_biases(raw, "use_bias", "use_bias", conv)


def _zamba2(raw: Raw) -> dict[str, Any]:
    biases = _mamba2_biases(raw, "add_bias_linear", "add_bias_linear", "")
    return {"rotary": bool(raw.get("use_mem_rope")), **biases}


#: family -> the facts that its configuration changes
FACTS: Mapping[str, Callable[[Raw], dict[str, Any]]] = MappingProxyType(
    {
        "apertus": _apertus,
        "bailing_moe": _bailing,
        "bamba": _bamba,
        "cohere": _cohere,
        "cohere2_moe": lambda raw: {"rms_norm": raw.get("rms_norm_eps") is not None},
        "falcon": _falcon,
        "falcon_h1": _falcon_h1,
        **dict.fromkeys(("falcon_mamba", "mamba2"), lambda raw: _mamba({"use_bias": False, **raw})),
        **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _gemma4),
        "glm4_moe": lambda raw: {"qk_norm": bool(raw.get("use_qk_norm"))},
        "gpt_neox": lambda raw: {"parallel_block": bool(raw.get("use_parallel_residual", True))},
        "granitemoehybrid": _granite,
        "hyperclovax": lambda raw: {"norms": 4 if raw.get("use_post_norm", True) else 2},
        "internlm": _internlm1,
        "internlm3": _internlm,
        "hymba": _hymba,
        **dict.fromkeys(("jamba", "zamba"), _bamba),
        "lfm2": _lfm2,
        "mamba": _mamba,
        "lfm2_moe": lambda raw: {"router_bias": bool(raw.get("use_expert_bias", True)), **_lfm2(raw)},
        "minimax_m2": lambda raw: {"qk_norm": bool(raw.get("use_qk_norm", True))},
        "mpt": _mpt,
        "nemotron_h": _nemotron_h,
        "olmo_hybrid": _olmo_hybrid,
        "mt5": _t5,
        "umt5": lambda raw: _t5({"feed_forward_proj": "gated-gelu", **raw}),
        "persimmon": lambda raw: {"qk_norm": bool(raw.get("qk_layernorm", True))},
        "phi": _phi,
        "phimoe": lambda raw: {"head_bias": bool(raw.get("lm_head_bias", True))},
        "qwen": lambda raw: dict.fromkeys(("output_bias", "mlp_bias"), not raw.get("no_bias", True)),
        "sarvam_moe": _sarvam,
        "mimo_v2_flash": lambda raw: {"window_sinks": bool(raw.get("add_swa_attention_sink_bias", True))},
        **dict.fromkeys(rwkv.SIZES, rwkv.facts),
        "stablelm": _stablelm,
        "step3p5": _step,
        "t5": _t5,
        "zamba2": _zamba2,
    }
)
