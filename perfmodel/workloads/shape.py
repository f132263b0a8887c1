"""A model by its shape: ``layers=32 hidden=4096 heads=32 kv_heads=8 ffn=14336 vocab=128256``."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import PerfModelError, UsageError, unknown_name
from perfmodel.workloads import rwkv
from perfmodel.workloads.architectures import ARCHITECTURES, Architecture
from perfmodel.workloads.hybrids import JOINT, RULES, STATE_DTYPES, STATES_ALONE, WITHOUT_KEYS
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.model_shape import group_problem
from perfmodel.workloads.state_layer import DTYPES, Rule
from perfmodel.workloads.windowed import heads_problem

#: dimensions that every shape needs, and those that only layers which attend to keys do
NEEDED, _OF_ATTENTION = ("layers", "hidden", "heads", "vocab"), ("heads",)
_ABOVE_ZERO = (
    *(*NEEDED, "kv_heads", "head_dim", "ffn", "embedding_dim", "moe_every"),
    *("index_ratio", "residual_streams"),
)
#: the largest size of anything in a model
_LARGEST, _MOST_LAYERS = 10**9, 100_000
_NORMS = {"rms": True, "ln": False}
_TEXTS = ("type", "norm", "activation", "name", "stored", "linear_rule", "linear_state_dtype")
_OWN = ("type", "norm", "bias", "moe_every")
_FACTS = tuple(field.name for field in dataclasses.fields(Architecture))
_NO_SIZES = ("model_type", "facts", "dense_at", "stored_words", "remarks")
_SIZES = tuple(f.name for f in dataclasses.fields(ModelConfig) if f.name not in _NO_SIZES)
KEYS = tuple(dict.fromkeys((*_OWN, *_SIZES, *_FACTS)))
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_FLAGS = frozenset(f.name for cls in (Architecture, ModelConfig) for f in dataclasses.fields(cls) if "bool" in f.type)
#: Llama widens a gated MLP to 8/3 of the hidden size, in multiples of this (Touvron et al. 2023, arXiv 2302.13971)
_GATED_STEP = 256


def model_from_shape(text: str) -> ModelConfig:
    """Return a model from the words of its shape, as in ``layers=32 hidden=4096 heads=32 vocab=32000``.

    Parameters
    ----------
    text : ``key=value``, separated by spaces or commas: the attributes of `ModelConfig` and the facts of
        `Architecture`, ``type`` (a model type of Hugging Face whose facts hold), ``norm`` (rms or ln), ``bias`` and
        ``moe_every`` (2: every second layer has experts, the others a dense MLP, as in Llama 4 Maverick).
        layers, hidden, heads and vocab are needed, but no heads where all layers keep a state alone. The rest is as in
        Llama: gated MLP, RMSNorm, rotary positions, no biases; with ``gated=false norm=ln rotary=false`` as in GPT.

    Raises
    ------
    UsageError
        For a word that is no ``key=value``, an unknown or missing key, and a size that is impossible.
    """
    values: dict[str, str] = {}
    for word in filter(None, re.split(r"[\s,]+", text)):
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise UsageError(f"{word!r} is not key=value.", place="model", remedy=_example())
        if key in values:
            raise UsageError(f"{key} is given twice.", place="model")
        values[key] = value
    return model_from_sizes({key: _value(key, text) for key, text in values.items()})


def _check_names(sizes: Mapping[str, Any], name: str, place: str, kind: type[PerfModelError]) -> None:
    """Raise for a model type, a rule or a dtype of states that is none."""
    if name not in ARCHITECTURES:
        raise unknown_name("model type", name, ARCHITECTURES, place=place, kind=kind)
    rule, rules = sizes.get("linear_rule"), [*map(str, Rule)]
    if rule is not None and rule not in rules:
        raise unknown_name("linear_rule", str(rule), rules, place=place, kind=kind)
    kept = sizes.get("linear_state_dtype")
    if kept and kept not in DTYPES:
        raise unknown_name("linear_state_dtype", str(kept), DTYPES, place=place, kind=kind)


def _keeps_states_alone(sizes: Mapping[str, Any]) -> bool:
    """Return whether every layer keeps a state, and none attends to keys."""
    joint = sizes.get("joint_layers", sizes.get("type") in JOINT)
    return bool(sizes.get("linear_layers")) and sizes["linear_layers"] == sizes.get("layers") and not joint


def _example() -> str:
    return "Write: layers=32 hidden=4096 heads=32 kv_heads=8 ffn=14336 vocab=128256."


def _value(key: str, text: str) -> Any:
    """Return a value from its text: a whole number, a switch or a word."""
    if key in _TEXTS:
        return text
    if key in _FLAGS or key == "bias":
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        raise UsageError(f"{key}={text!r} is neither true nor false.", place="model")
    try:
        return int(text.replace("_", ""))
    except ValueError:
        if key not in KEYS:
            raise unknown_name("key of a shape", key, KEYS, place="model") from None
        raise UsageError(f"{key}={text!r} is not a whole number.", place="model") from None


def model_from_sizes(
    sizes: Mapping[str, Any], place: str = "model", kind: type[PerfModelError] = UsageError
) -> ModelConfig:
    """Return a model from the values of its shape; see `model_from_shape` for the keys.

    Parameters
    ----------
    sizes : the values; a learned table of positions has ``positions`` rows, by default 2048.
    place : where they come from, for messages.
    kind : class of the error for a value that is wrong.

    Raises
    ------
    UsageError
        For an unknown or missing key and a size that is impossible.
    """
    for key in sizes:
        if key not in KEYS:
            raise unknown_name("key of a shape", key, KEYS, place=place, kind=kind)
    name = str(sizes.get("type", "llama"))
    if name in WITHOUT_KEYS and sizes.get("layers"):
        without = ("linear_layers", "bare_layers") if name in STATES_ALONE else ("linear_layers",)
        sizes = {**dict.fromkeys(without, sizes["layers"]), **sizes}
    optional = _OF_ATTENTION if _keeps_states_alone(sizes) else ()
    missing = [key for key in NEEDED if not sizes.get(key) and key not in optional]
    if missing:
        raise kind(f"the shape has no {' and no '.join(missing)}.", place=place, remedy=_example())
    for key, value in sizes.items():
        _check(key, value, place, kind)
    _check_names(sizes, name, place, kind)
    hidden, heads = int(sizes["hidden"]), int(sizes.get("heads", 0))
    if heads and hidden % heads and hidden > heads and not {"head_dim", "rope_head_dim", "nope_head_dim"} & set(sizes):
        near = min((size for size in range(1, 2 * heads) if hidden % size == 0), key=lambda size: abs(size - heads))
        raise kind(f"{heads} heads do not divide hidden = {hidden}.", place=place,
                   remedy=f"Use heads={near}, or give head_dim.")  # fmt: skip
    _check_every(sizes, place, kind)
    _check_needed(sizes, place, kind)
    facts = _facts(sizes, name)
    config = _config(sizes, name, facts)
    problem = _problem(config)
    if problem:
        raise kind(f"{problem}.", place=place)
    return config


def _check(key: str, value: Any, place: str, kind: type[PerfModelError]) -> None:
    """Raise unless a size is a whole number that can be one."""
    if key in _TEXTS or key in _FLAGS or key == "bias":
        return
    least = 1 if key in _ABOVE_ZERO else 0
    most = _MOST_LAYERS if key == "layers" else _LARGEST
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise kind(f"{key} = {value!r} is not a whole number from {least} to {most:,}.", place=place)


def _check_every(sizes: Mapping[str, Any], place: str, kind: type[PerfModelError]) -> None:
    """Raise where layers with experts come at a step, and there are none, or dense ones are counted as well."""
    if "moe_every" in sizes and ("dense_layers" in sizes or not sizes.get("experts")):
        problem = "beside dense_layers" if "dense_layers" in sizes else "without experts"
        raise kind(f"moe_every = {sizes['moe_every']} is given {problem}.", place=place, remedy="Leave one out.")


#: key without which others say nothing -> these
_NEEDED_BY: Mapping[str, tuple[str, ...]] = {
    "kv_lora": ("q_lora", "rope_head_dim", "nope_head_dim"),
    "experts": (
        *("top_k", "zero_experts", "expert_ffn", "expert_hidden", "expert_groups", "token_groups"),
        *("shared_ffn", "shared_gate", "dense_layers", "hash_layers"),
    ),
    "index_heads": ("index_head_dim", "index_keys", "index_layers", "index_ratio"),
    "pool_layers": ("pool_ratio",),
    "pool_ratio": ("pool_layers",),
    "output_groups": ("output_lora",),
    "output_lora": ("output_groups",),
    "linear_layers": (
        *("linear_rule", "linear_heads", "linear_key_heads", "linear_head_dim", "linear_value_dim", "linear_conv"),
        *("joint_layers", "linear_state_dtype", *rwkv.RANKS),
    ),
    "encoder_layers": ("encoder_ffn", "encoder_positions", "audio_bands"),
    "audio_bands": ("encoder_positions",),
    "encoder_positions": ("audio_bands",),
    "shared_blocks": ("block_rank", "block_adapters"),
    "kv_shared_layers": ("kv_shared_window_layers", "kv_shared_ffn"),
    "layer_embedding": ("layer_embedding_vocab",),
    "layer_embedding_vocab": ("layer_embedding",),
}


def _check_needed(sizes: Mapping[str, Any], place: str, kind: type[PerfModelError]) -> None:
    """Raise for a size of something that the model does not have."""
    shared = ARCHITECTURES[str(sizes.get("type", "llama"))].shared_vector
    for key, others in _NEEDED_BY.items():
        if key == "kv_lora" and shared:  # queries have a rank, and keys a rotary part, without latent attention
            continue
        stated = [f"{name} = {sizes[name]}" for name in others if sizes.get(name)]
        if stated and not sizes.get(key):
            raise kind(
                f"{' and '.join(stated)}, and the shape has no {key}.",
                place=place,
                remedy=f"Give {key} too, or leave this out.",
            )


def _facts(sizes: Mapping[str, Any], name: str) -> Architecture:
    """Return the facts of a model type with those that the shape states."""
    changes = {key: sizes[key] for key in _FACTS if key in sizes}
    if "norm" in sizes:
        norm = str(sizes["norm"])
        if norm not in _NORMS:
            raise unknown_name("norm", norm, _NORMS, place="model")
        changes.setdefault("rms_norm", _NORMS[norm])
    if changes.get("rotary") is False and "type" not in sizes:
        changes.setdefault("learned_positions", True)
    if "type" not in sizes:
        bias = bool(sizes.get("bias", changes.get("rms_norm") is False))
        changes.update({key: sizes.get(key, bias) for key in ("qkv_bias", "output_bias", "mlp_bias")})
    elif "bias" in sizes:
        changes.update(dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), bool(sizes["bias"])))
    return dataclasses.replace(ARCHITECTURES[name], **changes)


def _config(sizes: Mapping[str, Any], name: str, facts: Architecture) -> ModelConfig:
    """Build the model, with what a shape leaves out."""
    hidden, heads = int(sizes["hidden"]), int(sizes.get("heads", 0))
    rule = Rule(sizes.get("linear_rule") or RULES.get(name, Rule.GATED_DELTA))
    latent = int(sizes.get("rope_head_dim", 0)) + int(sizes.get("nope_head_dim", 0))
    ffn = int(sizes.get("ffn") or (_gated_width(hidden) if facts.gated else 4 * hidden))
    ffn = 0 if sizes.get("bare_layers") == sizes["layers"] else ffn
    given: dict[str, Any] = {key: sizes[key] for key in _SIZES if key in sizes and key not in _FACTS}
    values: dict[str, Any] = {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": latent or (max(1, hidden // heads) if heads else 0),
        "ffn": ffn,
        "positions": 2048 if facts.learned_positions else 0,
        "activation": "silu" if facts.gated else "gelu",
        "linear_rule": rule.value,
        "linear_conv": rule.taps,
        **(_usual_state(rule, name, hidden) if sizes.get("linear_layers") else {}),
        "linear_state_dtype": STATE_DTYPES.get(name, "") if sizes.get("linear_layers") else "",
        "joint_layers": sizes.get("linear_layers", 0) if name in JOINT else 0,
        "embedding_dim": hidden,
        "expert_ffn": ffn if sizes.get("experts") else 0,
        "dense_at": _dense_between(sizes),
        **{key: getattr(facts, key) for key in _SIZES if key in _FACTS},
    }
    own = None if facts == ARCHITECTURES[name] else facts
    return ModelConfig(model_type=name, facts=own, **(values | given))


def _usual_state(rule: Rule, name: str, hidden: int) -> dict[str, int]:
    """Return the usual sizes of a state that follow from the width: of Mamba of the first kind, and of RWKV.

    The first has 16 numbers for each of 2 hidden channels.
    """
    if rule is Rule.MAMBA1:
        sizes = {"linear_heads": 2 * hidden, "linear_key_heads": 1, "linear_head_dim": 16, "linear_value_dim": 1}
        return {**sizes, "linear_rank": math.ceil(hidden / 16)}
    if not rule.is_rwkv:
        return {}
    ranks = rwkv.ranks_of_7(hidden) if rule is Rule.RWKV7 else rwkv.ranks_of_6(hidden) if name != "rwkv5" else {}
    heads = max(1, hidden // rwkv.HEAD)
    return {"linear_heads": heads, "linear_head_dim": rwkv.HEAD, "linear_value_dim": rwkv.HEAD, **ranks}


def _dense_between(sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the dense layers of a model of which every n-th layer has experts, the last of n."""
    every = int(sizes.get("moe_every", 1))
    return tuple(index for index in range(int(sizes["layers"])) if (index + 1) % every)


