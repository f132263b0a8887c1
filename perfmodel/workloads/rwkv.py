"""What configurations of RWKV-5, RWKV-6 and RWKV-7 state: heads, ranks of small matrices, the width of channel mixing.

They follow the classes of flash-linear-attention 0.6.0 (``RWKV6Config``, ``RWKV7Config``) and, for configurations that
state ``head_size``, those of RWKV's own classes for transformers, whose ranks follow from the width (BlinkDL/RWKV-LM).
Every function takes the keys of one configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads.config_values import WrongValueError, stated_number

Raw = Mapping[str, Any]

#: size of a head of all published models
HEAD = 64
#: the widest model of RWKV-6 whose ranks are the usual ones; those of wider models are twice as large
_USUAL_WIDTH = 2560


def ranks_of_7(hidden: int) -> dict[str, int]:
    """Return the usual ranks of RWKV-7's small matrices, by the width (``RWKV7Attention``).

    Of decays, of rates, of the mixing with the first layer's values, and of the gate: 2.5, 2.5, 1.7 and 5 times the
    root of the width, in whole multiples of 32.

    >>> ranks_of_7(2048)
    {'linear_rank': 128, 'linear_rate_rank': 128, 'linear_value_rank': 64, 'linear_gate_rank': 224}
    """
    factors = {"linear_rank": 2.5, "linear_rate_rank": 2.5, "linear_value_rank": 1.7, "linear_gate_rank": 5.0}
    return {name: max(32, 32 * round(factor * hidden**0.5 / 32)) for name, factor in factors.items()}


def ranks_of_6(hidden: int) -> dict[str, int]:
    """Return the ranks of RWKV-6's small matrices, of decays and of the mixing of neighbouring tokens, by the width."""
    wide = 1 + (hidden > _USUAL_WIDTH)
    return {"linear_rank": 64 * wide, "linear_mix_rank": 32 * wide}


def _heads(raw: Raw, hidden: int, size: int) -> int:
    if hidden % size:
        raise WrongValueError(f"heads of {size} do not divide hidden_size = {hidden}")
    return hidden // size


def _hidden(raw: Raw) -> int:
    return stated_number(raw, "hidden_size", 2048, least=1)


def _size(raw: Raw) -> int:
    key = "head_size" if raw.get("head_size") is not None else "head_dim"
    return stated_number(raw, key, HEAD, least=1)


def _is_own(raw: Raw) -> bool:
    """Return whether a configuration is one of RWKV's own class, not of flash-linear-attention's."""
    return raw.get("head_size") is not None or raw.get("attention_hidden_size") is not None


def _sizes(heads: int, keys: int, values: int, **ranks: int) -> dict[str, Any]:
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": keys,
        "linear_value_head_dim": values,
        **ranks,
    }


def _rwkv7(raw: Raw) -> dict[str, Any]:
    hidden, size = _hidden(raw), _size(raw)
    keys = {
        "linear_rank": ("decay_low_rank_dim", 64),
        "linear_rate_rank": ("a_low_rank_dim", 64),
        "linear_value_rank": ("v_low_rank_dim", 16),
        "linear_gate_rank": ("gate_low_rank_dim", 128),
    }
    ranks = {name: stated_number(raw, key, usual, least=1) for name, (key, usual) in keys.items()}
    return _sizes(_heads(raw, hidden, size), size, size, **ranks)


def _rwkv6(raw: Raw) -> dict[str, Any]:
    hidden = _hidden(raw)
    if _is_own(raw):
        size = _size(raw)
        return _sizes(_heads(raw, hidden, size), size, size, **ranks_of_6(hidden))
    heads = stated_number(raw, "num_heads", 4, least=1)
    widths = [round(hidden * float(raw.get(key, usual))) for key, usual in (("expand_k", 0.5), ("expand_v", 1.0))]
    if any(width % heads for width in widths) or widths[1] != hidden:
        raise WrongValueError(
            f"num_heads = {heads} does not divide keys and values of {widths[0]} and {widths[1]}, or values are not as "
            f"wide as hidden_size = {hidden}"
        )
    rank = stated_number(raw, "gate_low_rank_dim", 64, least=1)
    mix = stated_number(raw, "proj_low_rank_dim", 32, least=1)
    return _sizes(heads, widths[0] // heads, widths[1] // heads, linear_rank=rank, linear_mix_rank=mix)


def _rwkv5(raw: Raw) -> dict[str, Any]:
    size = _size(raw)
    return _sizes(_heads(raw, _hidden(raw), size), size, size)


#: family -> the sizes of its states, under the keys that Qwen3-Next has for them, and its ranks
SIZES: Mapping[str, Callable[[Raw], dict[str, Any]]] = MappingProxyType(
    {"rwkv5": _rwkv5, "rwkv6": _rwkv6, "rwkv7": _rwkv7}
)
#: the ranks that these may have
RANKS = ("linear_rank", "linear_rate_rank", "linear_value_rank", "linear_gate_rank", "linear_mix_rank")


def channel_width(kind: str, raw: Raw) -> int:
    """Return the width inside channel mixing, RWKV's MLP: 4 times the width, before RWKV-7 3.5 times, in steps of 32.

    flash-linear-attention rounds up, RWKV's own classes down.

    Raises
    ------
    WrongValueError
        For a ratio that leaves no width.
    """
    hidden = _hidden(raw)
    stated = raw.get("intermediate_size")
    if stated is not None:
        return stated_number(raw, "intermediate_size", 0, least=1)
    usual = 4.0 if kind == "rwkv7" else 3.5
    given = raw.get("hidden_ratio")
    wide = int(hidden * float(usual if given is None else given))
    if wide < 32:
        raise WrongValueError(f"hidden_ratio = {given!r} leaves no width inside channel mixing")
    return 32 * (wide // 32 if _is_own(raw) else -(-wide // 32))


def unlike(raw: Raw) -> str:
    """Return what a configuration has that published models have not, "" for nothing."""
    if raw.get("attn"):
        return "layers of attention between those of RWKV"
    values = raw.get("value_dim")
    each = values if isinstance(values, list) else [values]
    wider = any(one is not None and one != raw.get("hidden_size") for one in each)
    if raw.get("attention_hidden_size") not in (None, _hidden(raw)):
        return "heads that are not as wide as the residual stream (attention_hidden_size)"
    return "values wider than the residual stream" if wider else ""


def facts(raw: Raw) -> dict[str, Any]:
    """Return whether a norm follows the embedding, and whether norms have a shift."""
    shift = None if raw.get("norm_bias", True) else False
    return {"embedding_norm": bool(raw.get("norm_first", True)), "norm_bias": shift}
