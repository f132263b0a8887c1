"""What operators there are, and which dimensions they have, for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perfmodel.core.docstrings import docstring
from perfmodel.core.report import Reportable
from perfmodel.operators import Operator, load_operator, operator_classes, operator_names, spelled

#: parameters that every operator has
COMMON = ("dtype", "engine", "name", "count")


@dataclass(frozen=True)
class Dimension:
    """One dimension of an operator; the attributes are the keys of the rows.

    Attributes
    ----------
    name, kind : its name, and whether it is a size, a number, a flag, a choice, a dtype.
    default : its default as it is written on the command line; empty where it has to be given, or follows from others.
    required : whether it has to be given.
    allowed : the names of a choice.
    meaning : what it is.
    """

    name: str
    kind: str
    default: str
    required: bool
    allowed: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class OperatorInfo(Reportable):
    """One operator: its name, what it does in a sentence, and its dimensions in their order."""

    name: str
    summary: str
    dimensions: tuple[Dimension, ...]

    @property
    def usage(self) -> str:
        """The operator as it is written on the command line: required dimensions, others with their defaults.

        Those whose default follows from others stand in brackets.
        """
        required = [item.name for item in self.dimensions if item.required]
        others = [item for item in self.dimensions if not item.required]
        return " ".join(
            [*required, *(f"{item.name}={item.default}" if item.default else f"[{item.name}]" for item in others)]
        )


@dataclass(frozen=True)
class OperatorListing(Reportable):
    """Several operators."""

    operators: tuple[OperatorInfo, ...]


def describe_operator(name: str) -> OperatorInfo:
    """Return an operator and its dimensions; its name may be written with hyphens and capitals.

    Raises
    ------
    UsageError
        When there is no such operator; the message names the nearest.
    """
    return _described(load_operator(spelled(name) if spelled(name) in operator_names() else name))


def _described(kind: type[Operator]) -> OperatorInfo:
    summary = docstring(kind).partition("\n")[0].replace("`", "")
    return OperatorInfo(kind.op, summary, tuple(_dimensions(dataclasses.fields(kind))))


def list_operators() -> OperatorListing:
    """Return all operators, in the order of their names."""
    return OperatorListing(tuple(map(_described, operator_classes().values())))


def _dimensions(fields: Iterable[dataclasses.Field[Any]]) -> Iterable[Dimension]:
    for field in sorted(fields, key=lambda field: field.name in COMMON):
        rules = field.metadata
        required = field.default is dataclasses.MISSING
        yield Dimension(
            field.name,
            str(rules["kind"]),
            "" if required else _written(field.default),
            required,
            tuple(rules.get("allowed", ())),
            str(rules.get("doc", "")),
        )


def _written(default: object) -> str:
    """Return a default as it is written on the command line; empty for one that follows from other dimensions."""
    return "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
