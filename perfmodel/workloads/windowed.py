"""What configurations state of windows: how many keys one has, which layers have it, and heads of their own.

They follow the classes of Hugging Face's transformers 4.57, or 5.24 for families that came later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads.compressed import COMPRESSED, compressed_layers
from perfmodel.workloads.config_values import Values, WrongValueError, stated_number
from perfmodel.workloads.mixtures import Raw, first_dense
from perfmodel.workloads.model_config import ModelConfig

#: families with a window on every layer, if the configuration states one
_ALL_WINDOWED = frozenset(("mistral", "ministral3", "mixtral", "starcoder2", "phi3", "phi4_multimodal", "phimoe"))
#: families in which every n-th layer attends to all keys and the others have a window
_EVERY_NTH_FULL: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("gemma3_text", "gemma4_text", "gemma4_unified_text"), 6),
        **dict.fromkeys(("gemma3n_text", "kolibri1"), 5),
        **dict.fromkeys(("gemma2", "gpt_oss", "vaultgemma"), 2),
        **dict.fromkeys(("afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "olmo3"), 4),
    }
)
#: families whose last layer attends to all keys, whatever is said of it
_LAST_FULL = frozenset(("gemma4_text", "gemma4_unified_text"))
#: families in which the first layer, or the last, and every fourth from it attend to all keys, others have a window
_FOURTHS_FROM_AN_END_FULL = ("cwm", "granite_swa", "granitemoe_swa", "muse_glimmer_text")
_WINDOWED = ("sliding_attention", "chunked_attention")
#: families in which last layers may attend to the keys of others, and layers have embeddings of their own
SHARING = frozenset(("gemma3n_text", "gemma4_text", "gemma4_unified_text"))
#: how many layers attend to the keys of others in the families that need not state it
_SHARED = {"gemma3n_text": 15}
#: what `ModelConfig` has of layers with a window alone
OWN = ("window_heads", "window_kv_heads", "window_head_dim", "window_value_dim")


def window_keys(kind: str, raw: Raw) -> int:
    """Return the most keys of a query in the layers with a window; 0 where none is stated."""
    if kind == "gpt_neo":
        return stated_number(raw, "window_size", 256, least=1)
    if kind == "llama4_text":
        return stated_number(raw, "attention_chunk_size", 8192, least=1)
    if kind == "mimo_v2_flash" and raw.get("sliding_window_size"):
        return stated_number(raw, "sliding_window_size", 0) + 1  # it counts the keys before the query
    if kind == "hymba":  # its memory tokens stay beside the last ones
        return stated_number(raw, "sliding_window", 1024, least=1) + stated_number(raw, "num_memory_tokens", 0)
    if kind == "plamo2":
        return stated_number(raw, "attention_window_size", 2048, least=1)
    key = "sliding_window" if raw.get("sliding_window") else "sliding_window_size"
    return stated_number(raw, key, {"gemma2": 4096, "gemma3_text": 4096}.get(kind, 0))


def window_layers(kind: str, raw: Raw, layers: int) -> int:
    """Return how many layers have the window that the configuration states."""
    if kind in COMPRESSED:
        found = compressed_layers(raw, layers)
        return layers - found["index_layers"] - found["pool_layers"]
    last = kind in _LAST_FULL
    types, layers = raw.get("layer_types"), layers - last
    if isinstance(types, list) and types:
        return sum(str(name) in _WINDOWED for name in types[: len(types) - last])
    if kind in _ALL_WINDOWED:
        return layers
    if kind == "mimo_v2_flash":
        pattern = raw.get("hybrid_layer_pattern")
        return sum(map(bool, pattern)) if isinstance(pattern, list) else layers - 1 - layers // 6
    if kind in _FOURTHS_FROM_AN_END_FULL:
        return layers - (layers + 3) // 4
    if kind.startswith("qwen") or kind == "dots1":
        first, used = stated_number(raw, "max_window_layers", 62 if kind == "dots1" else 28), kind == "dots1"
        return max(0, layers - first) if used or raw.get("use_sliding_window") else 0
    if kind == "llama4_text":
        return layers - layers // stated_number(raw, "no_rope_layer_interval", 4, least=1)
    if kind == "gpt_neo":
        return _local_layers(raw.get("attention_types"), layers)
    return _alternating(kind, raw, layers) if kind in _EVERY_NTH_FULL else 0


def _alternating(kind: str, raw: Raw, layers: int) -> int:
    """Return how many layers have a window where every n-th attends to all keys."""
    given = raw.get("global_attn_every_n_layers" if kind == "afmoe" else "sliding_window_pattern")
    if isinstance(given, str) and given:
        # EXAONE's patterns, "LLLG" of local and global layers, end with a global one wherever they are cut
        return sum(given[index % len(given)] == "L" for index in range(layers - 1))
    every = given if isinstance(given, int) and given > 0 else _EVERY_NTH_FULL[kind]
    if kind == "cohere2_moe":
        # its dense layers have a pattern of their own
        dense = first_dense(kind, raw, layers)
        dense_every = stated_number(raw, "prefix_dense_sliding_window_pattern", 1, least=1)
        return layers - dense // dense_every - (layers - dense) // every
    return layers - layers // every


def _local_layers(types: Any, layers: int) -> int:
    """Return GPT-Neo's layers with local attention: [[["global", "local"], 12]] repeats the pair 12 times."""
    if types is None:
        return layers // 2
    try:
        listed = [name for names, count in types for name in [*names] * min(count, layers + 1)]
    except (TypeError, ValueError):
        listed = []
    if len(listed) != layers or not {*listed} <= {"global", "local"}:
        raise WrongValueError(
            f'attention_types = {types!r} does not say "global" or "local" of each of {layers} layers, as '
            '[[["global", "local"], 12]] does of 24'
        )
    return listed.count("local")


