"""Operators: shapes in, FLOP and tensors out. One file each, found by name and loaded when asked for."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from perfmodel.errors import unknown_name
from perfmodel.operators._base import REGISTRY, Operator

__all__ = ["Operator", "class_names", "load_class", "load_operator", "operator_names"]


@functools.cache
def operator_names() -> tuple[str, ...]:
    """Return the names of all operators: the modules of this package, found without importing them."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load_operator(name: str, *, place: str = "") -> type[Operator]:
    """Return the class of an operator by its name (``"layer_norm"``).

    Raises
    ------
    UsageError
        When there is no such operator.
    """
    if name not in operator_names():
        raise unknown_name("operator", name, operator_names(), place=place)
    importlib.import_module(f"{__name__}.{name}")
    return REGISTRY[name]


def load_class(name: str) -> type[Operator]:
    """Return the class of an operator by its class name (``"LayerNorm"``).

    Raises
    ------
    KeyError
        When there is no such class.
    """
    return load_operator(class_names()[name])


@functools.cache
def class_names() -> dict[str, str]:
    """Class name -> operator name: the same stem in CamelCase."""
    return {"".join(part.capitalize() for part in name.split("_")): name for name in operator_names()}
