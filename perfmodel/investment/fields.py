"""Checked values of a parsed document: each function takes a value, its key and its place in the file.

All of them raise `InputFileError` for a value of another type or out of range.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, UsageError, unknown_name
from perfmodel.operators.base import Operator
from perfmodel.operators.parse import build_operator


def check_keys(table: Iterable[object], allowed: Collection[str], place: str) -> None:
    """Check that a table has no key but those allowed; the first other one is named, with those that are.

    >>> check_keys({"tpp": 8}, ("tp", "pp"), "plan.toml")
    Traceback (most recent call last):
    perfmodel.errors.InputFileError: plan.toml: unknown key 'tpp'. Did you mean 'tp'? Allowed: pp, tp.
    """
    for key in table:
        if key not in allowed:
            raise unknown_name("key", str(key), allowed, place=place, kind=InputFileError)


def check_names(named: Sequence[tuple[str, str]]) -> None:
    """Check that no two of some things, given as name and place, have one name."""
    seen: set[str] = set()
    for name, place in named:
        if name in seen:
            raise InputFileError(f"the name {name!r} is used twice.", place=place, remedy="Give each its own name.")
        seen.add(name)


def table(value: Any, place: str) -> Mapping[str, Any]:
    """Return a table."""
    if not isinstance(value, Mapping):
        raise InputFileError(f"is not a table, but {str(value)[:40]!r}.", place=place)
    return value


def text(value: Any, key: str, place: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise InputFileError(f"{key} is not a text, but {str(value)[:40]!r}.", place=place)
    return value


def texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    """Return a list of texts, or a single one, as a tuple."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(text, str) for text in values):
        raise InputFileError(f"{key} is not a list of texts, but {str(value)[:40]!r}.", place=place)
    return tuple(values)


def number(value: Any, key: str, place: str) -> float:
    """Return a number; one too large for a float becomes infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputFileError(f"{key} is not a number, but {str(value)[:40]!r}.", place=place)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def positive(value: Any, key: str, place: str) -> float:
    """Return a finite number above 0."""
    checked = number(value, key, place)
    if not 0 < checked < math.inf:
        raise InputFileError(f"{key} is {checked:g}.", place=place, remedy="It has to be above 0 and finite.")
    return checked


def count(value: Any, key: str, place: str) -> int:
    """Return a whole number above 0."""
    checked = positive(value, key, place)
    if not checked.is_integer():
        raise InputFileError(f"{key} is {checked:g}.", place=place, remedy="It has to be a whole number.")
    return int(checked)


def fraction(value: Any, key: str, place: str) -> float:
    """Return a fraction above 0 and up to 1."""
    checked = positive(value, key, place)
    if checked > 1:
        raise InputFileError(f"{key} is {checked:g}.", place=place, remedy="It is a fraction, above 0 and up to 1.")
    return checked


def operator(value: Any, key: str, place: str) -> Operator:
    """Return an operator written as a table: {op = "attention", heads = 32, ...}."""
    if not isinstance(value, Mapping) or not isinstance(value.get("op"), str):
        raise InputFileError(
            f"{key} names no operator.", place=place, remedy='Write {op = "attention", heads = 32, ...}.'
        )
    try:
        return build_operator(value["op"], {name: size for name, size in value.items() if name != "op"})
    except UsageError as error:
        raise InputFileError(error.message, place=place, remedy=error.remedy) from None


def seconds(value: Any, key: str, place: str) -> float:
    """Return a time written with its unit [s]."""
    if not isinstance(value, str) or value.strip()[-1:].isdigit():
        raise InputFileError(f"{key} is {value!r}, without a unit.", place=place, remedy="Write it as in '12 ms'.")
    try:
        return parse_quantity(value, "s")
    except UsageError as error:
        raise InputFileError(f"{key}: {error.message}", place=place, remedy=error.remedy) from None


def duration(value: Any, key: str, place: str) -> float:
    """Return a time written with its unit that is not negative [s]."""
    checked = seconds(value, key, place)
    if not checked >= 0:
        raise InputFileError(f"{key} is {value!r}.", place=place, remedy="A time is 0 s or longer.")
    return checked
