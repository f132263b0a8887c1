"""What configurations of hybrids state: which layers keep a state, attend to keys and have an MLP, and their sizes.

Every function takes the keys of one configuration. They follow the classes of Hugging Face's transformers 5.24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from perfmodel.workloads import rwkv
from perfmodel.workloads.config_values import WrongValueError, stated_number, stated_places
from perfmodel.workloads.state_layer import Rule

Raw = Mapping[str, Any]

#: families with such layers -> their rule
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "bamba": Rule.MAMBA2,
        "falcon_h1": Rule.MAMBA2,
        "falcon_mamba": Rule.MAMBA1,
        "granitemoehybrid": Rule.MAMBA2,
        "hymba": Rule.MAMBA1,
        "jamba": Rule.MAMBA1,
        "kimi_linear": Rule.KIMI_DELTA,
        "lfm2": Rule.SHORT_CONV,
        "lfm2_moe": Rule.SHORT_CONV,
        "mamba": Rule.MAMBA1,
        "mamba2": Rule.MAMBA2,
        "minimax": Rule.LIGHTNING,
        "nemotron_h": Rule.MAMBA2,
        "olmo_hybrid": Rule.GATED_DELTA,
        "qwen3_5_moe_text": Rule.GATED_DELTA,
        "qwen3_5_text": Rule.GATED_DELTA,
        "plamo2": Rule.PLAMO2,
        "qwen3_next": Rule.GATED_DELTA,
        **dict.fromkeys(("rwkv5", "rwkv6"), Rule.RWKV6),
        "rwkv7": Rule.RWKV7,
        # two heads of channels, each with keys and queries of its own
        "zamba": Rule.MAMBA1,
        "zamba2": Rule.MAMBA2,
    }
)
#: families -> dtype of their states where a configuration states none: those of Qwen3.5 state fp32, vLLM takes it for
#: Nemotron-H (pull request 39032) and for Kimi's delta rule (MambaStateDtypeCalculator.kda_state_dtype)
STATE_DTYPES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("kimi_linear", "nemotron_h", "qwen3_5_moe_text", "qwen3_5_text"), "fp32")
)
#: keys under which configurations state it: Qwen3.5's, Nemotron-H's
STATE_DTYPE_KEYS = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
#: names that they have for it -> perfmodel's
TORCH_DTYPES: Mapping[str, str] = MappingProxyType({"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"})
#: families whose layers keep a state and nothing else: no keys, and no MLP
STATES_ALONE = frozenset(("falcon_mamba", "mamba", "mamba2"))
#: those, and families whose layers keep a state and have an MLP: no layer attends to keys
WITHOUT_KEYS = STATES_ALONE | frozenset(rwkv.SIZES)
#: families in which every layer attends to keys and keeps a state, both on the same input, with what they give summed
JOINT = frozenset(("falcon_h1", "hymba"))
#: families whose layers that attend to keys have a window
WINDOWED = frozenset(("hymba", "plamo2"))
#: families whose layers all keep a state, some of them behind a block of attention and an MLP that they share
BLOCKS = frozenset(("zamba", "zamba2"))
#: how the classes of these families list a layer with both
_JOINT_KIND = "hybrid"
#: kinds of layer as configurations of the other families list them -> what they are
STATE, ATTENTION, MLP, EXPERTS = "state", "attention", "MLP", "experts"
KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("linear_attention", "mamba", "conv"), STATE),
        **dict.fromkeys(("full_attention", "attention"), ATTENTION),
        "mlp": MLP,
        "moe": EXPERTS,
    }
)
#: letters of Nemotron-H's pattern -> the kinds that they stand for
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
#: families that list their layers -> those of a configuration without a list, none where its class needs one
UNLISTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lfm2_moe": (),
        "nemotron_h": ("mamba", "moe", "attention", "mlp"),
        # Zamba2-2.7B
        "zamba2": (
            "mamba",
            *(*("mamba",) * 5, "hybrid") * 7,
            *(*("mamba",) * 4, "hybrid", *("mamba",) * 3, "hybrid", *("mamba",) * 2),
        ),
    }
)


@dataclass(frozen=True)
class Layers:
    """How many layers a hybrid has.

    Attributes
    ----------
    total : layers, each with attention or a state.
    states : of them, with a state.
    joint : of these, with attention as well.
    bare : of them, without an MLP.
    sparse : of them, with experts; None where other keys tell it.
    """

    total: int
    states: int
    bare: int = 0
    sparse: int | None = None
    joint: int = 0


def listing(raw: Raw) -> tuple[str, list[str]]:
    """Return the key under which a configuration lists the kinds of its layers, and these, none without a list."""
    for key in ("layer_types", "layers_block_type"):
        types = raw.get(key)
        if isinstance(types, list) and types:
            return key, [str(name) for name in types]
    pattern = raw.get("hybrid_override_pattern")
    letters = pattern if isinstance(pattern, str) else ""
    return "hybrid_override_pattern", [_LETTERS.get(letter, letter) for letter in letters]


def listed(raw: Raw) -> list[str]:
    """Return the kinds of layer that a configuration lists, none where other keys tell them."""
    return listing(raw)[1]


def unknown_kinds(kind: str, raw: Raw) -> list[str]:
    """Return the kinds of layer in a configuration of one of these families that its class has not."""
    known = (_JOINT_KIND,) if kind in JOINT else ("mamba", "linear_attention", _JOINT_KIND) if kind in BLOCKS else KINDS
    return sorted({name for name in listed(raw) if name not in known})


def layers_of(kind: str, raw: Raw, layers: int) -> Layers:
    """Return the layers of a hybrid; ``layers`` is what the configuration states as their number.

    Nemotron-H lists attention, states and MLPs as layers of their own: an MLP belongs to the one before it here. A
    layer of other families has an MLP or experts within it.
    """
    if kind in JOINT:
        return Layers(layers, layers, joint=layers)
    if kind in WITHOUT_KEYS:
        return Layers(layers, layers, bare=layers if kind in STATES_ALONE else 0)
    if kind in BLOCKS:
        kinds_listed = listed(raw) or UNLISTED.get(kind)
        joint = kinds_listed.count(_JOINT_KIND) if kinds_listed else _zamba_blocks(raw, layers)
        return Layers(layers, layers, bare=layers - joint, joint=joint)
    kinds = _kinds(kind, raw, layers)
    mixers = kinds.count(ATTENTION) + kinds.count(STATE)
    mlps = kinds.count(MLP) + kinds.count(EXPERTS)
    if not mlps and kind != "nemotron_h":
        return Layers(len(kinds), kinds.count(STATE))
    return Layers(mixers, kinds.count(STATE), mixers - mlps, kinds.count(EXPERTS))


def _zamba_blocks(raw: Raw, layers: int) -> int:
    """Return how many of Zamba's layers have a block before them: the third, and then one in a period."""
    return 1 + sum(periodic(raw, "attn", 6, 4, index) for index in range(layers - 3))


