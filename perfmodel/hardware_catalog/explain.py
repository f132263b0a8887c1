"""What a message about the shape of a specification adds: what was found at a key, and what is allowed there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec

from perfmodel.errors import InputFileError, nearest
from perfmodel.hardware_catalog import schema
from perfmodel.prediction.latency.tables import LatencySpec

#: first part of a key -> what its table may hold; "" is the file itself
_TABLES: Mapping[str, type[msgspec.Struct]] = MappingProxyType(
    {
        "": schema.HardwareSpec,
        "chip": schema.ChipSpec,
        "memory": schema.MemorySpec,
        "peak": schema.RateSpec,
        "link": schema.LinkSpec,
        "launch": schema.LaunchSpec,
        "kernels": schema.KernelsSpec,
        "cluster": schema.ClusterSpec,
        "sustained": schema.SustainedSpec,
        "latency": LatencySpec,
    }
)
#: longer values are cut in messages [characters]
_LONGEST = 60


def explained(message: str, place: str, *, nested: bool = False) -> InputFileError:
    """Turn msgspec's message into ours, with the place; `found_and_allowed` adds to it.

    ``nested`` says that ``place`` ends with a key already.
    """
    where = re.search(r" - at `(.*)`$", message)
    key = where.group(1).removeprefix("$").lstrip(".") if where else ""
    text = message[: where.start()] if where else message
    full = f"{place}{'.' if nested else ': '}{key}" if key else place
    unknown = re.search(r"unknown field `(.*)`", text)
    if unknown:
        return InputFileError(f"unknown key {unknown.group(1)!r}.", place=full)
    missing = re.search(r"missing required field `(.*)`", text)
    if missing:
        return InputFileError(f"the key {missing.group(1)!r} is missing.", place=full)
    return InputFileError(f"{text[0].lower()}{text[1:]}.", place=full)


def found_and_allowed(document: Any, key: str, message: str, struct: type[msgspec.Struct] | None = None) -> str:
    """Return what was found at a key, or what is allowed there, for a message of the reader; "" if it says all.

    Parameters
    ----------
    document : the parsed file.
    key : dotted key of the message; of the table, for an unknown key in it.
    message : "unknown key ...", "invalid enum value ..." or "expected ...".
    struct : what the table of the key may hold, if it is none of a specification.
    """
    unknown = re.match(r"unknown key '(.*)'", message)
    if unknown:
        allowed = (struct or _table(key)).__struct_fields__
        return f"{nearest(unknown.group(1), allowed)} Allowed: {', '.join(allowed)}.".strip()
    if message.startswith("invalid enum value"):
        table, _, name = key.rpartition(".")
        return f"Allowed: {', '.join(map(repr, _words(table, name)))}."
    if message.startswith("expected"):
        with contextlib.suppress(KeyError):  # an entry of a table or list that the message does not name
            return f"Found: {_shortened(_value_at(document, key))}."
    return ""


def _table(key: str) -> type[msgspec.Struct]:
    """Return what the table of a dotted key may hold."""
    parts = key.split(".")
    if parts[0] == "link" and "collective" in parts:
        return schema.ExchangeSpec
    return _TABLES.get(parts[0], schema.HardwareSpec)


def _words(key: str, name: str) -> tuple[str, ...]:
    """Return the words that a key of a table may have; none if they are not listed."""
    types = get_type_hints(_table(key), include_extras=False)
    return tuple(map(str, get_args(types.get(name))))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _value_at(document: Any, key: str) -> Any:
    parent, name = find(document, key)
    return parent[name]


def find(document: Any, key: str) -> tuple[Any, Any]:
    """Return what holds the value of a dotted key, and its name there; names may have dots in them.

    Raises
    ------
    KeyError
        When there is no such key.
    """
    head, bracket, index = key.partition("[")
    if bracket and index.rstrip("]").isdigit():
        parent, name = find(document, head)
        return parent[name], int(index.rstrip("]"))
    parts = key.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if isinstance(document, dict) and name in document:
            rest = ".".join(parts[count:])
            return find(document[name], rest) if rest else (document, name)
    raise KeyError(key)
