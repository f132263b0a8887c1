"""Fields of many events as arrays. `attrgetter` and `map` take half the time of a loop over the attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from perfmodel.formats.torch_trace.events import Arguments, Event
from perfmodel.operators.checks import LARGEST_SIZE
from perfmodel.profile.timeline import Floats, Ints

#: a whole number with fewer digits fits into 64 bits
_MOST_DIGITS = 19
_EXTERNAL, _OLD_EXTERNAL = attrgetter("external_id"), attrgetter("old_external_id")
_BYTES, _REGISTERS = attrgetter("bytes"), attrgetter("registers")


def ints(values: Sequence[int | tuple[int, ...]]) -> Ints:
    """Return whole numbers as an array."""
    return np.array(values, dtype=np.int64)


def floats(events: list[Event], field: attrgetter[Any]) -> Floats:
    """Return a field of each event, NaN where it is missing."""
    try:
        return np.fromiter(map(field, events), np.float64, len(events))
    except TypeError:  # some are None
        return np.array(list(map(field, events)), dtype=np.float64)


def ids(arguments: list[Arguments], field: attrgetter[Any]) -> Ints:
    """Return a number of each event's arguments, which all have."""
    return np.fromiter(map(field, arguments), np.int64, len(arguments))


def external_ids(arguments: list[Arguments]) -> Ints:
    """Return the id of the operator that each event belongs to, or -1; under the old name of the key 0 means none."""
    new = ids(arguments, _EXTERNAL)
    has_new = new >= 0
    if has_new.all():
        return new
    old = ids(arguments, _OLD_EXTERNAL)
    return np.where(has_new, new, np.where(old > 0, old, -1))


def sizes_in_bytes(arguments: list[Arguments]) -> Floats:
    """Return the bytes of each event, NaN without any; ROCm writes them as text."""
    if set(map(_BYTES, arguments)) <= {None}:
        return np.full(len(arguments), np.nan)
    values = [float(a.bytes) if type(a.bytes) is str and a.bytes.isdecimal() else a.bytes for a in arguments]
    numbers = np.array([None if type(value) is str else value for value in values], dtype=np.float64)
    return np.where((numbers >= 0) & (numbers <= LARGEST_SIZE), numbers, np.nan)


def number(value: object) -> int:
    """Return a number of a stream, device or process, which some programs write as text; -1 for other texts."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _MOST_DIGITS else -1


def numbers(values: list[Any]) -> Ints:
    """Return `number` of each value."""
    return ints(values if set(map(type, values)) <= {int} else list(map(number, values)))


def registers(arguments: list[Arguments]) -> Floats:
    """Return the registers of a thread of each event, NaN where it does not say."""
    values = list(map(_REGISTERS, arguments))
    if not set(map(type, values)) <= {float}:
        values = [value if type(value) is float else math.nan for value in values]
    return np.array(values, dtype=np.float64)
