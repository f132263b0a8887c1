"""Models by name: the files of ``model_specs/``, and the one function that takes a path, a shape or a name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from perfmodel import storage
from perfmodel.errors import InputFileError, UsageError, expect, nearest
from perfmodel.files import DOCUMENT_SUFFIXES, read_document, shipped_folder
from perfmodel.storage.spool import is_copy, is_stream
from perfmodel.workloads.architectures import REFUSED
from perfmodel.workloads.config import read_model_config
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.model_shape import LANGUAGE_ALONE
from perfmodel.workloads.shape import model_from_shape, model_from_sizes

#: endings of names that say how the weights are stored -> their format
_FORMATS = {
    "fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "bf16": "bf16", "fp16": "fp16", "awq": "int4", "gptq": "int4",
    "int4": "int4", "int8": "int8", "w4a16": "int4", "quantized.w4a16": "int4", "w8a16": "w8a16",
    "quantized.w8a16": "w8a16", "w8a8": "int8", "quantized.w8a8": "int8", "4bit": "int4", "8bit": "w8a16",
    "nvfp4a16": "nvfp4_a16", "mxfp4": "mxfp4_a4", "q2_k": "q2_k", "q3_k": "q3_k",
    "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k", "q4_0": "q4_0", "q4_1": "q4_1", "q4_k_m": "q4_k",
    "q4_k_s": "q4_k", "q4_k": "q4_k", "iq4_nl": "iq4_nl", "iq4_xs": "iq4_xs", "q5_0": "q5_0", "q5_1": "q5_1",
    "q5_k_m": "q5_k", "q5_k_s": "q5_k", "q5_k": "q5_k", "q6_k": "q6_k", "q8_0": "q8_0",
}  # fmt: skip
#: methods whose activations stay in 16 bits, beside one of these: "gptq-int8"
_WEIGHT_ONLY = frozenset(("awq", "gptq"))
#: llama.cpp's file, which comes in many formats
_GGUF = "gguf"
#: words of a name that say how a model was tuned, wherever they stand, and endings that say how it was stored
_TUNED = ("instruct", "chat", "it", "hf", "base")
_STORED = (
    *_FORMATS, "dynamic", "bnb", "unsloth", "a2507", "2507", "kv", "preview", "mlx", "qat", _GGUF,
    *("4b-128g", "32g", "64g", "128g"),
)  # fmt: skip
_ENDINGS = re.compile(rf"[-_ ]({'|'.join(map(re.escape, (*_TUNED, *_STORED)))})$")
_WITHIN = re.compile(rf"[-_ ]({'|'.join(_TUNED)})(?=[-_ ])")

#: the name in messages about a model that is missing
_EXAMPLE = "llama-3.1-8b"
#: keys of an entry that are no sizes of the model
_NO_SIZES = ("aliases", "language_of", "source", "stored_source", "place")
_OF_ANY_FORMAT = (
    "A GGUF comes in many formats, and the name says none: taken as bf16. --weights q4_k, q5_k or q8_0 names one."
)
#: the end of the folder of a file on Hugging Face: how it is fetched, and its branch
_REVISION = re.compile(r"/(resolve|raw|blob)/[^/]+$")
#: similarity from which on the first words of a name are taken for those of a model
_BEGINS_ALIKE = 0.8


def find_model(text: str | os.PathLike[str] | ModelConfig) -> ModelConfig:
    """Return a model from the path of its ``config.json``, its shape, or its name.

    Parameters
    ----------
    text : a path (of the file, or of a folder that has it), words as ``layers=32 hidden=4096 heads=32 vocab=32000``
        (see `model_from_shape`), or a name of the catalog as "llama-3.1-8b" or "meta-llama/Llama-3.1-8B-Instruct". A
        `ModelConfig` comes back as it is.

    Raises
    ------
    UsageError
        When it is none of these, or of another type; the message has the nearest name.
    InputFileError
        When the file cannot be read or its content is wrong.
    """
    if isinstance(text, ModelConfig):
        return text
    remedy = 'Give a name, "llama-3.1-8b", the path of a config.json, or a pm.ModelConfig.'
    expect(text, str | os.PathLike, "model", place="model", remedy=remedy)
    words = os.fspath(text).strip()
    if _is_path(words):
        path = os.path.join(words, "config.json") if os.path.isdir(words) else storage.one(words)
        config = read_model_config(path)
        return dataclasses.replace(config, name=_file_name(path) or config.name or config.model_type)
    if "=" in words:
        return model_from_shape(words)
    return named_model(words)


def _file_name(path: str) -> str:
    """Return what a model is called after its file: the folder's name for a ``config.json``; "" where it has none."""
    stem = storage.name_of(path).removesuffix(".gz").rpartition(".")[0]
    if stem != "config":
        return "" if is_copy(path) else stem
    if not storage.is_remote(path):
        return os.path.basename(os.path.dirname(os.path.abspath(path)))
    folder = path.partition("?")[0].rpartition("/")[0].partition("://")[2].partition("/")[2]  # without the host
    return storage.name_of(_REVISION.sub("", folder)) if folder else ""


