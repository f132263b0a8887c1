"""What configurations of single families state in their own way: biases, windows, experts, parallel blocks.

Every function takes the keys of one configuration and returns dimensions of `ModelConfig`, or facts of `Architecture`
that depend on the configuration. They follow the classes of Hugging Face's transformers 4.57.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Raw = Mapping[str, Any]

#: keys under which configurations state the biases of a layer: queries, keys and values; output; MLP
_USUAL_BIASES = ("attention_bias", "attention_bias", "mlp_bias")
_BIAS_KEYS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "ernie4_5": ("use_bias", "use_bias", "use_bias"),
        "falcon": ("bias", "bias", "bias"),
        "glm": ("attention_bias", "", ""),
        "glm4": ("attention_bias", "", ""),
        "glm4_moe": ("attention_bias", "", ""),
        "gpt_neox": ("attention_bias", "attention_bias", ""),
        "gpt_oss": ("attention_bias", "attention_bias", ""),
        "phimoe": ("attention_bias", "attention_bias", ""),
        "qwen2_moe": ("qkv_bias", "", ""),
        "seed_oss": ("attention_bias", "attention_out_bias", "mlp_bias"),
        "stablelm": ("use_qkv_bias", "", ""),
        "starcoder2": ("use_bias", "use_bias", "use_bias"),
        **dict.fromkeys(("cohere", "cohere2", "deepseek_v2", "deepseek_v3"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("nemotron_h", "kimi_linear"), ("", "", "mlp_bias")),
        **dict.fromkeys(("lfm2", "lfm2_moe", "minimax"), ("", "", "")),
        **dict.fromkeys(("olmo_hybrid", "granitemoehybrid"), ("attention_bias", "attention_bias", "")),
        **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), ("attention_bias", "attention_bias", "mlp_bias")),
        # these classes read no such key
        **dict.fromkeys(("qwen2", "phi", "phi3", "gptj", "codegen", "gpt2", "gpt_neo", "bloom", "mpt"), ("", "", "")),
        **dict.fromkeys(("t5", "mt5", "bart", "bert", "roberta", "distilbert", "dbrx", "persimmon"), ("", "", "")),
        **dict.fromkeys(("gemma2", "gemma3_text", "olmo", "olmo2", "olmo3"), ("attention_bias", "attention_bias", "")),
    }
)
#: families with experts: Hugging Face ignores these keys in others
MIXTURES = frozenset(
    (
        *(
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "glm4_moe",
            "glm_moe_dsa",
            "gpt_oss",
            "granitemoe",
            "granitemoeshared",
        ),
        *("llama4_text", "minimax_m2", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe"),
        *("granitemoehybrid", "kimi_linear", "lfm2_moe", "minimax", "nemotron_h", "qwen3_next", "qwen3_5_moe_text"),
    )
)
#: families with a gate of one output that scales the shared experts
GATED_SHARED = frozenset(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"))
#: families whose latent attention reads the keys that an indexer chooses (DeepSeek sparse attention)
INDEXED = frozenset(("deepseek_v32", "glm_moe_dsa"))
#: families with a window on every layer, if the configuration states one
_ALL_WINDOWED = frozenset(("mistral", "mixtral", "starcoder2", "phi3", "phimoe"))
#: families in which every n-th layer attends to all keys and the others have a window
_EVERY_NTH_FULL: Mapping[str, int] = MappingProxyType(
    {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "exaone4": 4}
)
_WINDOWED = ("sliding_attention", "chunked_attention")


def bias_keys(kind: str) -> tuple[str, str, str]:
    """Return the keys that state the biases of queries, keys and values, of the output and of the MLP."""
    return _BIAS_KEYS.get(kind, _USUAL_BIASES)


def window_layers(kind: str, raw: Raw, layers: int) -> int:
    """Return how many layers have the window that the configuration states."""
    types = raw.get("layer_types")
    if isinstance(types, list) and types:
        return sum(str(name) in _WINDOWED for name in types)
    if kind in _ALL_WINDOWED:
        return layers
    if kind.startswith("qwen"):
        first = raw.get("max_window_layers")
        return max(0, layers - int(28 if first is None else first)) if raw.get("use_sliding_window") else 0
    if kind == "llama4_text":
        return layers - layers // int(raw.get("no_rope_layer_interval") or 4)
    if kind == "gpt_neo":
        return _local_layers(raw.get("attention_types"), layers)
    if kind in _EVERY_NTH_FULL:
        given = raw.get("sliding_window_pattern")
        every = given if isinstance(given, int) and given > 0 else _EVERY_NTH_FULL[kind]
        return layers - layers // every
    return 0


def _local_layers(types: Any, layers: int) -> int:
    """Return GPT-Neo's layers with local attention: [[["global", "local"], 12]] repeats the pair 12 times."""
    if not isinstance(types, list):
        return layers // 2
    return sum(list(group[0]).count("local") * int(group[1]) for group in types)


