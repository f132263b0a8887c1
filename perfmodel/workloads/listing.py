"""The models of the catalog as a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.workloads.catalog import model_names, model_of
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class ModelListing(Reportable):
    """Several models of the catalog, by name."""

    models: tuple[ModelConfig, ...]


def list_models(words: Sequence[str] = ()) -> ModelListing:
    """Return the models whose names hold some words, in any case; all of them without words.

    Raises
    ------
    UsageError
        When no name holds all of them.
    """
    found = [name for name in model_names() if all(word.lower() in name for word in words)]
    if not found:
        raise UsageError(
            f"no model of the catalog holds {' and '.join(map(repr, words))}.", remedy="perfmodel models lists all."
        )
    return ModelListing(tuple(map(model_of, found)))
