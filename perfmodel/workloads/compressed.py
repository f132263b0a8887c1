"""What configurations state of layers that attend to compressed keys (DeepSeek-V4).

``compress_ratios`` has a number for each layer: 0 for a window alone, 4 where an indexer chooses among keys of 4
tokens, 128 for all keys of 128 tokens; numbers after the last layer are those of layers that predict further tokens.
transformers 5.x writes ``layer_types`` and ``compress_rates`` in its place (``DeepseekV4Config``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.workloads.config_values import WrongValueError, stated_number

#: families with such layers
COMPRESSED = frozenset(("deepseek_v4",))
#: keys that their configurations need not state, as the class has them (those of DeepSeek-V4-Flash)
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "sliding_window": 128,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "hc_mult": 4,
    "hidden_act": "silu",
}
#: names of layers whose keys are chosen, and of those that attend to all of them -> tokens of a key unless stated
_CHOSEN, _ALL = "compressed_sparse_attention", "heavily_compressed_attention"
_RATES: Mapping[str, int] = {_CHOSEN: 4, _ALL: 128}
KINDS = tuple(_RATES)
_HASHED = "hash_moe"


def compressed_layers(raw: Mapping[str, Any], layers: int) -> dict[str, int]:
    """Return how many layers have an indexer and how many attend to all compressed keys, with the tokens of a key.

    Raises
    ------
    WrongValueError
        For a layer whose keys stand for another number of tokens, and a list that is too short.
    """
    rates = _rates(raw)
    found = _ratios(raw, layers, rates)
    chosen, every = found.count(rates[_CHOSEN]), found.count(rates[_ALL])
    return {
        "index_layers": chosen,
        "index_ratio": rates[_CHOSEN] if chosen else 1,
        "pool_layers": every,
        "pool_ratio": rates[_ALL] if every else 0,
    }


def hash_layers(raw: Mapping[str, Any], layers: int) -> int:
    """Return how many layers choose experts by a table of tokens."""
    types = raw.get("mlp_layer_types")
    if isinstance(types, list) and types:
        return sum(str(name) == _HASHED for name in types)
    return stated_number(raw, "num_hash_layers", min(layers, 3), most=layers)


def _rates(raw: Mapping[str, Any]) -> dict[str, int]:
    stated = raw.get("compress_rates")
    stated = stated if isinstance(stated, dict) else {}
    rates = {name: stated_number(stated, name, usual, least=2) for name, usual in _RATES.items()}
    if rates[_CHOSEN] == rates[_ALL]:
        raise WrongValueError(f"compress_rates = {stated!r} does not tell layers with an indexer from the others")
    return rates


def _ratios(raw: Mapping[str, Any], layers: int, rates: Mapping[str, int]) -> list[int]:
    """Return the tokens that a compressed key of each layer stands for, 0 where it has a window alone."""
    types, stated = raw.get("layer_types"), raw.get("compress_ratios")
    if isinstance(types, list) and types:
        return [rates.get(str(name), 0) for name in types]
    if stated is None:  # as the class has it: two layers of all keys, then both kinds in turn
        return [rates[_CHOSEN if index > 1 and index % 2 else _ALL] for index in range(layers)]
    allowed = (0, *rates.values())
    wrong = not isinstance(stated, list) or any(isinstance(one, bool) or one not in allowed for one in stated)
    if wrong or len(stated) < layers:
        least, sparse, heavy = allowed
        raise WrongValueError(
            f"compress_ratios = {stated!r} does not state {least}, {sparse} or {heavy} for each of {layers} layers"
        )
    return [int(one) for one in stated[:layers]]