def _kinds(kind: str, raw: Raw, layers: int) -> list[str]:
    """Return what each layer of a hybrid is."""
    if found := listed(raw) or UNLISTED.get(kind):
        return [KINDS[name] for name in found]
    return [ATTENTION if _attends(kind, raw, index) else STATE for index in range(layers)]


def _attends(kind: str, raw: Raw, index: int) -> bool:
    """Return whether a layer attends to keys in a configuration that lists no kinds."""
    if kind == "bamba":
        return index in (raw.get("attn_layer_indices") or ())
    if kind == "jamba":
        return periodic(raw, "attn", 8, 4, index)
    if kind == "lfm2":
        chosen = raw.get("full_attn_idxs")
        return chosen is None or index in chosen
    if kind == "minimax":
        chosen = raw.get("attn_type_list")
        return bool(chosen[index]) if isinstance(chosen, list) else index % 2 == 0
    if kind == "kimi_linear":
        chosen = _kimi(raw).get("full_attn_layers")
        return index + 1 in chosen if chosen is not None else bool(index) and index % 4 == 0
    if kind == "granitemoehybrid":
        return False
    if kind == "plamo2":
        return plamo_attends(raw, index)
    return (index + 1) % stated_number(raw, "full_attention_interval", 4, least=1) == 0


def plamo_attends(raw: Raw, index: int) -> bool:
    """Return whether a layer of PLaMo 2 attends to keys: the middle one of a step, or the last where a step is longer.

    Where Mamba is disabled, all of them do.
    """
    step, layers = stated_number(raw, "mamba_step", 2, least=2), stated_number(raw, "num_hidden_layers", 32, least=1)
    if raw.get("mamba_enabled") is False:
        return True
    return index == layers - 1 if layers <= step // 2 else index % step == step // 2


