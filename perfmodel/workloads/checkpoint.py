"""What lies beside a ``config.json`` in the folder of a checkpoint: how it is quantised, and how many bytes it has."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.core.units import format_large, format_si
from perfmodel.errors import PerfModelError
from perfmodel.files import read_document
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.quantization import OTHER, stored_format

#: files that say how a checkpoint is quantised where its config.json does not (modelopt), and that list its tensors
QUANTISED, INDICES = "hf_quant_config.json", ("model.safetensors.index.json", "pytorch_model.bin.index.json")
#: keys of the encoders of images and sound in a configuration, whose weights are no part of the language model
ENCODERS = ("vision_config", "audio_config", "visual", "vision_tower", "mm_vision_tower", "thinker_config")
#: difference between the bytes of an index and those of the parameters that is worth a word: names of tensors, buffers
#: and a padded table of tokens explain less
NOTABLE = 0.02
#: bytes of a parameter by the dtype that a configuration states; 16 bits where it states none
_DTYPE_BYTES = {"float32": 4.0, "float64": 8.0}
_USUAL_BYTES = 2.0
_KEYS_OF_MORE_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
#: most that these layers add to the parameters, as a share of them: assumed
_MORE_LAYERS = 0.1


def with_checkpoint(config: ModelConfig, document: Mapping[str, Any], folder: str) -> ModelConfig:
    """Return a model with what the files of its folder say, and remarks where they contradict its configuration.

    Parameters
    ----------
    config, document : the model, and the keys of its ``config.json``.
    folder : where that lies.
    """
    if not config.stored and (quantised := _beside(folder, QUANTISED)):
        found = stored_format({"quantization_config": quantised})
        config = dataclasses.replace(config, stored=found.format, stored_words=f"{found.words} ({QUANTISED})")
    remarks = (*config.remarks, *_bytes_remarks(config, document, folder))
    return dataclasses.replace(config, remarks=remarks)


def _beside(folder: str, name: str) -> Mapping[str, Any]:
    """Return the keys of a file in a folder; none where it is missing or no table of keys."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    try:
        document = read_document(path)
    except PerfModelError:
        return {}
    return document if isinstance(document, Mapping) else {}


def _bytes_remarks(config: ModelConfig, document: Mapping[str, Any], folder: str) -> Iterator[str]:
    """Yield a remark where ``total_size`` of an index is not what the parameters take."""
    for name in INDICES:
        metadata = _beside(folder, name).get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
        if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < 1e18:
            continue
        least, most = _believed_bytes(config, document)
        if least * (1.0 - NOTABLE) <= total <= most * (1.0 + NOTABLE):
            return
        nearest = least if total < least else most
        apart = f"{abs(total / nearest - 1.0):.0%} {'less' if total < least else 'more'}"
        span = format_si(nearest, "B") if least == most else f"{format_si(least, 'B')} to {format_si(most, 'B')}"
        yield (
            f"{name} states {format_si(float(total), 'B')}, {apart} than the {format_large(config.parameters)} "
            f"parameters of the config take ({span}): is it the index of another checkpoint, or are parts of the model "
            "not counted?"
        )
        return


def _believed_bytes(config: ModelConfig, document: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the most bytes that the checkpoint may have [B].

    Encoders, and layers that predict further tokens, come beside what is counted; an embedding that is the head may be
    stored twice; of a quantised checkpoint some matrices stay in 16 bits.
    """
    stated = str(document.get("dtype") or document.get("torch_dtype") or "").removeprefix("torch.")
    each = _DTYPE_BYTES.get(stated, _USUAL_BYTES)
    narrow = each
    if config.stored == OTHER:
        narrow = 0.0
    elif config.stored:
        narrow = 0.5 if "4" in config.stored else 1.0
    parameters = float(config.parameters)
    twice = float(config.vocab * config.hidden) if config.tied else 0.0
    more = 1.0 + _MORE_LAYERS * any(document.get(key) for key in _KEYS_OF_MORE_LAYERS)
    most = float("inf") if any(document.get(key) for key in ENCODERS) else (parameters + twice) * each * more
    return parameters * narrow, most
