"""Rows of ``key_averages()``: from the text of its table, or from its events as JSON or CSV."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats.table.reader import LONGEST_TIME_S
from perfmodel.formats.text.numbers import MISSING, NumberFormat

_RULE = re.compile(r"-{3,}(?:\s+-{3,}){2,}\s*")
_TOTAL = re.compile(r"^Self (\w+) time total:\s*([\d.]+)\s*([mun]?s)\s*$", re.MULTILINE)
_TIME = re.compile(r"(-?[\d.]+)\s*([munµμ]?s)")
_FLOP = re.compile(r"Total ([KMGTP]?)FLOPs")
_FLOP_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_NUMBERS = NumberFormat()
#: attributes of FunctionEventAvg, new names and old; times are microseconds
_SELF_DEVICE = ("self_device_time_total", "self_cuda_time_total", "self_xpu_time_total")
_SELF_CPU = ("self_cpu_time_total",)
_NAME = ("key", "name", "Name")
_COUNT = ("count", "calls", "# of Calls")
_KEY = re.compile(r"\b(?:" + "|".join((*_SELF_DEVICE, *_SELF_CPU)) + r")\b")
_HEADER = re.compile(r"^\s*Name\s.*(?:Self CPU|# of Calls)", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One row: an operator, a range, or, ``on_device``, a kernel or copy. Times in s, over all calls."""

    name: str
    calls: int | None
    self_cpu_s: float
    device_s: float
    on_device: bool
    flop: float | None = None


@dataclass
class Rows:
    """All rows of a file, its totals where it has some [s], and what is said of it."""

    rows: list[Row] = field(default_factory=list)
    cpu_total_s: float | None = None
    device_total_s: float | None = None
    notes: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def sniff_text(head: str) -> bool:
    """Tell whether a text starts as a table or a list of events does."""
    return _HEADER.search(head) is not None or (_KEY.search(head) is not None and "traceEvents" not in head)


def read_rows(text: str, place: str) -> Rows:
    """Return the rows of a text of any of the three kinds.

    Raises
    ------
    InputFileError
        When there is no table, or a time in it is none.
    """
    start = text.lstrip()[:1]
    if start in ("[", "{"):
        return _from_events(_json_events(text, place), place)
    lines = text.replace("\r\n", "\n").split("\n")
    at = next((index for index, line in enumerate(lines) if _HEADER.match(line)), None)
    if at is not None:
        return _from_table(text, lines, at, place)
    header = next((index for index, line in enumerate(lines) if _KEY.search(line)), None)
    if header is None:
        raise InputFileError(
            "has no table of key_averages().",
            place=place,
            remedy="Save print(prof.key_averages().table(row_limit=-1)).",
        )
    try:
        return _from_events(csv.DictReader(lines[header:]), place)
    except csv.Error as error:
        raise InputFileError(f"cannot be split: {error}.", place=place, remedy="Was the file cut off?") from None


def _json_events(text: str, place: str) -> Iterable[Mapping[str, Any]]:
    """Return the events of a JSON document: a list, or the only list in an object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"is not valid JSON: {error}.", place=place, remedy="Was the file cut off?") from None
    if isinstance(document, Mapping):
        lists = [value for value in document.values() if isinstance(value, list) and value]
        document = lists[0] if len(lists) == 1 else None
    if not isinstance(document, list) or not all(isinstance(event, Mapping) for event in document):
        raise InputFileError(
            "holds no list of events of key_averages().", place=place, remedy="Write a list of objects."
        )
    return document


def _from_events(events: Iterable[Mapping[str, Any]], place: str) -> Rows:
    """Return the rows of events with the attributes of FunctionEventAvg."""
    found = Rows()
    for number, event in enumerate(events, start=1):
        name = _first(event, _NAME)
        if name is None:
            found.skipped["an event without a name"] += 1
            continue
        where = f"{place}, event {number}"
        device_s, cpu_s = (_microseconds(_first(event, keys), where) for keys in (_SELF_DEVICE, _SELF_CPU))
        kind = str(event.get("device_type", ""))
        on_device = bool(kind) and "CPU" not in kind.upper() and kind != "0"
        on_device |= not kind and device_s > 0 and cpu_s == 0 and not _positive(event.get("cpu_time_total"))
        calls = _number(_first(event, _COUNT))
        flop = _number(event.get("flops"))
        shapes = event.get("input_shapes")
        found.rows.append(
            Row(
                _with_shapes(str(name), "" if shapes is None else str(shapes)),
                int(calls) if calls is not None and 0 <= calls < 2**53 else None,
                cpu_s,
                device_s,
                on_device,
                flop if flop else None,
            )
        )
    return found


def _with_shapes(name: str, shapes: str) -> str:
    """Return a name with the shapes behind it, where the rows are told apart by them."""
    return name if shapes in ("", "[]", "()") else f"{name} {shapes}"


def _first(event: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((event[key] for key in keys if event.get(key) not in (None, "")), None)


def _number(value: Any) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return _NUMBERS.parse(str(value))


def _positive(value: Any) -> bool:
    number = _number(value)
    return number is not None and number > 0


def _microseconds(value: Any, where: str) -> float:
    """Return a time given in microseconds [s]; 0 where there is none."""
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return 0.0
    number = _number(value)
    if number is None:
        raise InputFileError(f"the time {str(value)[:40]!r} is not a number of microseconds.", place=where)
    return _possible(number * 1e-6, str(value), where)


def _possible(time_s: float, shown: str, where: str) -> float:
    """Return a time that can be one; the profiler's rounding may leave a self time just below zero."""
    if -1e-6 < time_s < 0:
        return 0.0
    if not 0 <= time_s <= LONGEST_TIME_S:
        raise InputFileError(f"the time {shown[:40]!r} is negative or over 30 years.", place=where)
    return time_s


