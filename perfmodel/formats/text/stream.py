"""Tables in a stream of text: what a profiler printed, between banners, progress and the program's own output.

A table is found by its header, never by its place. Cells stand between commas, tabs or bars, or in columns of
blanks under a rule of dashes.
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
#: a quoted name may hold line ends; more lines than this mean that the quote was never closed
_LONGEST_CELL_LINES = 200


IsHeader = Callable[[Sequence[str]], bool]
Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class StreamTable:
    """One table of a stream.

    Attributes
    ----------
    banner : the last line of text above it that says what it is.
    headers : as written, without the blanks around them.
    line : number of the header's line.
    rows : number of the line and cells; as many cells as headers.
    foreign : lines between its rows that are no rows.
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
    is_header : tells from the cells of a line whether it is a header of a table that is wanted.
    place : the file, for messages.
    least : how many cells a row under these headers must have; missing ones behind them are empty.
    blank_ends : a blank line ends a table; else only the next header does.

    Raises
    ------
    InputFileError
        When a row has too few or too many cells, or a quote is not closed: the file was cut off or edited.
    """
    # only these end a line: str.splitlines would also cut names at form feeds and the like
    form = _Form(is_header, place, least, blank_ends)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found, banner, number = [], "", 0
    while number < len(lines):
        headers, split = _header(lines, number, is_header)
        if headers is None:
            if lines[number].strip() and not _BORDER.fullmatch(lines[number]):
                banner = lines[number].strip()
            number += 1
            continue
        table, number = _read(lines, number, headers, split, banner, form)
        found.append(table)
        banner = ""
    return found


@dataclass(frozen=True)
class _Form:
    """What is asked of the tables of a stream."""

    is_header: IsHeader
    place: str
    least: Callable[[Sequence[str]], int]
    blank_ends: bool


def _header(lines: Sequence[str], number: int, is_header: IsHeader) -> tuple[tuple[str, ...] | None, Split]:
    """Return the headers in a line and how to split the lines under it; None where it is no header."""
    line = lines[number]
    for split in (_commas, _tabs, _bars):
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


def _delimited(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == ","), [])
    except csv.Error:
        # a cell of over 128 kB, or a lone line end: no table of a profiler
        return []


def _bars(line: str) -> list[str]:
    """Split between bars; the last cell is a name, which may hold some itself."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _columns(rule: str, count: int) -> Split:
    """Return how to split a line of columns: at gaps, or under the rule where cells are empty."""
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
    split: Split,
    banner: str,
    form: _Form,
) -> tuple[StreamTable, int]:
    """Read the rows under a header; return the table and the number of the first line behind it."""
    rows: list[tuple[int, list[str]]] = []
    foreign, header_line, least = 0, number + 1, form.least(headers)
    number += 1
    while number < len(lines) and (lines[number].strip() or not form.blank_ends):
        line, taken = lines[number], 1
        if not line.strip() or _RULE.fullmatch(line) or _BORDER.fullmatch(line):
            number += 1
            continue
        # headers start with a word, so the long tables of numbers are not tried for one at each row
        if not _NUMBER.match(line) and _header(lines, number, form.is_header)[0] is not None:
            break
        if split in (_commas, _tabs):
            line, taken = _whole(lines, number, form.place)
        cells = split(line)
        if _is_row(line, cells, headers, least, number, form.place):
            rows.append((number + 1, [*(cell.strip() for cell in cells), *[""] * (len(headers) - len(cells))]))
        else:
            foreign += 1
        number += taken
    return StreamTable(banner, headers, header_line, rows, foreign), number


def _whole(lines: Sequence[str], number: int, place: str) -> tuple[str, int]:
    """Join the lines of one row: a quoted name may hold line ends."""
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
    """Tell a row from a line of something else; raise for a row that is not whole."""
    if least <= len(cells) <= len(headers):
        return True
    if len(cells) > 1 and (_NUMBER.match(line) or line.lstrip().startswith('"')):
        raise InputFileError(
            f"line {number + 1} has {len(cells)} cells, but there are {len(headers)} columns.",
            place=place,
            remedy="Was the file cut off, or a name with commas not quoted?",
        )
    return False