def index_layers(raw: Raw, layers: int) -> int:
    """Return how many layers have an indexer of their own; the others take what the one before them chose."""
    types = raw.get("indexer_types")
    if isinstance(types, list) and types:
        return sum(str(name) == "full" for name in types)
    pattern = raw.get("index_topk_pattern")
    if isinstance(pattern, str):
        return pattern.count("F")
    every = max(1, int(raw.get("index_topk_freq") or 1))
    first = int(raw.get("index_skip_topk_offset") or 2)
    return sum(max(index - first + 1, 0) % every == 0 for index in range(layers))


def window(kind: str, raw: Raw) -> int:
    """Return the window of the layers that have one."""
    if kind == "gpt_neo":
        return int(raw.get("window_size") or 256)
    if kind == "llama4_text":
        return int(raw.get("attention_chunk_size") or 8192)
    return int(raw.get("sliding_window") or {"gemma2": 4096, "gemma3_text": 4096}.get(kind, 0))


#: families with another key for the number of their first layers whose MLP is dense
_FIRST_DENSE: Mapping[str, str] = MappingProxyType({"lfm2_moe": "num_dense_layers"})


def sparse_layers(kind: str, raw: Raw, layers: int) -> int:
    """Return how many layers of a mixture of experts have experts."""
    if kind == "llama4_text":
        chosen = raw.get("moe_layers")
        step = int(raw.get("interleave_moe_layer_step") or 1)
        return len(chosen) if isinstance(chosen, list) else len(range(step - 1, layers, step))
    first = int(raw.get(_FIRST_DENSE.get(kind, "first_k_dense_replace")) or 0)
    every = int(raw.get("moe_layer_freq") or 1) if isinstance(raw.get("moe_layer_freq"), int) else 1
    step = int(raw.get("decoder_sparse_step") or 1)
    dense = raw.get("mlp_only_layers") or ()
    chosen = (i for i in range(first, layers) if i % every == 0 and (i + 1) % step == 0 and i not in dense)
    return sum(1 for _ in chosen)


def _falcon(raw: Raw) -> dict[str, Any]:
    newer = bool(raw.get("new_decoder_architecture")) or raw.get("model_type") == "RefinedWeb"
    parallel = newer or bool(raw.get("parallel_attn", True))
    given = raw.get("num_ln_in_parallel_attn")
    return {
        "parallel_block": parallel,
        "norms": int(given or 2) if newer or not parallel else 1,
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


def _mpt(raw: Raw) -> dict[str, Any]:
    alibi = bool(raw.get("alibi", True))
    return {"learned_positions": not alibi}


def _olmo_hybrid(raw: Raw) -> dict[str, Any]:
    """OLMo-Hybrid states rotary positions without a base where it has none."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling")
    return {"rotary": not isinstance(rope, dict) or rope.get("rope_theta") is not None}


#: family -> the facts that its configuration changes
FACTS: Mapping[str, Callable[[Raw], dict[str, Any]]] = MappingProxyType(
    {
        "cohere": _cohere,
        "falcon": _falcon,
        "glm4_moe": lambda raw: {"qk_norm": bool(raw.get("use_qk_norm"))},
        "gpt_neox": lambda raw: {"parallel_block": bool(raw.get("use_parallel_residual", True))},
        "granitemoehybrid": lambda raw: {"rotary": raw.get("position_embedding_type") == "rope"},
        "lfm2_moe": lambda raw: {"router_bias": bool(raw.get("use_expert_bias", True))},
        "minimax_m2": lambda raw: {"qk_norm": bool(raw.get("use_qk_norm", True))},
        "mpt": _mpt,
        "olmo_hybrid": _olmo_hybrid,
        "mt5": _t5,
        "persimmon": lambda raw: {"qk_norm": bool(raw.get("qk_layernorm", True))},
        "phi": _phi,
        "phimoe": lambda raw: {"head_bias": bool(raw.get("lm_head_bias", True))},
        "stablelm": _stablelm,
        "t5": _t5,
    }
)
