"""Inputs and results are values: none of them changes after it was made."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

ROOMS = ("core", "operators", "prediction", "investment")
#: what is changed step by step, or made very often, and never handed out
MUTABLE = {"Run", "ProductTime"}


def classes() -> list[type]:
    """The dataclasses that these rooms define."""
    found: dict[type, None] = {}
    for room in ROOMS:
        package = importlib.import_module(f"perfmodel.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == module.name:
                    found[kind] = None
    return [kind for kind in found if kind.__name__ not in MUTABLE and not inspect.isabstract(kind)]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_value_never_changes(kind: type) -> None:
    """Results are kept for a machine and shared, so that a changed figure would leave stale ones."""
    value, name = object.__new__(kind), dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, 1)