def _is_path(words: str) -> bool:
    """Return whether a text names a file: by its suffix, or because something is there."""
    if storage.is_remote(words) or is_stream(words):
        return True
    suffix = storage.suffix_of(words.removesuffix(".gz"))
    return bool(words) and "=" not in words and (suffix in DOCUMENT_SUFFIXES or os.path.exists(words))


@functools.lru_cache(maxsize=1024)
def named_model(name: str) -> ModelConfig:
    """Return a model of the catalog by its name, or another name of the same shape.

    Raises
    ------
    UsageError
        When the catalog has no model of that name.
    """
    config = _as_named(_listed(name), name)
    if _found_key(name) not in _language_parts():
        return config
    own = _key(name.rpartition("/")[2]) == _key(config.name)
    words = f"{config.name} has them" if own else f"{name.strip()} has that of {config.name}"
    remark = LANGUAGE_ALONE.format(words)
    return dataclasses.replace(config, remarks=(*config.remarks, remark))


def _found_key(name: str) -> str:
    """Return the first key of a name that the catalog has; "" where it has none."""
    return next((key for key in _spellings(name) if key in _names()), "")


@functools.cache
def _language_parts() -> frozenset[str]:
    """Return the keys of names of models that have more than the language model that the catalog has."""
    return frozenset(_key(name) for entry in _entries().values() for name in entry.get("language_of", ()))


def source_of_format(text: str | os.PathLike[str]) -> str:
    """Return in words what says how the weights of a model are stored: its config, shape, name or the catalog.

    Parameters
    ----------
    text : as `find_model` takes it, of a model that it finds.

    >>> source_of_format("deepseek-v3"), source_of_format("llama-3.1-8b-fp8")
    ('as the catalog has it', 'as the name says')
    """
    words = os.fspath(text).strip()
    if _is_path(words):
        return "as the config says"
    if "=" in words:
        return "as the shape says"
    return "as the catalog has it" if _listed(words).stored == named_model(words).stored else "as the name says"


def _listed(name: str) -> ModelConfig:
    """Return the model of a name as the catalog has it."""
    if key := _found_key(name):
        return model_of(_names()[key])
    listed = model_names()
    raise _unknown(name, listed) if name else _nameless(listed)


def _unknown(name: str, listed: tuple[str, ...]) -> UsageError:
    """Build the error for a name that no model has: the nearest, others of its family, and where all are listed.

    Of a family whose layers are not modelled it says what they are.
    """
    if refused := next((reason for kind, reason in REFUSED.items() if _key(kind) in _key(name)), ""):
        return UsageError(
            f"the model {name!r} has {refused}, which are not modelled.",
            place="model",
            remedy="perfmodel models lists those that are; a shape of attention and MLPs describes a part of it.",
        )
    family = re.match(r"[a-z]*", name.strip().lower().rsplit("/", 1)[-1])
    alike = [one for one in listed if family and family[0] and one.startswith(family[0])]
    others = f"Those like it: {', '.join(alike)}." if alike else ""
    hint = " ".join(filter(None, (_meant(name, alike or listed), others)))
    remedy = f"{hint} perfmodel models lists all {len(listed)}, and a config.json or a shape describes any other."
    return UsageError(f"unknown model {name!r}.", place="model", remedy=remedy.strip())


