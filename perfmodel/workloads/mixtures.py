"""Which layers of a mixture of experts have experts, which have one dense MLP, and what every token visits.

Every function takes the keys of one configuration. They follow the classes of Hugging Face's transformers 4.57, or 5.24
for families that came later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads import hybrids
from perfmodel.workloads.config_values import MOST_LAYERS, WrongValueError, stated_number, stated_places

Raw = Mapping[str, Any]

#: families with experts: Hugging Face ignores these keys in others
MIXTURES = frozenset(
    (
        *(
            "afmoe",
            "bailing_moe",
            "cohere2_moe",
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "deepseek_v4",
            "dots1",
            "ernie4_5_moe",
        ),
        *("exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "glm_moe_dsa", "gpt_oss"),
        *("granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared", "hunyuan_v1_moe", "hy_v3"),
        *("gemma4_text", "jamba", "kimi_linear", "kolibri1", "lfm2_moe", "llama4_text", "longcat_flash", "mellum"),
        *("mimo_v2_flash", "minimax", "minimax_m2", "minimax_m3_vl_text", "mistral4", "step3p5"),
        *("mixtral", "nemotron_h", "olmoe", "phimoe", "qwen2_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next"),
        *("sarvam_mla", "sarvam_moe", "solar_open"),
    )
)
#: how lists of layers name those with experts; DeepSeek-V4's first ones choose them by a table of tokens
_SPARSE = ("sparse", "moe", "hash_moe")
#: families with a gate of one output that scales the shared experts
GATED_SHARED = frozenset(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"))
#: keys under which configurations state how many experts every token of a layer visits
_SHARED_KEYS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
#: how many these are in the families that need not state it
_SHARED = MappingProxyType(
    {
        **dict.fromkeys(("exaone_moe", "glm4_moe_lite", "glm4v_moe_text", "hy_v3", "mistral4"), 1),
        **dict.fromkeys(("deepseek_v4", "sarvam_mla", "sarvam_moe", "solar_open"), 1),
        **dict.fromkeys(("afmoe", "ernie4_5_moe"), 2),
    }
)
#: layers with a dense MLP before those with experts, in the families that need not state them
_FIRST_DENSE = MappingProxyType(
    dict.fromkeys(
        (
            "afmoe",
            "exaone_moe",
            "glm4_moe_lite",
            "glm4v_moe_text",
            "hy_v3",
            "mimo_v2_flash",
            "sarvam_mla",
            "sarvam_moe",
        ),
        1,
    )
)


#: families whose layers are two each: attention and a dense MLP twice, with experts beside the first of them
PAIRED = frozenset(("longcat_flash",))


def dense_places(kind: str, raw: Raw, layers: int) -> tuple[int, ...]:
    """Return which layers of a mixture of experts have one dense MLP in place of experts, counted from 0."""
    sparse = set(_sparse_places(kind, raw, layers))
    return tuple(index for index in range(layers) if index not in sparse)


def _sparse_places(kind: str, raw: Raw, layers: int) -> Iterable[int]:
    """Return which layers of a mixture of experts have experts."""
    if kind == "llama4_text":
        step = stated_number(raw, "interleave_moe_layer_step", 1, least=1)
        chosen = stated_places(raw, "moe_layers")
        return range(step - 1, layers, step) if raw.get("moe_layers") is None else chosen
    types = raw.get("mlp_layer_types")
    if isinstance(types, list) and types:
        return (index for index, name in enumerate(types) if name in _SPARSE)
    if kind == "ernie4_5_moe":
        return _ernie_layers(raw, layers)
    if isinstance(listed := raw.get("moe_layer_freq"), list):
        return (index for index, sparse in enumerate(listed) if sparse)
    if kind == "step3p5":
        return _step_layers(raw, layers)
    if kind in PAIRED:
        return range(0, layers, 2)
    if kind == "jamba":
        return (index for index in range(layers) if hybrids.periodic(raw, "expert", 2, 1, index))
    first = first_dense(kind, raw, layers)
    every = stated_number(raw, "moe_layer_freq", 1, least=1)
    step = stated_number(raw, "decoder_sparse_step", 1, least=1)
    dense = stated_places(raw, "mlp_only_layers")
    return (i for i in range(first, layers) if i % every == 0 and (i + 1) % step == 0 and i not in dense)


def first_dense(kind: str, raw: Raw, layers: int) -> int:
    """Return how many layers before those with experts have a dense MLP."""
    if kind in ("flex_olmo", "hunyuan_v1_moe", "solar_open"):
        return 0
    key = "num_dense_layers" if kind in ("afmoe", "lfm2_moe") else "first_k_dense_replace"
    return stated_number(raw, key, min(layers, _FIRST_DENSE.get(kind, 0)), most=layers)


def _ernie_layers(raw: Raw, layers: int) -> Iterable[int]:
    """Return ERNIE's layers with experts: every n-th from a first one to a last one, -1 for the end."""
    first = stated_number(raw, "moe_layer_start_index", 1)
    last = stated_number(raw, "moe_layer_end_index", -1, least=-1)
    every, last = stated_number(raw, "moe_layer_interval", 1, least=1), layers - 1 if last == -1 else last
    return (index for index in range(layers) if (index + 1) % every == 0 and first <= index <= last)


def _step_layers(raw: Raw, layers: int) -> Iterable[int]:
    """Return Step's layers with experts: those that are listed, in words or numbers, or all from the fourth on."""
    listed = raw.get("moe_layers_enum")
    if listed is None:
        return range(3, layers)
    numbers = [number.strip() for number in listed.split(",")] if isinstance(listed, str) else [*map(str, listed)]
    if not all(number.isdigit() for number in numbers if number):
        raise WrongValueError(f"moe_layers_enum = {listed!r} is not a list of layers, counted from 0")
    return (int(number) for number in numbers if number)


def shared_experts(kind: str, raw: Raw) -> int:
    """Return how many experts, of a routed one's width, every token of a layer visits."""
    if kind == "hunyuan_v1_moe":
        return 1
    key = next((key for key in _SHARED_KEYS if raw.get(key) is not None), _SHARED_KEYS[0])
    return stated_number(raw, key, _SHARED.get(kind, 0), most=MOST_LAYERS)