def heads_problem(config: ModelConfig) -> str:
    """Return what is impossible about the heads of a model, in layers with a window and in others, or ""."""
    stated = [f"{name} = {getattr(config, name)}" for name in ("window_layers", *OWN) if getattr(config, name)]
    if stated and not config.window:
        return f"{' and '.join(stated)}, and the model has no window: give window too, or leave this out"
    kinds = {"heads": config} if config.windowed is config else {
        "heads of layers without a window": config, "heads of layers with a window": config.windowed
    }  # fmt: skip
    wrong = (
        f"{of} ({one.heads}) are not a multiple of key and value heads ({one.kv_heads})"
        for of, one in kinds.items()
        if one.kv_heads and one.heads % one.kv_heads
    )
    return next(wrong, "")


def _gemma4(values: Values) -> dict[str, Any]:
    """Gemma 4's layers without a window have larger heads, and where keys are values, too, their own number of them."""
    shared = values.flag("attention_k_eq_v", False)
    heads = values.size("kv_heads", 4)
    own = values.of(("num_global_key_value_heads",), "key heads without a window", heads) if shared else heads
    return {
        "head_dim": values.of(("global_head_dim",), "size of a head without a window", 512),
        "kv_heads": own,
        "window_kv_heads": heads,
        "window_head_dim": values.size("head_dim", 256),
        "keys_are_values": shared,
    }


def shared_keys(values: Values, layers: int) -> dict[str, Any]:
    """Return Gemma's layers with the keys and values of others, and the embeddings that layers have of their own.

    Raises
    ------
    WrongValueError
        Where no layer before them has a window, or none attends to all keys, as theirs do.
    """
    raw = values.raw
    shared = stated_number(raw, "num_kv_shared_layers", _SHARED.get(values.kind, 0), most=layers - 1)
    own = stated_number(
        raw, "hidden_size_per_layer_input", 0 if str(raw.get("model_type")).startswith("gemma4_u") else 256
    )
    types, every = raw.get("layer_types"), raw.get("sliding_window_pattern")
    every = every if isinstance(every, int) and every > 0 else _EVERY_NTH_FULL[values.kind]
    listed = [str(name) in _WINDOWED for name in types] if isinstance(types, list) and types else []
    windowed = listed or [bool((index + 1) % every) for index in range(layers)]
    windowed = [*windowed[:-1], windowed[-1] and values.kind not in _LAST_FULL]
    before, after = windowed[: layers - shared], windowed[layers - shared :]
    if not {*after} <= {*before}:
        raise WrongValueError(f"num_kv_shared_layers = {shared} leaves no layer of some kind whose keys others share")
    double = values.flag("use_double_wide_mlp", False) and shared > 0
    return {
        "kv_shared_layers": shared,
        "kv_shared_window_layers": sum(after),
        "kv_shared_ffn": 2 * values.size("ffn") if double else 0,
        "layer_embedding": own,
        "layer_embedding_vocab": values.of(("vocab_size_per_layer_input",), "vocab of layers' embeddings", 262_144)
        if own
        else 0,
    }


def _hymba(values: Values) -> dict[str, Any]:
    """Hymba's values are as wide as the channels of its states, together."""
    heads, expanded = values.size("heads"), float(values.raw.get("mamba_expand") or 2)
    return {"value_head_dim": int(expanded * values.size("hidden")) // heads}


def _mimo(values: Values) -> dict[str, Any]:
    """MiMo-V2-Flash has twice as many key heads in layers with a window."""
    return {
        "value_head_dim": values.size("value_head_dim", 128),
        "window_heads": values.of(("swa_num_attention_heads",), "heads of a window", values.size("heads", 64)),
        "window_kv_heads": values.of(
            ("swa_num_key_value_heads",), "key heads of a window", 2 * values.size("kv_heads", 4)
        ),
        "window_head_dim": values.of(("swa_head_dim",), "size of a head of a window", values.size("head_dim", 192)),
        "window_value_dim": values.of(
            ("swa_v_head_dim",), "size of a value of a window", values.size("value_head_dim", 128)
        ),
    }


def _step(values: Values) -> dict[str, Any]:
    """Step 3.5 has more query heads in layers with a window."""
    other = values.raw.get("attention_other_setting")
    stated = other.get("num_attention_heads") if isinstance(other, dict) else None
    heads = values.size("heads", 64) if stated is None else stated
    return {"window_heads": values.of(("num_sliding_attention_heads",), "heads of a window", heads)}


#: families with such layers -> what their configurations state
HEADS: Mapping[str, Callable[[Values], dict[str, Any]]] = MappingProxyType(
    {
        "gemma4_text": _gemma4,
        "gemma4_unified_text": _gemma4,
        "hymba": _hymba,
        "mimo_v2_flash": _mimo,
        "plamo2": lambda values: {"head_dim": values.of(("hidden_size_per_head",), "size of a head", 128)},
        "step3p5": _step,
    }
)
