"""Checks of what a deployment is given: whatever is impossible has one message."""

from __future__ import annotations

import math

import numpy as np

from perfmodel.errors import UsageError, unknown_name
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.state_layer import DTYPES

#: where the values are, for messages
_PLACE = "deployment"


def check_counts(**counts: object) -> None:
    """Raise a UsageError for a number by name that is given, and no whole number above 0."""
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{name}={value!r} is not a whole number above 0.", place=_PLACE)


def check_texts(**texts: object) -> None:
    """Raise a UsageError for a name or a format that is no text."""
    for name, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}={value!r} is no text.", place=_PLACE)


def check_switch(name: str, switch: object) -> None:
    """Raise a UsageError unless a switch is on, off or not given."""
    if switch is not None and not isinstance(switch, bool):
        raise UsageError(f"{name}={switch!r} is neither true nor false.", place=_PLACE)


def check_utilization(share: object) -> None:
    """Raise a UsageError for a share of the memory that is given, and none."""
    if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1):
        raise UsageError(
            f"a share of the memory of {share!r} is not within 0 to 1.",
            place=_PLACE,
            remedy="Give more than 0, as 0.9, which is usual.",
        )


def check_decoder(config: ModelConfig) -> None:
    """Raise a UsageError for a model that does not write one token after the other, and for encoders of text."""
    if (config.encoder_layers and not config.encoder_positions) or not config.architecture.causal:
        raise UsageError(
            f"{config.name or config.model_type} has an encoder of text; served are decoders, which write text, alone "
            "or after an encoder of sound (Whisper).",
            place=_PLACE,
            remedy="perfmodel train predicts it; capture counts a forward pass.",
        )


def check_encoder(config: ModelConfig, engine: str, pp: int, speculation: bool) -> None:
    """Raise a UsageError for what engines do not do with a model that has an encoder.

    vLLM's class of Whisper has no pipeline, and no draft; llama.cpp does not read it.
    """
    if not config.encoder_positions:
        return
    wrong = [f"pp={pp}"] * (pp > 1) + ["speculative decoding"] * speculation
    if engine.startswith("llama.cpp"):
        wrong.append(f"the engine {engine}")
    if wrong:
        raise UsageError(
            f"{config.name or config.model_type} has an encoder of sound, which is not served with "
            f"{' and '.join(wrong)}.",
            place=_PLACE,
            remedy="Leave it out: vLLM serves such models with tp and dp.",
        )


def check_prefix(config: ModelConfig, prefix: object) -> None:
    """Raise a UsageError for a cached prefix of prompts whose keys depend on what an encoder gives."""
    if config.encoder_positions and np.any(np.asarray(prefix, dtype=np.float64) > 0):
        raise UsageError(
            f"{config.name or config.model_type} has an encoder of sound: keys of its prompts depend on the sound, and "
            "no cache has them.",
            place="prefix",
            remedy="Leave the prefix at 0.",
        )


def check_keys(config: ModelConfig, kv: str, usual: str, kv_tokens: int | None) -> None:
    """Raise a UsageError for a format or a room of keys and values where no layer keeps any."""
    if config.attending_layers:
        return
    given = [f"kv={kv!r}"] * (kv != usual) + [f"kv_tokens={kv_tokens}"] * (kv_tokens is not None)
    if given:
        raise UsageError(
            f"{config.name or config.model_type} keeps no keys and values, and {' and '.join(given)} is given.",
            place=_PLACE,
            remedy="Leave it out.",
        )


def check_states(config: ModelConfig, dtype: str) -> None:
    """Raise a UsageError for a dtype of states that is unknown, or of a model that keeps none; "" is none given."""
    if dtype and not config.has_states:
        raise UsageError(
            f"{config.name or config.model_type} keeps no states, and states={dtype!r} is given.",
            place=_PLACE,
            remedy="Leave it out; --kv is the format of keys and values.",
        )
    if dtype and dtype not in DTYPES:
        raise unknown_name("dtype of states", dtype, DTYPES, place=_PLACE)


def check_length(config: ModelConfig, tokens: float) -> None:
    """Raise a UsageError for a sequence longer than the model's positions; a model may not say how many it has."""
    if 0 < config.positions < tokens:
        raise UsageError(
            f"a sequence of {math.ceil(tokens)} tokens is longer than the model's {config.positions} positions.",
            place=_PLACE,
            remedy="Use shorter prompts or answers.",
        )
