"""What configurations of hybrids state: which of their layers keep a state, attend to keys and have an MLP.

Every function takes the keys of one configuration. They follow the classes of Hugging Face's transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        chosen = kimi_layers(raw).get("full_attn_layers")
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


def kimi_layers(raw: Raw) -> Mapping[str, Any]:
    """Return what a configuration of Kimi Linear states of its layers: their kinds, heads and sizes; empty without."""
    found = raw.get("linear_attn_config")
    return found if isinstance(found, dict) else {}