def windows_between(kind: str, raw: Raw, layers: int) -> int:
    """Return how many of a hybrid's layers that attend to keys have a window: Hymba's and PLaMo 2's, but for a list."""
    if kind not in WINDOWED:
        return 0
    if kind == "hymba":
        return layers - len({*stated_places(raw, "global_attn_idx")} & {*range(layers)})
    full = stated_places(raw, "full_attention_idx")
    return sum(plamo_attends(raw, index) and index not in full for index in range(layers))


def reused_keys(raw: Raw, layers: int) -> dict[str, Any]:
    """Return how many of Hymba's layers attend to keys and values of a layer before them, and those with a window.

    ``kv_reuse_group`` lists groups of layers, of which the first computes them.

    Raises
    ------
    WrongValueError
        For a group that is no list of layers, and for sharing that is stated in another way.
    """
    groups = raw.get("kv_reuse_group")
    groups = [] if groups is None else groups
    known = isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)
    if not known or not all(one in range(layers) for group in groups for one in group):
        raise WrongValueError(f"kv_reuse_group = {groups!r} is not a list of groups of layers, counted from 0")
    for key in ("kv_reuse_every_i_layer", "kv_weight_reuse"):
        if raw.get(key) not in (None, -1, False):
            raise WrongValueError(f"{key} = {raw[key]!r} shares keys beside kv_reuse_group: not modelled")
    full = stated_places(raw, "global_attn_idx")
    borrowing = {one for group in groups for one in group[1:]}
    return {
        "kv_shared_layers": len(borrowing),
        "kv_shared_window_layers": sum(one not in full for one in borrowing),
        "memory_tokens": stated_number(raw, "num_memory_tokens", 0),
    }


def periodic(raw: Raw, name: str, period: int, offset: int, index: int) -> bool:
    """Return whether a layer is one of those that come once in a period, as Jamba states them, with its defaults."""
    every = stated_number(raw, f"{name}_layer_period", period, least=1)
    first = stated_number(raw, f"{name}_layer_offset", offset, most=every - 1)
    return index % every == first


def _kimi(raw: Raw) -> Mapping[str, Any]:
    found = raw.get("linear_attn_config")
    return found if isinstance(found, dict) else {}


def _mamba2(raw: Raw) -> dict[str, Any]:
    return _mamba2_heads(raw, _expanded(raw))


def _falcon_h1(raw: Raw) -> dict[str, Any]:
    """Falcon-H1 states the width itself; its class takes the expanded one only where that is null."""
    width = raw.get("mamba_d_ssm", 1024)
    return _mamba2_heads(raw, _expanded(raw) if width is None else int(width))


def _expanded(raw: Raw) -> int:
    return int(float(raw.get("mamba_expand") or 2) * int(raw.get("hidden_size") or 0))


def _mamba2_heads(raw: Raw, width: int) -> dict[str, Any]:
    """Mamba-2's heads may be left to follow from its width."""
    heads = raw.get("mamba_n_heads") or 128
    given = raw.get("mamba_d_head")
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": raw.get("mamba_n_groups") or 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or 256,
        "linear_value_head_dim": given if isinstance(given, int) else width // max(1, int(heads)),
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or 4,
    }


def _zamba2(raw: Raw) -> dict[str, Any]:
    """Zamba2's first configurations have other names for its sizes."""
    expanded = raw.get("mamba_expand") or raw.get("expansion_factor") or 2
    width = int(float(expanded) * int(raw.get("hidden_size") or 2560))
    heads = raw.get("n_mamba_heads") or width // int(raw.get("mamba_headdim") or width // 8)
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": raw.get("mamba_ngroups") or 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or raw.get("state_size") or 64,
        "linear_value_head_dim": width // max(1, int(heads)),
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or raw.get("conv_dimension") or 4,
    }


def _mamba2_alone(raw: Raw) -> dict[str, Any]:
    return {
        "linear_num_value_heads": raw.get("num_heads") or 128,
        "linear_num_key_heads": raw.get("n_groups") or 8,
        "linear_key_head_dim": raw.get("state_size") or 128,
        "linear_value_head_dim": raw.get("head_dim") or 64,
        "linear_conv_kernel_dim": raw.get("conv_kernel") or 4,
    }


def _mamba1(raw: Raw) -> dict[str, Any]:
    """Mamba of the first kind has a head for each channel: ``intermediate_size`` where stated, else the expanded."""
    channels = raw.get("intermediate_size") or int(float(raw.get("expand") or 2) * int(raw.get("hidden_size") or 768))
    return _channels(raw, channels, raw.get("state_size"), raw.get("conv_kernel"), raw.get("time_step_rank"))


