"""Plain tables from files: documents, objects a line, and text at the delimiter that its headers fit best."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.files import DOCUMENT_SUFFIXES, read_document, read_text
from perfmodel.formats.table.columns import find_name, time_columns
from perfmodel.formats.table.own import own_parts
from perfmodel.records.runs import format_of

_DELIMITERS = ",\t;|"
#: what Markdown has below its header, "|---|---:|", and around words: "**total**", "`gemm`"
_RULE, _EMPHASIS = re.compile(r"\|(?:\s*:?-+:?\s*\|)+"), re.compile(r"^(\*\*|`)(.+)\1$")


@dataclass(frozen=True)
class Table:
    """A table as written.

    Attributes
    ----------
    headers : the headers in order.
    rows : the place ("line 7") and the cells of each row.
    delimiter : what separates the cells; empty in a document.
    european : whether numbers have a decimal comma.
    """

    headers: list[str]
    rows: list[tuple[str, list[Any]]]
    delimiter: str = ""
    european: bool = False


def is_document(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a JSON, TOML or YAML document, by its suffix."""
    return storage.suffix_of(path) in DOCUMENT_SUFFIXES


def load_table(path: str | os.PathLike[str], place: str) -> Table:
    """Read a file as a document or as delimited text.

    Raises
    ------
    InputFileError
        When the file cannot be read, or holds no table.
    """
    if is_document(path):
        return from_document(read_document(path), place)
    return from_text(read_text(path), place)


def from_document(document: Any, place: str) -> Table:
    """Return the list of tables in a document.

    Raises
    ------
    InputFileError
        When it has no such list, or a row has no keys.
    """
    if isinstance(document, Mapping):
        if "traceEvents" in document:
            raise InputFileError(
                "is a trace of events, not a table.", place=place, remedy="Export a table of names and times from it."
            )
        lists = {key: value for key, value in document.items() if isinstance(value, list) and value}
        parts = own_parts(document, place)
        if parts is not None:
            document = parts
        elif "rows" not in document and (tool := format_of(document)) is not None:
            raise InputFileError(
                f"is a record of {tool.__name__.rpartition('.')[2]}, not a profile.",
                place=place,
                remedy="Compare it with another one: perfmodel compare BEFORE AFTER.",
            )
        else:
            document = lists.get("rows") or (next(iter(lists.values())) if len(lists) == 1 else None)
    if not isinstance(document, list) or not document:
        raise InputFileError(
            "holds no list of rows.",
            place=place,
            remedy='Write [{"name": "a", "time_ms": 1.5}, ...], or the same under "rows".',
        )
    for number, row in enumerate(document, start=1):
        if not isinstance(row, Mapping):
            raise InputFileError(
                f"row {number} is not a table with keys, but {str(row)[:40]!r}.",
                place=place,
                remedy="Give each row keys.",
            )
    headers = list(dict.fromkeys(str(key) for row in document for key in row))
    rows = [{str(key): value for key, value in row.items()} for row in document]
    return Table(headers, [(f"row {n}", [row.get(key) for key in headers]) for n, row in enumerate(rows, start=1)])


def from_text(text: str, place: str) -> Table:
    """Split delimited text at the delimiter under which its headers are best recognised.

    Raises
    ------
    InputFileError
        When the text has nothing but comments, or a line cannot be split.
    """
    lines = list(io.StringIO(text, newline=None))
    start = next((i for i, line in enumerate(lines) if line.strip() and not _is_comment(line)), None)
    if start is None:
        raise InputFileError("holds only comments and blank lines.", place=place)
    if lines[start].startswith("{"):
        return from_document(_json_lines(lines, place), place)
    # comments become blank lines, so that line numbers stay right
    body = [lines[start], *("\n" if line.lstrip().startswith("#") else line for line in lines[start + 1 :])]
    delimiter = max(_DELIMITERS, key=lambda mark: _recognised(lines[start], mark))
    if lines[start].startswith("|"):
        body = [_from_markdown(line) for line in body]
    rows = _split(body, delimiter, start, place)
    _, headers = next(rows, (0, []))
    # tables that were joined repeat their header
    return Table([header.strip() for header in headers], [row for row in rows if row[1] != headers], delimiter)


def _json_lines(lines: Sequence[str], place: str) -> list[Any]:
    """Return the documents of a text with one JSON document a line."""
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.extend([json.loads(line)] if line.strip() else [])
        except (ValueError, RecursionError) as error:
            remedy = "Write a JSON document a line, or name one of several lines FILE.json."
            raise InputFileError(f"line {number} is not valid JSON: {error}.", place=place, remedy=remedy) from None
    return rows


def _from_markdown(line: str) -> str:
    """Return a row of a Markdown table without its outer bars and emphasis, and its rule as a blank line."""
    if _RULE.fullmatch(line.strip()):
        return "\n"
    cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
    return "|".join(_EMPHASIS.sub(r"\2", cell) for cell in cells) + "\n"


def _is_comment(line: str) -> bool:
    """Whether a line is a comment, and not a header that starts with '#' as "# of Calls,Name,Time (ms)" does."""
    return line.lstrip().startswith("#") and max(_recognised(line, mark)[0] for mark in _DELIMITERS) < 2


def _recognised(line: str, delimiter: str) -> tuple[int, int]:
    """Return how many of name and time a header has under a delimiter, and its number of cells."""
    headers = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    return (find_name(headers) is not None) + bool(time_columns(headers)), len(headers)


def _split(lines: Sequence[str], delimiter: str, offset: int, place: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield place and cells of each row that is not blank; the first cell keeps the spaces that indent the row."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        before = reader.line_num
        line = offset + before + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputFileError(
                f"line {line} cannot be split: {error}.",
                place=place,
                remedy='Close each quote, and double a quote inside quotes: "".',
            ) from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            text = lines[before]
            cells[0] = " " * (len(text) - len(text.lstrip(" "))) + cells[0]
            yield f"line {line}", cells
