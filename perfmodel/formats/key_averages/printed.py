"""``key_averages().table()``: the printed table, whose columns stand under rules of dashes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats.key_averages.rows import (
    NUMBERS,
    Row,
    Rows,
    parse_calls,
    parse_number,
    possible_time_s,
    with_shapes,
)
from perfmodel.formats.text.numbers import MISSING

#: blanks are those of one line: \s would run over all blank lines from each of them, which takes quadratic time
_HEADER = re.compile(r"^[ \t]*Name[ \t].*(?:Self CPU|# of Calls)", re.MULTILINE)
_RULE = re.compile(r"\s*-{3,}(?:\s+-{3,}){2,}\s*")
_TOTAL = re.compile(r"^[ \t]*Self (\w+) time total:[ \t]*([\d.]+)[ \t]*([mun]?s)[ \t\r]*$", re.MULTILINE)
_TIME = re.compile(r"(-?[\d.]+)\s*([munµμ]?s)")
_FLOP = re.compile(r"Total ([KMGTP]?)FLOPs")
_FLOP_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def has_table(text: str) -> bool:
    """Whether a text has the header of such a table."""
    return _HEADER.search(text) is not None


def find_header(lines: Sequence[str]) -> int | None:
    """Return the index of the line with the headers, or None."""
    return next((index for index, line in enumerate(lines) if _HEADER.match(line)), None)


def read_table(lines: Sequence[str], at: int, place: str) -> Rows:
    """Return the rows and totals of the table whose headers are in line ``at``.

    Raises
    ------
    InputFileError
        When the table has no rows or no times, its headers do not fit its columns, or a time is damaged.
    """
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
    result = Rows()
    for number, line in enumerate(lines[at + 1 :], start=at + 2):
        if not line.strip() or _RULE.fullmatch(line):
            continue
        if _TOTAL.match(line):
            break
        cells = _split(line, spans, len(headers))
        if cells is None or not cells[columns.name]:
            result.skipped["line that is not a row"] += 1
            continue
        result.rows.append(columns.row(cells, f"{place}, line {number}"))
    if not result.rows:
        raise InputFileError("the table has no rows.", place=place, remedy="Was the file cut off?")
    below = lines[at + 1 :]
    other = find_header(below)
    if other is not None:
        result.notes.append("The file has several tables; the first one is counted, since others may sum the same run.")
    _read_totals("\n".join(below[:other]), result)
    return result


def _read_totals(below: str, result: Rows) -> None:
    """Set the totals that the profiler prints below the table."""
    for kind, value, unit in _TOTAL.findall(below):
        total_s = parse_quantity(f"{value} {unit}", "s") if NUMBERS.parse(value) is not None else None
        if kind == "CPU":
            result.cpu_total_s = total_s
        else:
            result.device_total_s = total_s


def _split(line: str, spans: Sequence[tuple[int, int]], count: int) -> list[str] | None:
    """Return the cells of a line, split at gaps or below the rule; None if it is not a row."""
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
    """Positions of the columns in a printed table; -1 for one that is missing."""

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
        """Return the columns of a header, or None if none of them holds times."""
        device = next(
            (i for i, h in enumerate(headers) if re.fullmatch(r"Self (?!CPU)\w+", h) and not h.endswith("Mem")), -1
        )
        flop = next(((i, m.group(1)) for i, h in enumerate(headers) if (m := _FLOP.fullmatch(h))), (-1, ""))

        def at(header: str) -> int:
            return headers.index(header) if header in headers else -1

        columns = cls(
            name=at("Name"),
            calls=at("# of Calls"),
            self_cpu=at("Self CPU"),
            cpu_total=at("CPU total"),
            self_device=device,
            flop=flop[0],
            flop_scale=_FLOP_SCALE[flop[1]],
            shapes=at("Input Shapes"),
        )
        return columns if columns.name >= 0 and max(columns.self_cpu, columns.self_device) >= 0 else None

    def row(self, cells: Sequence[str], where: str) -> Row:
        """Return the row in some cells."""
        cpu_s, cpu_total_s, device_s = (
            _time_s(cells[index], where) if index >= 0 else 0.0
            for index in (self.self_cpu, self.cpu_total, self.self_device)
        )
        flop = parse_number(cells[self.flop]) if self.flop >= 0 else None
        return Row(
            with_shapes(cells[self.name], cells[self.shapes] if self.shapes >= 0 else ""),
            parse_calls(cells[self.calls]) if self.calls >= 0 else None,
            cpu_s,
            device_s,
            # a kernel takes no time on the CPU
            on_device=device_s > 0 and cpu_s == 0 and cpu_total_s == 0,
            flop=flop * self.flop_scale if flop else None,
        )


def _time_s(cell: str, where: str) -> float:
    """Return the time in a cell with its unit [s]; 0 for a cell without a value."""
    if cell.strip().lower() in MISSING:
        return 0.0
    match = _TIME.fullmatch(cell.strip())
    value = NUMBERS.parse(match.group(1)) if match else None
    if match is None or value is None:
        raise InputFileError(f"{cell[:40]!r} is not a time with a unit (us, ms, s).", place=where)
    try:
        unit = parse_quantity(f"1 {match.group(2)}", "s")
    except PerfModelError as error:
        raise InputFileError(str(error), place=where) from None
    return possible_time_s(value * unit, cell, where)
