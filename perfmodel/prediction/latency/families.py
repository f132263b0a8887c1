"""The latency families by name and by operator.

A family is one file, or one package, of this folder, or the module that an entry point of the group
``perfmodel.latency`` names. The file states which operators each of its families serves, as a plain dictionary, and
holds the families:

    SERVES = {"layer_norm": ("layer_norm", "rms_norm")}
    FAMILIES = (Family("layer_norm", ...),)

An operator that no family serves, and any operator on a CPU, is predicted by the roofline.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Mapping
from importlib.abc import InspectLoader
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import anywhere, everywhere
from perfmodel.operators.base import Operator
from perfmodel.plugins import load_attribute, load_module, module_names, warn_of_plugin
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, always
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Term

_PACKAGE = "perfmodel.prediction.latency"
_ROOFLINE = "roofline"
#: beginning of the names of families of PyTorch's kernels (`perfmodel.prediction.latency.eager`), and its own name
_EAGER, _EAGER_LIBRARY = "eager_", "torch"
#: those of what PyTorch has no kernel for and runs as a chain of kernels, each of which writes its result to memory
_CHAINS = ("eager_conversion",)
#: operators -> the families beside these that are PyTorch's for some of their calls (`Family.for_pytorch`)
_ALSO = {
    "rms_norm": ("layer_norm",),
    "attention": ("attention_prefill", "attention_decode"),
    "reduction": ("reduction",),
}
_SERVES = re.compile(r"^SERVES\b[^=\n]*=\s*(\{.*?\})", re.MULTILINE | re.DOTALL)


class _Index(NamedTuple):
    """Where families are: family -> file, operator -> families."""

    files: Mapping[str, str]
    families: Mapping[str, tuple[str, ...]]


@functools.cache
def _files() -> Mapping[str, str]:
    return module_names(_PACKAGE, "latency")


@functools.cache
def _own() -> _Index:
    """Index perfmodel's own families by reading their files, since importing all of them would slow every start."""
    return _index((name, _read_serves(module)) for name, module in _files().items() if module.startswith(_PACKAGE))


@functools.cache
def _plugins() -> _Index:
    """Index the families of plugins. They are imported only for a name that perfmodel itself does not know."""
    claims = []
    for name, module in _files().items():
        if module.startswith(_PACKAGE) or load_attribute(name, _files(), "FAMILIES") is None:
            continue
        serves = load_attribute(name, _files(), "SERVES") or {}
        taken = [op for ops in serves.values() for op in ops if op in _own().families]
        if taken:
            warn_of_plugin(name, module, f"perfmodel has a latency family for {', '.join(taken)} already")
        else:
            claims.append((name, serves))
    return _index(claims)


def _index(claims: Any) -> _Index:
    files: dict[str, str] = {}
    families: dict[str, tuple[str, ...]] = {}
    for file, serves in claims:
        for name, operators in serves.items():
            files[name] = file
            for op in operators:
                families[op] = (*families.get(op, ()), name)
    return _Index(MappingProxyType(files), MappingProxyType(families))


def _read_serves(module: str) -> Mapping[str, tuple[str, ...]]:
    """Return the dictionary ``SERVES`` of a module without importing it; none for modules that hold no family."""
    spec = importlib.util.find_spec(module)
    source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
    match = _SERVES.search(source or "")
    return ast.literal_eval(match[1]) if match else {}


def family_names() -> tuple[str, ...]:
    """Return the names of perfmodel's own families, and of those of plugins."""
    return (*_own().files, *_plugins().files)


def has_family(name: str) -> bool:
    """Return whether there is a family of this name; plugins are imported only if perfmodel has none."""
    return name in _own().files or name in _plugins().files


@functools.cache
def family(name: str) -> Family:
    """Return a family by its name.

    Raises
    ------
    KeyError
        When there is none.
    """
    index = _own() if name in _own().files else _plugins()
    module = load_module(index.files[name], _files())
    families: tuple[Family, ...] = getattr(module, "FAMILIES", ())
    return next(item for item in families if item.name == name)


@functools.cache
def _serving(op: str) -> tuple[str, ...]:
    """Return the names of the families that serve an operator, given by its name; the roofline if there is none."""
    return _own().families.get(op) or _plugins().families.get(op) or (_ROOFLINE,)


