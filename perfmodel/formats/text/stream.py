"""Finds tables in the output of a profiler, between its banners, its progress and what the program itself printed.

A table is found by its header, never by its position. Cells are separated by commas, tabs, semicolons or bars, or stand
in columns under a rule of dashes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perfmodel.errors import InputFileError

_RULE = re.compile(r"\s*-{2,}(?:\s+-{2,})+\s*")
_BORDER = re.compile(r"\s*[|+][\s|+:-]*")
_GAP = re.compile(r"\s{2,}|\t")
_NUMBER = re.compile(r"\s*\"?[+-]?[\d.,]+")
#: a cell with nothing but a number, which no header has
_NUMBER_CELL = re.compile(r"[,;\t|] *\"?\d+\"? *[,;\t|]")
#: a quoted name may contain line ends, but over this many lines its closing quote is missing
_LONGEST_CELL_LINES = 200

IsHeader = Callable[[Sequence[str]], bool]
_Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class StreamTable:
    """One table of a stream.

    Attributes
    ----------
    banner : the last line of text above the table, which may name it.
    headers : as written, stripped of blanks.
    line : line number of the header.
    rows : line number and cells of each row, as many cells as headers.
    foreign : number of lines between its rows that are not rows.
    """

    banner: str
    headers: tuple[str, ...]
    line: int
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    foreign: int = 0


def tables(
    text: str,
    is_header: IsHeader,
    *,
    place: str,
    least: Callable[[Sequence[str]], int] = len,
    blank_ends: bool = True,
) -> list[StreamTable]:
    """Return every table of a text whose header is recognised.

    Parameters
    ----------
    text : the stream.
    is_header : whether the cells of a line are the header of a wanted table.
    place : the file, for messages.
    least : how many cells a row under these headers needs; missing cells after them are empty.
    blank_ends : whether a blank line ends a table. Otherwise only the next header does.

    Raises
    ------
    InputFileError
        When a row has too few or too many cells, or a quote is not closed: the file was cut off or edited.
    """
    # only these end a line: str.splitlines would also cut names at form feeds and the like
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    rules = _Rules(is_header, place, least, blank_ends)
    result, banner, number = [], "", 0
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        headers, split = _header(lines, number, is_header)
        if headers is None:
            if not _BORDER.fullmatch(lines[number]):
                banner = lines[number].strip()
            number += 1
            continue
        table, number = _read(lines, number, headers, split, banner, rules)
        result.append(table)
        banner = ""
    return result


@dataclass(frozen=True)
class _Rules:
    """The arguments of `tables`, by which rows are recognised."""

    is_header: IsHeader
    place: str
    least: Callable[[Sequence[str]], int]
    blank_ends: bool


def _header(lines: Sequence[str], number: int, is_header: IsHeader) -> tuple[tuple[str, ...] | None, _Split]:
    """Return the headers in a line, or None, and the function that splits the lines below it."""
    line = lines[number]
    for split in (_commas, _tabs, _bars, _semicolons):
        cells = [cell.strip() for cell in split(line)]
        if len(cells) > 1 and is_header(cells):
            return tuple(cells), split
    cells = [cell for cell in _GAP.split(line.strip()) if cell]
    if len(cells) > 1 and is_header(cells):
        rule = lines[number + 1] if number + 1 < len(lines) else ""
        return tuple(cells), _columns(rule if _RULE.fullmatch(rule) else "", len(cells))
    return None, _commas


def _commas(line: str) -> list[str]:
    return _delimited(line, ",")


def _tabs(line: str) -> list[str]:
    return _delimited(line, "\t")


def _semicolons(line: str) -> list[str]:
    return _delimited(line, ";")


def _delimited(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == ","), [])
    except csv.Error:
        # a cell of over 128 kB, or a lone line end: not a profiler's table
        return []


def _bars(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _columns(rule: str, count: int) -> _Split:
    """Return the function that splits a line of columns: at gaps, or below the rule if cells are empty."""
    spans = [match.span() for match in re.finditer("-+", rule)]

    def split(line: str) -> list[str]:
        cells = [cell.strip() for cell in _GAP.split(line.strip(), maxsplit=count - 1)]
        if len(cells) == count or len(spans) != count:
            return cells
        ends = [*(end for _, end in spans[:-1]), None]
        return [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]

    return split


def _read(
    lines: Sequence[str],
    number: int,
    headers: tuple[str, ...],
    split: _Split,
    banner: str,
    rules: _Rules,
) -> tuple[StreamTable, int]:
    """Read the rows below a header; return the table and the number of the first line after it."""
    rows: list[tuple[int, list[str]]] = []
    foreign, header_line, least = 0, number + 1, rules.least(headers)
    number += 1
    while number < len(lines) and (lines[number].strip() or not rules.blank_ends):
        line, taken = lines[number], 1
        if not line.strip() or _RULE.fullmatch(line) or _BORDER.fullmatch(line):
            number += 1
            continue
        if _may_be_header(line) and _header(lines, number, rules.is_header)[0] is not None:
            break
        if split in (_commas, _tabs, _semicolons):
            line, taken = _whole(lines, number, rules.place)
        cells = split(line)
        if _is_row(line, cells, headers, least, number, rules.place):
            rows.append((number + 1, [*(cell.strip() for cell in cells), *[""] * (len(headers) - len(cells))]))
        else:
            foreign += 1
        number += taken
    return StreamTable(banner, headers, header_line, rows, foreign), number


def _may_be_header(line: str) -> bool:
    """Whether a line may be a header, which has words alone; trying each row of a long table takes most of the time."""
    return _NUMBER.match(line) is None and _NUMBER_CELL.search(line) is None


def _whole(lines: Sequence[str], number: int, place: str) -> tuple[str, int]:
    """Return one row, whose quoted names may span several lines, and the number of its lines."""
    line, taken = lines[number], 1
    while line.count('"') % 2:
        if number + taken >= len(lines) or taken > _LONGEST_CELL_LINES:
            raise InputFileError(
                f"line {number + 1} opens a quote that is not closed.", place=place, remedy="Was the file cut off?"
            )
        line += "\n" + lines[number + taken]
        taken += 1
    return line, taken


def _is_row(line: str, cells: Sequence[str], headers: Sequence[str], least: int, number: int, place: str) -> bool:
    """Whether a line is a row; raise if it is an incomplete one."""
    if least <= len(cells) <= len(headers):
        return True
    if len(cells) > 1 and (_NUMBER.match(line) or line.lstrip().startswith('"')):
        raise InputFileError(
            f"line {number + 1} has {len(cells)} cells, but there are {len(headers)} columns.",
            place=place,
            remedy="Was the file cut off, or a name that contains commas not quoted?",
        )
    return False