def _meant(name: str, listed: Sequence[str]) -> str:
    """Return the model that a name may stand for, in words, or "": people leave out the last words of a name.

    Of "qwen3-nxt" two words are compared: "qwen3-next" of qwen3-next-80b-a3b is nearer than the whole of qwen3-8b.
    """
    words = re.split(r"[-_ ]+", name.strip().lower().rsplit("/", 1)[-1])
    starts: dict[str, list[str]] = {}  # the same number of words -> the models that begin with them
    for one in listed:
        starts.setdefault("-".join(one.split("-")[: len(words)]), []).append(one)
    near = difflib.get_close_matches("-".join(words), starts, n=1, cutoff=_BEGINS_ALIKE)
    if not near:
        return nearest(name, listed)
    begun = starts[near[0]]
    return nearest(name, begun) or f"Did you mean {begun[0]!r}?"


def _as_named(config: ModelConfig, name: str) -> ModelConfig:
    """Return a model with the format of the weights that its name ends with, if any."""
    lower = name.strip().lower()
    words = [*re.split(r"[-_ ]", lower), *re.findall(r"q\d_[0-9k](?:_[ms])?(?![a-z0-9])", lower)]
    stored = next((_FORMATS[word] for word in reversed(words) if word in _FORMATS), "")
    if stored == "int8" and _WEIGHT_ONLY & {*words}:
        stored = "w8a16"
    if _GGUF in words and not stored and not config.stored:
        return dataclasses.replace(config, remarks=(*config.remarks, _OF_ANY_FORMAT))
    own = not stored or config.stored.partition("_")[0] == stored.partition("_")[0]  # fp8_block is an fp8
    return config if own else dataclasses.replace(config, stored=stored)


def _nameless(listed: tuple[str, ...]) -> UsageError:
    example = _EXAMPLE if _EXAMPLE in listed else listed[0]
    return UsageError("no model is named.", place="model", remedy=f"Name a config.json, a shape, or {example}.")


def _spellings(name: str) -> list[str]:
    """Return the keys of a name: as it is, without its owner, then without what does not change the shape.

    That is endings, and at last words of tuning within a name: "mixtral-8x7b-instruct-v0.1".
    """
    lower = name.strip().lower()
    short = lower.rsplit("/", 1)[-1]
    keys = [_key(lower), _key(short)]
    while (cut := _ENDINGS.sub("", short)) != short:
        short = cut
        keys.append(_key(short))
    keys.append(_key(_WITHIN.sub("", short)))
    return [spelling for key in keys for spelling in (key, key.removeprefix("meta"))]


def _key(name: str) -> str:
    """Return the letters, digits and points of a name."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def model_names() -> tuple[str, ...]:
    """Return the names of the catalog, sorted."""
    return tuple(sorted(_entries()))


def aliases_of(name: str) -> tuple[str, ...]:
    """Return the other names of a model of the catalog."""
    entry = _entries()[name]
    return (*entry.get("aliases", ()), *(other for other in entry.get("language_of", ()) if other != name))


@functools.cache
def model_of(name: str) -> ModelConfig:
    """Return the model of a name exactly as the catalog has it."""
    entry = _entries()[name]
    sizes = {key: value for key, value in entry.items() if key not in _NO_SIZES}
    config = model_from_sizes(sizes, place=f"{entry['place']}: {name}", kind=InputFileError)
    return dataclasses.replace(config, name=name)


@functools.cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Return name -> the values of its file, with those that hold for the whole file."""
    entries: dict[str, Mapping[str, Any]] = {}
    for path in sorted(shipped_folder("model_specs").glob("*.toml")):
        document = read_document(path)
        shared = {key: value for key, value in document.items() if key != "models"}
        for name, own in document["models"].items():
            entries[name] = MappingProxyType({**shared, **own, "place": str(path)})
    return MappingProxyType(entries)


@functools.cache
def _names() -> Mapping[str, str]:
    """Return key of a name or alias -> name of the catalog."""
    entries = _entries()
    aliases = {_key(alias): name for name in entries for alias in aliases_of(name)}
    return MappingProxyType(aliases | {_key(name): name for name in entries})
