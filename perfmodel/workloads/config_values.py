"""Values of a model's configuration: found under all spellings of their keys, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InputFileError

#: keys of lists with an entry for each layer
LISTS = ("layer_types", "mlp_layer_types", "moe_layer_freq", "hybrid_layer_pattern", "attn_type_list")
#: dimension -> its keys in the configurations of different model types
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads"),
    "kv_heads": (
        *("num_key_value_heads", "kv_n_heads", "num_kv_heads", "n_head_kv", "num_attention_groups"),
        "multi_query_group_num",
    ),
    "head_dim": ("head_dim", "attention_head_dim", "d_kv", "kv_channels"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "embedding_dim": ("word_embed_proj_dim",),
    "positions": (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
        "model_max_length",
    ),
    "token_types": ("type_vocab_size",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "top_k": (
        *("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
        *("moe_top_k", "moe_topk", "moe_k", "top_k_experts"),
    ),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "expert_hidden": ("moe_latent_size",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope_head_dim": ("qk_rope_head_dim",),
    "nope_head_dim": ("qk_nope_head_dim",),
    "value_head_dim": ("v_head_dim",),
    "index_heads": ("index_n_heads",),
    "index_head_dim": ("index_head_dim",),
    "index_keys": ("index_topk",),
    "linear_heads": ("linear_num_value_heads",),
    "linear_key_heads": ("linear_num_key_heads",),
    "linear_head_dim": ("linear_key_head_dim",),
    "linear_value_dim": ("linear_value_head_dim",),
    "linear_conv": ("linear_conv_kernel_dim",),
    "linear_rank": ("linear_rank",),
}
#: the most layers or experts, and the largest other size, of a model that is believed
MOST_LAYERS, LARGEST = 100_000, 10**9


#: keys under which models of text, images and sound keep the configuration of their language model
LANGUAGE_KEYS = ("text_config", "llm_config", "language_config")


def language_keys(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys of a language model: those of the document, or of the part that a multimodal model has for it.

    A part that does not say whether its head is the embedding has the switch of the whole.
    """
    thinker = document.get("thinker_config")
    outer = thinker if isinstance(thinker, dict) else document
    part = next((outer[key] for key in LANGUAGE_KEYS if isinstance(outer.get(key), dict)), None)
    if part is None:
        return outer
    key = "tie_word_embeddings"
    return {**part, key: outer.get(key) if part.get(key) is None else part[key]}


def alike(value: Any) -> Any:
    """Return a value, or that of each layer where a list has the same for all of them."""
    return value[0] if isinstance(value, list) and value and all(one == value[0] for one in value) else value


class WrongValueError(ValueError):
    """A key of a configuration has a value that it cannot have; the message has key, value and what is allowed."""


def stated_number(raw: Mapping[str, Any], key: str, default: int, least: int = 0, most: int = LARGEST) -> int:
    """Return a whole number, by default another where the configuration has none or null.

    Raises
    ------
    WrongValueError
        Unless it is a whole number from ``least`` to ``most``.
    """
    value = raw.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise WrongValueError(f"{key} = {value!r} is not a whole number from {least} to {most:,}")
    return value


def stated_places(raw: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the layers that a configuration lists, counted from 0; () where it lists none.

    Raises
    ------
    WrongValueError
        Unless it is a list of whole numbers from 0 on.
    """
    value = raw.get(key)
    listed = value if isinstance(value, list) else () if value is None else (value,)
    wrong = any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in listed)
    if wrong or not isinstance(value, list | None):
        raise WrongValueError(f"{key} = {value!r} is not a list of layers, counted from 0")
    return tuple(listed)


class Values:
    """The keys of one configuration, under all their spellings."""

    def __init__(self, raw: Mapping[str, Any], place: str, kind: str) -> None:
        self.raw, self.place, self.kind = raw, place, kind

    def first(self, keys: tuple[str, ...]) -> Any:
        """Return the value of the first key that is present and not null."""
        return next((self.raw[key] for key in keys if self.raw.get(key) is not None), None)

    def size(self, name: str, default: int | None = None) -> int:
        """Return a dimension, checked."""
        return self.of(SPELLINGS[name], name, default)

    def of(self, keys: tuple[str, ...], name: str, default: int | None) -> int:
        """Return a dimension under one of some keys, checked."""
        value = self.first(keys)
        value = alike(default if value is None else value)
        if value is None:
            raise self.wrong(f"it has no {name.replace('_', ' ')} ({', '.join(keys)})")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(f"{name.replace('_', ' ')} = {value!r} is not a whole number above 0{self._under(keys)}")
        most = MOST_LAYERS if name.endswith("layers") else LARGEST
        if value > most:
            found = value if value < 10**15 else f"a number of {len(str(value))} digits"
            raise self.wrong(f"{name.replace('_', ' ')} = {found} is above {most:.0e}{self._under(keys)}")
        return value

    def _under(self, keys: tuple[str, ...]) -> str:
        """Return which of some keys is present, for a message."""
        return next((f" ({key})" for key in keys if self.raw.get(key) is not None), "")

    def flag(self, key: str, default: bool) -> bool:
        """Return a switch."""
        value = self.raw.get(key)
        return default if value is None else bool(value)

    def wrong(self, problem: str) -> InputFileError:
        """Build the error about a value of the configuration."""
        return InputFileError(f"{problem}.", place=self.place, remedy="Is this the model's config.json?")