def _from_table(text: str, lines: Sequence[str], at: int, place: str) -> Rows:
    """Return the rows of a printed table: its columns stand under rules of dashes."""
    rule = next((line for line in (*lines[max(0, at - 1) : at], *lines[at + 1 : at + 2]) if _RULE.fullmatch(line)), "")
    spans = [match.span() for match in re.finditer("-+", rule)]
    headers = re.split(r"\s{2,}", lines[at].strip())
    if spans and len(spans) != len(headers):
        raise InputFileError(
            f"line {at + 1} has {len(headers)} headers over {len(spans)} columns.",
            place=place,
            remedy="Print it again.",
        )
    columns = _Columns.of(headers)
    if columns is None:
        raise InputFileError(
            f"line {at + 1} has no column 'Self CPU' or 'Self CUDA' with times.",
            place=place,
            remedy="Print all columns.",
        )
    found = Rows()
    for number, line in enumerate(lines[at + 1 :], start=at + 2):
        if not line.strip() or _RULE.fullmatch(line):
            continue
        if _TOTAL.match(line):
            break
        cells = _split(line, spans, len(headers))
        if cells is None or not cells[columns.name]:
            found.skipped["a line that is no row"] += 1
            continue
        found.rows.append(columns.row(cells, f"{place}, line {number}"))
    if not found.rows:
        raise InputFileError("the table has no rows.", place=place, remedy="Was the file cut off?")
    for kind, value, unit in _TOTAL.findall(text):
        total_s = parse_quantity(f"{value} {unit}", "s") if _NUMBERS.parse(value) is not None else None
        if kind == "CPU":
            found.cpu_total_s = total_s
        else:
            found.device_total_s = total_s
    return found


def _split(line: str, spans: Sequence[tuple[int, int]], count: int) -> list[str] | None:
    """Return the cells of a line: between gaps, or under the rule; None for a line that is no row."""
    cells = re.split(r"\s{2,}", line.strip())
    if len(cells) == count:
        return cells
    if len(cells) > count:
        # a name with two blanks in it
        extra = len(cells) - count
        return ["  ".join(cells[: extra + 1]), *cells[extra + 1 :]]
    if not spans or len(line.rstrip()) < spans[-1][0]:
        return None
    return [line[start:end].strip() for start, end in spans]


@dataclass(frozen=True)
class _Columns:
    """Where the columns of a printed table stand; -1 for one that is not there."""

    name: int
    calls: int
    self_cpu: int
    cpu_total: int
    self_device: int
    flop: int
    flop_scale: float
    shapes: int

    @classmethod
    def of(cls, headers: Sequence[str]) -> _Columns | None:
        """Return the columns of a header, None where none of them holds times."""
        device = next(
            (i for i, h in enumerate(headers) if re.fullmatch(r"Self (?!CPU)\w+", h) and not h.endswith("Mem")), -1
        )
        flop = next(((i, m.group(1)) for i, h in enumerate(headers) if (m := _FLOP.fullmatch(h))), (-1, ""))

        def at(header: str) -> int:
            return headers.index(header) if header in headers else -1

        columns = cls(
            at("Name"),
            at("# of Calls"),
            at("Self CPU"),
            at("CPU total"),
            device,
            flop[0],
            _FLOP_SCALE[flop[1]],
            at("Input Shapes"),
        )
        return columns if columns.name >= 0 and max(columns.self_cpu, columns.self_device) >= 0 else None

    def row(self, cells: Sequence[str], where: str) -> Row:
        """Return what a row's cells say."""
        cpu_s, cpu_total_s, device_s = (
            _time(cells[index], where) if index >= 0 else 0.0
            for index in (self.self_cpu, self.cpu_total, self.self_device)
        )
        calls = _number(cells[self.calls]) if self.calls >= 0 else None
        flop = _number(cells[self.flop]) if self.flop >= 0 else None
        return Row(
            _with_shapes(cells[self.name], cells[self.shapes] if self.shapes >= 0 else ""),
            int(calls) if calls is not None and 0 <= calls < 2**53 else None,
            cpu_s,
            device_s,
            device_s > 0 and cpu_s == 0 and cpu_total_s == 0,
            flop * self.flop_scale if flop else None,
        )


def _time(cell: str, where: str) -> float:
    """Return a time with its unit [s]; 0 where a cell says nothing."""
    if cell.strip().lower() in MISSING:
        return 0.0
    match = _TIME.fullmatch(cell.strip())
    value = _NUMBERS.parse(match.group(1)) if match else None
    if match is None or value is None:
        raise InputFileError(f"{cell[:40]!r} is not a time with a unit (us, ms, s).", place=where)
    try:
        return _possible(value * parse_quantity(f"1 {match.group(2)}", "s"), cell, where)
    except InputFileError:
        raise
    except PerfModelError as error:
        raise InputFileError(str(error), place=where) from None
