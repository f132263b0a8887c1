"""Operators: shapes in, FLOP and tensors out. One file each, found by its name and loaded when it is used.

``group_norm.py`` holds the class ``GroupNorm`` with ``op = "group_norm"``: the same words in CamelCase. The entry-point
group ``perfmodel.operators`` adds operators of other distributions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from perfmodel.core.record import quick_init
from perfmodel.errors import expect, unknown_name
from perfmodel.operators.base import Operator, wrong_dimensions
from perfmodel.plugins import load_attribute, module_names, warn_of_plugin

__all__ = ["Operator", "class_names", "load_class", "load_operator", "operator_classes", "operator_names", "spelled"]

#: modules of this folder that are not operators
HELPERS = (
    "base",
    "checks",
    "collective",
    "listing",
    "lookup",
    "moe_calls",
    "parse",
    "report",
    "routing",
    "scales",
    "spans",
    "states",
    "windows",
)


def _modules() -> Mapping[str, str]:
    return module_names(__name__, "operators", HELPERS)


@functools.cache
def operator_names() -> tuple[str, ...]:
    """Return the names of all operators, those of plugins among them, without importing any."""
    return tuple(sorted(_modules()))


def spelled(word: str) -> str:
    """Return how an operator that somebody writes with hyphens or capitals is named here: "rms_norm" for "RMS-norm"."""
    return word.replace("-", "_").lower()


def load_operator(name: str) -> type[Operator]:
    """Return the class of an operator by its name (``"layer_norm"``).

    Raises
    ------
    UsageError
        When there is no such operator.
    """
    expect(name, str, "name of an operator", place="name", remedy='Write "gemm".')
    kind = _load(name) if name in operator_names() else None
    if kind is None:
        raise unknown_name("operator", name, (other for other in operator_names() if other != name))
    return kind


def operator_classes() -> dict[str, type[Operator]]:
    """Return operator name -> class of all operators, which imports them; broken plugins are left out."""
    found = {name: _load(name) for name in operator_names()}
    return {name: kind for name, kind in found.items() if kind is not None}


@functools.cache
def _load(name: str) -> type[Operator] | None:
    """Import an operator; None, with a warning, for a plugin that does not hold what its name promises."""
    kind = load_attribute(name, _modules(), _class_name(name))
    if kind is None:
        return None
    if isinstance(kind, type) and issubclass(kind, Operator) and kind.op == name:
        return quick_init(kind, refuse=wrong_dimensions) if _is_written_by_dataclass(kind) else kind
    warn_of_plugin(name, _modules()[name], f"{_class_name(name)} is not an Operator with op = {name!r}")
    return None


def _is_written_by_dataclass(kind: type[Operator]) -> bool:
    """Whether a class has an `__init__` of its own that `dataclass` has written, and no author."""
    init = vars(kind).get("__init__")
    return init is not None and init.__code__.co_filename == "<string>"


def load_class(name: str) -> type[Operator]:
    """Return the class of an operator by its class name (``"LayerNorm"``).

    Raises
    ------
    KeyError
        When there is no such class.
    """
    kind = _load(class_names()[name])
    if kind is None:
        raise KeyError(name)
    return kind


@functools.cache
def class_names() -> dict[str, str]:
    """Return class name -> operator name of all operators."""
    return {_class_name(name): name for name in operator_names()}


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
