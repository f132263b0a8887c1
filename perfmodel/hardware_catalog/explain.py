"""What a message about the shape of a specification adds: what was found at a key, and what is allowed there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec

from perfmodel.errors import nearest
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


def found_and_allowed(document: Any, key: str, message: str) -> str:
    """Return what was found at a key, or what is allowed there, for a message of the reader; "" if it says all.

    Parameters
    ----------
    document : the parsed file.
    key : dotted key of the message; of the table, for an unknown key in it.
    message : "unknown key ...", "invalid enum value ..." or "expected ...".
    """
    unknown = re.match(r"unknown key '(.*)'", message)
    if unknown:
        allowed = _table(key).__struct_fields__
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
