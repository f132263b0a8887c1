"""Frozen dataclasses that take no longer to make than others.

A frozen dataclass sets every field by a call of `object.__setattr__`, which takes six times as long as a write to the
instance's dictionary. One prediction makes about forty fields, so that this was a third of its time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
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
    made = dataclass(frozen=True)(kind)
    usual = vars(made)["__init__"]
    fields = dataclasses.fields(made)  # type: ignore[arg-type]  # what the decorator adds is unknown to it
    values: dict[str, Any] = {"MISSING": MISSING}
    for item in fields:
        values[f"default_{item.name}"] = item.default
        values[f"factory_{item.name}"] = item.default_factory
    exec("\n".join(_source(fields)), values)  # noqa: S102 -- as `dataclasses` and `namedtuple` make theirs
    quick = values["__init__"]
    quick.__annotations__, quick.__doc__ = usual.__annotations__, usual.__doc__
    quick.__qualname__, quick.__module__ = usual.__qualname__, made.__module__
    made.__init__ = quick  # type: ignore[method-assign]
    return made


def _source(fields: tuple[dataclasses.Field[Any], ...]) -> Iterator[str]:
    """Yield the lines of an `__init__` for some fields."""
    parameters = ["self"]
    for item in fields:
        given = f"=default_{item.name}" if item.default is not MISSING else ""
        parameters.append(item.name + (given or ("=MISSING" if item.default_factory is not MISSING else "")))
    yield f"def __init__({', '.join(parameters)}):"
    yield " values = self.__dict__"
    for item in fields:
        if item.default_factory is not MISSING:
            yield f" if {item.name} is MISSING: {item.name} = factory_{item.name}()"
        yield f" values[{item.name!r}] = {item.name}"