def _jamba(raw: Raw) -> dict[str, Any]:
    return _channels(raw, _expanded(raw), raw.get("mamba_d_state"), raw.get("mamba_d_conv"), raw.get("mamba_dt_rank"))


def _channels(raw: Raw, channels: Any, state: Any, taps: Any, rank: Any) -> dict[str, Any]:
    return {
        "linear_num_value_heads": channels,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": state or 16,
        "linear_value_head_dim": 1,
        "linear_conv_kernel_dim": taps or 4,
        "linear_rank": math.ceil(int(raw.get("hidden_size") or 768) / 16) if rank in (None, "auto") else rank,
    }


def _plamo2(raw: Raw) -> dict[str, Any]:
    """PLaMo 2's steps have a rank of a sixteenth of the width, 64 at least."""
    return {
        "linear_num_value_heads": raw.get("mamba_num_heads") or 64,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or 64,
        "linear_value_head_dim": raw.get("hidden_size_per_head") or 128,
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or 4,
        "linear_rank": max(64, int(raw.get("hidden_size") or 4096) // 16),
    }


def _nemotron_h(raw: Raw) -> dict[str, Any]:
    return {
        "linear_num_value_heads": raw.get("mamba_num_heads") or 128,
        "linear_num_key_heads": raw.get("n_groups") or raw.get("mamba_n_groups") or 8,
        "linear_key_head_dim": raw.get("ssm_state_size") or 128,
        "linear_value_head_dim": raw.get("mamba_head_dim") or 64,
        "linear_conv_kernel_dim": raw.get("conv_kernel") or raw.get("mamba_d_conv") or 4,
    }


def _kimi_linear(raw: Raw) -> dict[str, Any]:
    own = _kimi(raw)
    heads = own.get("num_heads") or raw.get("linear_num_heads") or 32
    size = own.get("head_dim") or raw.get("linear_head_dim") or 128
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": own.get("short_conv_kernel_size") or raw.get("linear_conv_kernel_dim") or 4,
    }


def _minimax(raw: Raw) -> dict[str, Any]:
    heads, hidden = int(raw.get("num_attention_heads") or 32), int(raw.get("hidden_size") or 4096)
    size = raw.get("head_dim") or hidden // heads
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
    }


def _lfm2(raw: Raw) -> dict[str, Any]:
    """LFM2's convolution passes over the residual stream, whose columns GPUs share out as the heads of attention."""
    heads = int(raw.get("num_attention_heads") or 32)
    size = int(raw.get("hidden_size") or 2560) // heads
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": raw.get("conv_L_cache") or 3,
    }


def _olmo_hybrid(raw: Raw) -> dict[str, Any]:
    heads, hidden = int(raw.get("num_attention_heads") or 30), int(raw.get("hidden_size") or 3840)
    keys = raw.get("linear_num_key_heads") or heads
    size = raw.get("linear_key_head_dim") or int(0.75 * hidden / int(keys))
    return {
        "linear_num_value_heads": raw.get("linear_num_value_heads") or heads,
        "linear_num_key_heads": keys,
        "linear_key_head_dim": size,
        "linear_value_head_dim": raw.get("linear_value_head_dim") or 2 * int(size),
        "linear_conv_kernel_dim": raw.get("linear_conv_kernel_dim") or 4,
    }


def _qwen(raw: Raw) -> dict[str, Any]:
    usual = {
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    return {key: value if raw.get(key) is None else raw[key] for key, value in usual.items()}


#: family -> the sizes of its layers with a state, under the keys that Qwen3-Next has for them
SIZES: Mapping[str, Callable[[Raw], dict[str, Any]]] = MappingProxyType(
    {
        "bamba": _mamba2,
        "falcon_h1": _falcon_h1,
        "falcon_mamba": _mamba1,
        "granitemoehybrid": _mamba2,
        "hymba": _jamba,
        "jamba": _jamba,
        "kimi_linear": _kimi_linear,
        "lfm2": _lfm2,
        "lfm2_moe": _lfm2,
        "mamba": _mamba1,
        "mamba2": _mamba2_alone,
        "minimax": _minimax,
        "nemotron_h": _nemotron_h,
        "olmo_hybrid": _olmo_hybrid,
        "qwen3_5_moe_text": _qwen,
        "qwen3_5_text": _qwen,
        "plamo2": _plamo2,
        "qwen3_next": _qwen,
        **rwkv.SIZES,
        "zamba": _jamba,
        "zamba2": _zamba2,
    }
)