def _rank_problems(config: ModelConfig) -> dict[str, bool]:
    """Return what is impossible about RWKV's ranks, each with whether it is so."""
    of_7 = ("linear_rank", *rwkv.RANKS[1:4])
    states, others = config.linear_rule == Rule.RWKV7, ", ".join(of_7)
    stray = [f"{name} = {getattr(config, name)}" for name in of_7[1:] if getattr(config, name)]
    return {
        f"{' and '.join(stray)} is of RWKV-7 (linear_rule=rwkv7)": bool(stray) and not states,
        f"states of RWKV-7 need {others}": states and not all(getattr(config, name) for name in of_7),
        f"linear_mix_rank = {config.linear_mix_rank} is of RWKV-6 (linear_rule=rwkv6)": config.linear_mix_rank > 0
        and config.linear_rule != Rule.RWKV6,
        "values of RWKV are as wide as the residual stream: linear_heads linear_value_dim = hidden": Rule(
            config.linear_rule
        ).is_rwkv
        and config.linear_heads * config.linear_value_dim != config.hidden,
    }


def _gated_width(hidden: int) -> int:
    return _GATED_STEP * math.ceil(8 * hidden / 3 / _GATED_STEP)


def _problem(config: ModelConfig) -> str:
    """Return what is impossible about a model, or an empty string."""
    attending = f"{config.attending_layers}{' that attend to keys' * (config.attending_layers < config.layers)}"
    bare = f"{config.bare_layers} layers without an MLP and {config.dense_layers} dense ones of {config.layers}"
    problems = {
        f"hidden size ({config.hidden}) is below the heads ({config.heads})": config.hidden < config.heads,
        f"a token visits {config.top_k} experts of {config.experts}": config.experts
        and not 1 <= config.top_k <= config.experts,
        f"{config.dense_layers} dense layers of {config.layers}": config.dense_layers > config.layers,
        bare: config.bare_layers + config.dense_layers > config.layers,
        f"{config.linear_layers} layers with a state of {config.layers}": config.linear_layers > config.layers,
        "channels of Mamba of the first kind (linear_rule=mamba1) have one value each and one head of keys, and a rank "
        f"of their steps: linear_value_dim = {config.linear_value_dim}, linear_key_heads = {config.linear_key_heads}, "
        f"linear_rank = {config.linear_rank}": config.linear_layers
        and config.linear_rule == Rule.MAMBA1
        and (config.linear_value_dim, config.linear_key_heads, config.linear_rank > 0) != (1, 1, True),
        f"linear_rank = {config.linear_rank} is of Mamba of the first kind (linear_rule=mamba1), PLaMo 2 or RWKV": (
            config.linear_rank and not (Rule(config.linear_rule).scans_values or Rule(config.linear_rule).is_rwkv)
        ),
        "steps of PLaMo 2's states have a rank: give linear_rank": config.linear_layers
        and config.linear_rule == Rule.PLAMO2
        and not config.linear_rank,
        **_rank_problems(config),
        f"{config.joint_layers} layers with keys beside a state of {config.linear_layers} with one": config.joint_layers
        > config.linear_layers,
        f"{config.window_layers} layers with a window of {attending}": config.window_layers > config.attending_layers,
        "latent attention (kv_lora) has no rope_head_dim, or no nope_head_dim": config.kv_lora
        and not (config.rope_head_dim and config.nope_head_dim),
        "an indexer chooses keys of latent attention, and the model has no kv_lora": config.index_heads
        and not (config.kv_lora or config.architecture.shared_vector or config.block_indexer),
        f"{config.index_layers} layers with an indexer of {config.layers}": config.index_layers > config.layers,
        "layers with compressed keys attend to a window, too, and the model has none": config.compressed_layers
        and not config.window,
        f"{config.compressed_layers} layers with compressed keys and {config.window_layers} with a window alone of "
        f"{attending}": config.compressed_layers
        and config.compressed_layers + config.window_layers != config.attending_layers,
        "keys are compressed where one vector is key and value (type=deepseek_v4), and the model has others": (
            config.compressed_layers and not config.architecture.shared_vector
        ),
        f"{config.output_groups} groups of the output do not divide {config.heads} heads": config.output_groups
        and config.heads % config.output_groups,
        f"{config.hash_layers} layers with a table of tokens' experts of {config.moe_layers} with experts": (
            config.hash_layers > config.moe_layers
        ),
        f"{config.kv_shared_layers} layers with keys of others of {config.attending_layers} that attend to keys": (
            config.kv_shared_layers > 0 and config.kv_shared_layers >= config.attending_layers
        ),
        f"{config.kv_shared_window_layers} layers with a window and keys of others, of {config.window_layers} with a "
        f"window and {config.kv_shared_layers} with keys of others": config.kv_shared_window_layers
        > min(config.window_layers, config.kv_shared_layers),
        f"{config.shared_blocks} blocks shared by {config.joint_layers} layers with keys beside a state": (
            config.shared_blocks > config.joint_layers
        ),
        f"{config.bare_layers} layers without an MLP of {config.layers}, and {config.joint_layers} with a block that "
        "has one": config.shared_blocks and config.bare_layers + config.joint_layers != config.layers,
        "layers with a state have no linear_heads": config.linear_layers and not config.linear_heads,
        f"heads of layers with a state ({config.linear_heads}) are not a multiple of their key heads "
        f"({config.linear_key_heads})": config.linear_heads % max(1, config.linear_key_heads),
    }
    grouped = group_problem(config.experts, config.top_k, config.expert_groups, config.token_groups)
    return heads_problem(config) or next((text for text, found in problems.items() if found), grouped)
