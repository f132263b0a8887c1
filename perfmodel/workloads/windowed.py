"""Heads of layers with a window, where configurations state others for them than for layers that attend to all keys.

Every function takes the values of one configuration and returns dimensions of `ModelConfig`. They follow the classes of
Hugging Face's transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads.config_values import Values
from perfmodel.workloads.model_config import ModelConfig

#: what `ModelConfig` has of layers with a window alone
OWN = ("window_heads", "window_kv_heads", "window_head_dim", "window_value_dim")


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
        if one.heads % one.kv_heads
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
    {"gemma4_text": _gemma4, "gemma4_unified_text": _gemma4, "mimo_v2_flash": _mimo, "step3p5": _step}
)
