"""Frozen dataclasses that take no longer to make than others.

A frozen dataclass sets every field by a call of `object.__setattr__`, which takes six times as long as a write to the
instance's dictionary. One prediction makes about forty fields, so that this was a third of its time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[Kind]) -> type[Kind]:
    """Return a class as ``dataclass(frozen=True)`` does, with an `__init__` that writes to the instance's dictionary.

    >>> @record
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0), Point(1.0) == Point(1.0, 0.0)
    (Point(x=1.0, y=0.0), True)
    """
    return quick_init(dataclass(frozen=True)(kind))


def quick_init(kind: type[Kind], *, refuse: Callable[[type, Mapping[str, Any]], Exception] | None = None) -> type[Kind]:
    """Give a dataclass an `__init__` that writes to the instance's dictionary, and return the class.

    Parameters
    ----------
    kind : the dataclass.
    refuse : returns the error for a call with these fields, one of which is unknown, or which lack one, or for one
        with values that have no names; without it, that is Python's TypeError. A call that is right takes no longer
        for it.
    """
    usual = vars(kind)["__init__"]
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # what the decorator adds is unknown to it
    values: dict[str, Any] = {"MISSING": MISSING, "refuse": refuse}
    for item in fields:
        values[f"default_{item.name}"] = item.default
        values[f"factory_{item.name}"] = item.default_factory
    lines = _source(fields, refuses=refuse is not None, then="__post_init__" if hasattr(kind, "__post_init__") else "")
    exec("\n".join(lines), values)  # noqa: S102 -- as `dataclasses` and `namedtuple` make theirs
    quick = values["__init__"]
    quick.__annotations__, quick.__doc__ = usual.__annotations__, usual.__doc__
    quick.__qualname__, quick.__module__ = usual.__qualname__, kind.__module__
    quick.__wrapped__ = usual  # whose signature people see
    kind.__init__ = quick  # type: ignore[method-assign]
    return kind


def _source(fields: tuple[dataclasses.Field[Any], ...], *, refuses: bool, then: str) -> Iterator[str]:
    """Yield the lines of an `__init__` for some fields, which ends with a call of the method ``then``."""
    parameters, needed = ["self"], []
    for at, item in enumerate(fields):
        if item.kw_only and not (at and fields[at - 1].kw_only):
            parameters.append("*nameless" if refuses else "*")
        if item.default is not MISSING:
            parameters.append(f"{item.name}=default_{item.name}")
        elif refuses or item.default_factory is not MISSING:
            parameters.append(f"{item.name}=MISSING")
            needed += [item.name] if item.default_factory is MISSING else []
        else:
            parameters.append(item.name)
    yield f"def __init__({', '.join([*parameters, *(['**unknown'] if refuses else [])])}):"
    yield " values = self.__dict__"
    for item in fields:
        if item.default_factory is not MISSING:
            yield f" if {item.name} is MISSING: {item.name} = factory_{item.name}()"
        yield f" values[{item.name!r}] = {item.name}"
    if refuses:
        nameless = ["nameless"] if "*nameless" in parameters else []
        missing = " or ".join([*nameless, "unknown", *(f"{name} is MISSING" for name in needed)])
        yield f" if {missing}:"
        yield "  given = {name: value for name, value in values.items() if value is not MISSING}"
        yield "  raise refuse(type(self), given | unknown)"
    if then:
        yield f" self.{then}()"
