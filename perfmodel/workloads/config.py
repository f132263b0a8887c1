"""Reading model configurations in Hugging Face's format (``config.json``): shapes and number of parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import read_document
from perfmodel.workloads.architectures import ARCHITECTURES, Architecture
from perfmodel.workloads.model_config import Linear as Linear
from perfmodel.workloads.model_config import ModelConfig as ModelConfig

#: dimension -> its keys in the configurations of different model types
_SPELLINGS = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocab": ("vocab_size",),
    "embedding_dim": ("word_embed_proj_dim",),
    "positions": ("max_position_embeddings", "n_positions", "n_ctx"),
    "token_types": ("type_vocab_size",),
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def read_model_config(path: str | os.PathLike[str]) -> ModelConfig:
    """Return the shapes of a model from its ``config.json``.

    Raises
    ------
    InputFileError
        If the file cannot be read, a dimension is missing or impossible, and for models that are not one stack of equal
        layers: mixtures of experts, latent attention, encoder with decoder, windows on some layers, and unknown model
        types.
    """
    place = os.fspath(path)
    document = read_document(path)
    if not isinstance(document, dict):
        raise InputFileError("is not a model configuration: it has no keys.", place=place)
    # Multimodal models keep the shapes of their language model one level down.
    nested = document.get("text_config")
    raw = nested if isinstance(nested, dict) else document
    _check_supported(raw, place)
    kind = str(raw.get("model_type", ""))
    if kind not in ARCHITECTURES:
        raise unknown_name("model type", kind, ARCHITECTURES, place=place, kind=InputFileError)
    return _Reader(raw, place).config(kind, ARCHITECTURES[kind])


def _check_supported(raw: Mapping[str, Any], place: str) -> None:
    """Raise for a model whose layers contain more than matrices, norms and attention."""
    feed_forward = raw.get("ffn_config")
    parts = {**raw, **feed_forward} if isinstance(feed_forward, dict) else raw
    unsupported = {
        "a mixture of experts": [key for key in _EXPERTS if parts.get(key)],
        "latent attention (MLA)": [key for key in ("kv_lora_rank",) if raw.get(key)],
        "an encoder with a decoder": [key for key in ("is_encoder_decoder",) if raw.get(key)],
    }
    reasons = [f"{what} ({', '.join(keys)})" for what, keys in unsupported.items() if keys]
    if reasons:
        raise InputFileError(
            f"the model has {' and '.join(reasons)}, which is not modelled.",
            place=place,
            remedy=f"Dense models are supported: {', '.join(ARCHITECTURES)}.",
        )


class _Reader:
    """The keys of one configuration, under all their spellings."""

    def __init__(self, raw: Mapping[str, Any], place: str) -> None:
        self.raw, self.place = raw, place

    def config(self, kind: str, shape: Architecture) -> ModelConfig:
        """Return the shapes, with the architecture's facts as defaults."""
        hidden, heads = self.size("hidden"), self.size("heads")
        kv_heads = self.size("kv_heads", heads)
        if heads % kv_heads:
            raise self.wrong(f"heads ({heads}) are not a multiple of key and value heads ({kv_heads})")
        if hidden % heads and not self.raw.get("head_dim"):
            raise self.wrong(f"hidden size ({hidden}) is not a multiple of the heads ({heads})")
        return ModelConfig(
            model_type=kind,
            hidden=hidden,
            layers=self.size("layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=self.size("head_dim", hidden // heads),
            ffn=self.size("ffn", 4 * hidden),
            vocab=self.size("vocab"),
            positions=self.size("positions"),
            activation=str(self.first(("hidden_act", "activation_function")) or "gelu"),
            tied=self.flag("tie_word_embeddings", shape.tied),
            embedding_dim=self.size("embedding_dim", hidden),
            token_types=self.size("token_types", 2) if kind == "bert" else 0,
            window=self.window(kind),
            qkv_bias=self.flag("attention_bias", shape.qkv_bias),
            output_bias=self.flag("attention_bias", shape.output_bias),
            mlp_bias=self.flag("mlp_bias", shape.mlp_bias),
            norm_after=not self.flag("do_layer_norm_before", not shape.norm_after),
        )

    def first(self, keys: tuple[str, ...]) -> Any:
        """Return the value of the first key that is present and not null."""
        return next((self.raw[key] for key in keys if self.raw.get(key) is not None), None)

    def size(self, name: str, default: int | None = None) -> int:
        """Return a dimension, checked."""
        keys = _SPELLINGS[name]
        value = self.first(keys)
        value = default if value is None else value
        if value is None:
            raise self.wrong(f"it has no {name.replace('_', ' ')} ({', '.join(keys)})")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(f"{name.replace('_', ' ')} = {value!r} is not a whole number above 0")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a switch."""
        value = self.raw.get(key)
        return default if value is None else bool(value)

    def window(self, kind: str) -> int:
        """Return the attention window; Qwen states one that it does not use."""
        used = self.flag("use_sliding_window", kind == "mistral")
        window = self.raw.get("sliding_window")
        if not used or not window:
            return 0
        if kind != "mistral":
            raise self.wrong("the model has a window on only some of its layers, which is not modelled")
        return int(window)

    def wrong(self, problem: str) -> InputFileError:
        """Build the error about a value of the configuration."""
        return InputFileError(f"{problem}.", place=self.place, remedy="Is this the model's config.json?")