@functools.cache
def _eager(op: str) -> tuple[str, ...]:
    """Return the names of the families of PyTorch's kernels for an operator that other libraries have others for."""
    return (*(name for name in _serving(op) if name.startswith(_EAGER)), *_ALSO.get(op, ()))


def families_of(op: Operator, machine: Machine, kind: str, library: str = "") -> list[tuple[Any, Family]]:
    """Return the families of an operator, each with the mask of the points that it is for (True for all that are left).

    Tiles, waves and warps belong to GPUs, so that a CPU (``kind="cpu"``) uses the roofline where no family is for CPUs.
    So does a kind of kernel that no family is for.
    """
    parts: list[tuple[Any, Family]] = []
    on_cpu = kind == "cpu"
    for name in _serving(op.op):  # a family is imported when those before it leave points
        item = family(name)
        if item.on_cpu is not None and item.on_cpu is not on_cpu:
            continue
        mask = item.applies(op, machine, library)
        if everywhere(mask):
            return [*parts, (True, item)]
        if anywhere(mask):
            parts.append((mask, item))
    if parts and everywhere(functools.reduce(np.logical_or, (mask for mask, _ in parts))):
        return parts
    return [*parts, (True, family(_ROOFLINE))]


def family_of_any_size(op: Operator, machine: Machine, kind: str, library: str = "") -> Family | None:
    """Return the family that `choices_of` and `families_of` find for an operator of any sizes; None where they decide.

    It is None, too, where that is the roofline.
    """
    for name in _serving(op.op):
        item = family(name)
        if item.chooses is not None or (item.by_size and item.applies is not always):
            return None
        if item.on_cpu in (None, kind == "cpu") and item.applies(op, machine, library):
            return item
    return None


def has_eager(op: str) -> bool:
    """Return whether an operator, given by its name, has families of PyTorch's own kernels."""
    return bool(_eager(op))


def eager_points(op: Operator, machine: Machine, kind: str, library: str = "") -> Any:
    """Return the points of an operator that some family of PyTorch's own kernels is for, a mask.

    A library that is named has no chain of them, and one that is named for its kernel (`Family.kernels`) has that.
    """
    families = [family(name) for name in _eager(op.op) if not (library and name in _CHAINS)]
    others = [item for item in families if library not in item.kernels]
    if not others or kind == "cpu":
        return False
    return functools.reduce(np.logical_or, (_is_pytorchs(item, op, machine) for item in others))


def _is_pytorchs(item: Family, op: Operator, machine: Machine) -> Any:
    own = item.name.startswith(_EAGER) or item.for_pytorch(op)
    return own & np.asarray(item.applies(op, machine, _EAGER_LIBRARY)) if anywhere(own) else False


@functools.cache
def varied_families(op: str) -> tuple[str, ...]:
    """Return the names of the families of an operator, given by its name, whose kernels differ from library to library.

    Those kernels are of different designs, and have a constant that is another one, `Constant.unmeasured`, where no
    table has rows of a library's.
    """
    designs = [name for name in _serving(op) if family(name).by_library]
    return tuple(name for name in designs if any(one.unmeasured is not None for one in family(name).constants))


def choices_of(op: Operator, machine: Machine, kind: str, conditions: Conditions) -> list[tuple[Any, Conditions]]:
    """Return the points of a call as masks, and the conditions that name the kernel of each, by what a library chooses.

    Raises
    ------
    UsageError
        When the machine has no kernel of the name.
    """
    first = family(_serving(op.op)[0])
    if first.chooses is None or first.on_cpu not in (None, kind == "cpu"):
        return [(True, conditions)]
    return first.chooses(op, machine, conditions)


def serving(op: str) -> tuple[Family, ...]:
    """Return the families that serve an operator, given by its name."""
    return tuple(family(name) for name in _serving(op))


@functools.cache
def known_terms() -> Mapping[str, Term]:
    """Return every term that a prediction may have by its name, in the order of the limiters; loads all families."""
    terms: dict[str, Term] = {}
    for name in family_names():
        for term in family(name).all_terms:
            terms.setdefault(str(term), term)
    order = {limiter: place for place, limiter in enumerate(Limiter)}
    return MappingProxyType(dict(sorted(terms.items(), key=lambda item: order[item[1].limiter])))
