"""The models of the catalog as a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.workloads.catalog import aliases_of, model_names, model_of, named_model
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class ModelListing(Reportable):
    """Several models of the catalog, by name.

    Attributes
    ----------
    models : the models.
    asked_as : name -> the other name that holds the words, of models whose own name does not.
    """

    models: tuple[ModelConfig, ...]
    asked_as: Mapping[str, str] = field(default_factory=dict)


def list_models(words: Sequence[str] = ()) -> ModelListing:
    """Return the models whose names, or other names, hold some words, in any case; all of them without words.

    One word may be any name that `named_model` takes, as "meta-llama/Llama-3.1-8B-Instruct".

    Raises
    ------
    UsageError
        When no name holds all of them; for one word the message has the nearest name.
    """

    def holds(name: str) -> bool:
        return all(word.lower() in name.lower() for word in words)

    others = {name: next(filter(holds, aliases_of(name)), "") for name in model_names() if not holds(name)}
    found = [name for name in model_names() if others.get(name, name)]
    if not found and len(words) == 1:
        name = named_model(words[0]).name
        return ModelListing((model_of(name),), {name: words[0]})
    if not found:
        raise UsageError(
            f"no model of the catalog holds {' and '.join(map(repr, words))}.", remedy="perfmodel models lists all."
        )
    return ModelListing(tuple(map(model_of, found)), {name: other for name, other in others.items() if other})
