"""Reading model configurations in Hugging Face's format (``config.json``): shapes and number of parameters."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import read_document
from perfmodel.storage import is_remote
from perfmodel.workloads import compressed, families, hybrids, mamba_ssm
from perfmodel.workloads.architectures import ALIASES, ARCHITECTURES, OF_WHOLES, REFUSED
from perfmodel.workloads.checkpoint import ENCODERS, with_checkpoint
from perfmodel.workloads.class_defaults import CLASS_DEFAULTS
from perfmodel.workloads.config_reader import ConfigReader
from perfmodel.workloads.config_values import LISTS, Values, WrongValueError, language_keys
from perfmodel.workloads.model_config import ModelConfig as ModelConfig
from perfmodel.workloads.model_shape import LANGUAGE_ALONE
from perfmodel.workloads.quantization import stored_format

#: tables of keys within a configuration, and the families that have them
_PARTS, _WITH_PARTS = ("attn_config", "ffn_config"), ("dbrx", "mpt")
_KINDS_OF_LAYER = ("full_attention", "sliding_attention", "chunked_attention", "indexed_attention", "attention")


def read_model_config(path: str | os.PathLike[str]) -> ModelConfig:
    """Return the shapes of a model from its ``config.json``.

    Raises
    ------
    InputFileError
        If the file cannot be read, a dimension is missing or impossible, and for model types that are unknown or whose
        layers are not attention, a state or both, with an MLP or experts.
    """
    place = os.fspath(path)
    document = read_document(path)
    if not isinstance(document, dict):
        raise InputFileError("is not a model configuration: it has no keys.", place=place)
    config = config_of(document, place)
    return config if is_remote(place) else with_checkpoint(config, document, os.path.dirname(place))


def config_of(document: Mapping[str, Any], place: str) -> ModelConfig:
    """Return the shapes of a model from the keys of its configuration.

    Parameters
    ----------
    document : the keys, as ``config.json`` has them.
    place : where they come from, for messages.

    Raises
    ------
    InputFileError
        As `read_model_config`.
    """
    # Multimodal models keep the shapes of their language model one level down.
    raw = _stated_keys(document, place)
    parts = [raw[key] for key in _PARTS if isinstance(raw.get(key), dict)]
    flat = {key: value for part in parts for key, value in part.items() if key != "model_type"} | dict(raw)
    kind = str(raw.get("model_type") or (document.get("model_type") if raw is not document else ""))
    whole = str(document.get("model_type"))  # a part may state the type of a plainer model than it is
    kind = OF_WHOLES.get(whole, whole if whole in REFUSED else ALIASES.get(kind, kind))
    reader = ConfigReader({**CLASS_DEFAULTS.get(kind, {}), **_of_layers(flat)}, place, kind)
    try:
        _check_layers(kind, flat, place)
        _check_kind(kind, raw, place)
        config = reader.config()
    except WrongValueError as error:
        raise reader.wrong(str(error)) from None
    except (TypeError, ValueError, ArithmeticError, AttributeError, IndexError) as error:
        raise reader.wrong(f"a value has another type than the model's class expects: {error}") from None
    stored = stored_format(document)
    return dataclasses.replace(
        config, name=_stated_name(document), stored=stored.format, stored_words=stored.words,
        remarks=tuple(_beside_language(document)),
    )  # fmt: skip


def _beside_language(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield that a model has encoders beside its language model, and how to give what they make."""
    if found := [key for key in ENCODERS if document.get(key)]:
        yield LANGUAGE_ALONE.format(f"the config has {' and '.join(found)}")


def _stated_keys(document: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the keys of the language model, by the names of transformers."""
    if not mamba_ssm.is_mamba_ssm(document):
        return language_keys(document)
    try:
        return mamba_ssm.as_transformers(document)
    except WrongValueError as error:
        raise Values(document, place, "").wrong(str(error)) from None


def _of_layers(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys without what lists say of layers after the last one, which predict further tokens."""
    layers, more = raw.get("num_hidden_layers"), raw.get("num_nextn_predict_layers")
    if not isinstance(layers, int) or not isinstance(more, int):
        return dict(raw)
    longer = {key for key in LISTS if isinstance(raw.get(key), list) and len(raw[key]) == layers + more}
    return {key: value[:layers] if key in longer else value for key, value in raw.items()}


def _stated_name(document: Mapping[str, Any]) -> str:
    """Return the name in a configuration without its owner, or the folder that it was saved to; "" for none."""
    return str(document.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]


def _check_layers(kind: str, raw: Mapping[str, Any], place: str) -> None:
    """Raise for a model with layers that are neither attention, nor a state, nor both, nor an MLP."""
    if kind in hybrids.RULES:
        others, mamba = hybrids.unknown_kinds(kind, raw), False
    else:
        modelled = (*_KINDS_OF_LAYER, *compressed.KINDS * (kind in compressed.COMPRESSED))
        modelled = (*modelled, *(families.BLOCK_SPARSE,) * (kind in families.BLOCK_INDEXED))
        others = sorted({name for name in hybrids.listed(raw) if name not in modelled})
        mamba = any(key.startswith(("mamba_", "ssm_")) for key in raw)
    reason = REFUSED.get(kind) or families.unlike(kind, raw)
    reason = reason or (f"{', '.join(others)} layers" if others else "Mamba layers" if mamba else "")
    if reason:
        raise InputFileError(
            f"the model ({kind or 'no model type'}) has {reason}, which are not modelled.",
            place=place,
            remedy="Layers of attention, of a state or of both, with an MLP or experts, are modelled.",
        )


def _check_kind(kind: str, raw: Mapping[str, Any], place: str) -> None:
    """Raise for a model type that is none, and for parts of a configuration that are no tables where it has such."""
    if not kind:
        raise InputFileError("has no model_type: it is no config.json of a model.", place=place)
    if kind not in ARCHITECTURES:
        raise unknown_name("model type", kind, sorted({*ARCHITECTURES, *ALIASES}), place=place, kind=InputFileError)
    for key in _PARTS if kind in _WITH_PARTS else ():
        if not isinstance(raw.get(key), dict | None):
            raise WrongValueError(f"{key} = {raw[key]!r} is not a table of keys")
