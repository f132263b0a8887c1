"""Rows of ``key_averages()`` and the cells that its table and its events share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import InputFileError
from perfmodel.formats.text.numbers import LONGEST_TIME_S, NumberFormat, whole_count

#: PyTorch prints decimal points on every system, and no marks between thousands
NUMBERS = NumberFormat()
#: the profiler subtracts times that are rounded to 1 ns, so the self time of a row may fall just below zero
_BELOW_ZERO_S = -1e-6


@dataclass(frozen=True)
class Row:
    """One row: an operator or a range, or, if ``on_device``, a kernel or copy. Times [s] are of all calls."""

    name: str
    calls: int | None
    self_cpu_s: float
    device_s: float
    on_device: bool
    flop: float | None = None


@dataclass
class Rows:
    """All rows of a file, its totals if it has them [s], and what was noted and skipped while reading."""

    rows: list[Row] = field(default_factory=list)
    cpu_total_s: float | None = None
    device_total_s: float | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def with_shapes(name: str, shapes: str) -> str:
    """Return a name followed by the shapes, if rows are grouped by shape."""
    return name if shapes in ("", "[]", "()") else f"{name} {shapes}"


def parse_number(value: Any) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return NUMBERS.parse(str(value))


def parse_calls(value: Any) -> int | None:
    """Return a number of calls, or None."""
    number = parse_number(value)
    return None if number is None else whole_count(number)


def possible_time_s(time_s: float, shown: str, where: str) -> float:
    """Return a time; 0 for one that rounding left just below zero.

    Raises
    ------
    InputFileError
        When it is negative, or over 30 years.
    """
    if _BELOW_ZERO_S < time_s < 0:
        return 0.0
    if not 0 <= time_s <= LONGEST_TIME_S:
        raise InputFileError(f"the time {shown[:40]!r} is negative or over 30 years.", place=where)
    return time_s
