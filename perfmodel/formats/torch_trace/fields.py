"""Fields of many events as arrays. A list of one attribute takes half the time that `map` with `attrgetter` does."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from perfmodel.formats.packed import floats, ints
from perfmodel.formats.torch_trace.events import Arguments
from perfmodel.operators.checks import LARGEST_SIZE
from perfmodel.profile.timeline import Floats, Ints

#: a whole number with fewer digits fits into 64 bits
_MOST_DIGITS = 19


def external_ids(arguments: list[Arguments]) -> Ints:
    """Return the id of the operator that each event belongs to, or -1; under the old name of the key 0 means none."""
    new = ints([one.external_id for one in arguments])
    has_new = new >= 0
    if has_new.all():
        return new
    old = ints([one.old_external_id for one in arguments])
    return np.where(has_new, new, np.where(old > 0, old, -1))


def sizes_in_bytes(arguments: list[Arguments]) -> Floats:
    """Return the bytes of each event, NaN without any; ROCm writes them as text."""
    told = [one.bytes for one in arguments]
    if told.count(None) == len(told):
        return np.full(len(told), np.nan)
    values = [float(value) if type(value) is str and value.isdecimal() else value for value in told]
    numbers = np.array([None if type(value) is str else value for value in values], dtype=np.float64)
    return np.where((numbers >= 0) & (numbers <= LARGEST_SIZE), numbers, np.nan)


def number(value: object) -> int:
    """Return a number of a stream, device or process, which some programs write as text; -1 for other texts."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else -1
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _MOST_DIGITS else -1


def numbers(values: list[Any]) -> Ints:
    """Return `number` of each value."""
    try:
        return ints(values)
    except struct.error:  # some are texts
        return ints([number(value) for value in values])


def registers(arguments: list[Arguments]) -> Floats:
    """Return the registers of a thread of each event, NaN where it does not say."""
    told = [one.registers for one in arguments]
    if told.count(None) == len(told):
        return np.full(len(told), np.nan)
    return floats([value if type(value) is float else math.nan for value in told])
