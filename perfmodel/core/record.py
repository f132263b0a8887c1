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
    # names of its own begin with two underscores, as those of no field do
    values: dict[str, Any] = {"__missing": MISSING, "__refuse": refuse, "__type": type}
    for item in fields:
        values[f"__default_{item.name}"] = item.default
        values[f"__factory_{item.name}"] = item.default_factory
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
            parameters.append("*__nameless" if refuses else "*")
        if item.default is not MISSING:
            parameters.append(f"{item.name}=__default_{item.name}")
        elif refuses or item.default_factory is not MISSING:
            parameters.append(f"{item.name}=__missing")
            needed += [item.name] if item.default_factory is MISSING else []
        else:
            parameters.append(item.name)
    yield f"def __init__({', '.join([*parameters, *(['**__unknown'] if refuses else [])])}):"
    yield " __values = self.__dict__"
    for item in fields:
        if item.default_factory is not MISSING:
            yield f" if {item.name} is __missing: {item.name} = __factory_{item.name}()"
        yield f" __values[{item.name!r}] = {item.name}"
    if refuses:
        nameless = ["__nameless"] if "*__nameless" in parameters else []
        missing = " or ".join([*nameless, "__unknown", *(f"{name} is __missing" for name in needed)])
        yield f" if {missing}:"
        yield "  __given = {name: value for name, value in __values.items() if value is not __missing}"
        yield "  raise __refuse(__type(self), __given | __unknown)"
    if then:
        yield f" self.{then}()"
