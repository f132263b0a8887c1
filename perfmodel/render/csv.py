"""A report as CSV: full precision, SI base units, and the keys of the JSON format as column names."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.core.report import LongRows, blocks, finite

if TYPE_CHECKING:
    from perfmodel.core.report import GoesOn, Report

SUFFIXES = (".csv",)
#: types of most cells, which are asked for first: a sweep has tens of millions of cells
_PLAIN = frozenset({str, float, int, bool, type(None)})


def render(report: Report) -> str:
    """Return the rows of the report as CSV text; an unknown value is an empty cell.

    A mapping becomes one column ``key.inner`` for each inner key; a list becomes one cell, separated by semicolons.
    Column names have underscores instead of spaces.
    """
    return "".join(pieces(report, lambda rows: True))


def pieces(report: Report, goes_on: GoesOn) -> Iterator[str]:
    """Yield the same text a block of rows at a time.

    Parameters
    ----------
    report : the report.
    goes_on : is asked after each block.
    """
    report = report.more.get(report.csv_table, report)
    rows = report.rows
    heads = [rows.keys()] if isinstance(rows, LongRows) else rows
    header = _header(heads) or [column.key for column in report.columns if column.show_row is None]
    columns = _Columns({name: place for place, name in enumerate(header)})
    empty = [""] * len(header)
    yield _lines([header])
    for block in blocks(rows):
        yield _lines(_filled(empty.copy(), row, columns) for row in block)
        if not goes_on(len(block)):
            break


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _header(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all columns; a key with a mapping in some row has only columns of inner keys."""
    keys: dict[str, dict[str, None]] = {}
    plain: dict[str, set[str]] = {}  # inner keys whose columns are named
    for row in rows:
        for key, value in row.items():
            if key not in keys:
                keys[key], plain[key] = {}, set()
            if type(value) in _PLAIN or not isinstance(value, Mapping):
                continue
            if value.keys() <= plain[key] and _PLAIN.issuperset(map(type, value.values())):
                continue
            keys[key].update(_inner(value, _name(key)))
            plain[key].update(value)
    return [name for key, names in keys.items() for name in (names or [_name(key)])]


def _inner(row: Mapping[str, Any], prefix: str) -> dict[str, None]:
    """Return the names of the columns of a mapping within a row."""
    names: dict[str, None] = {}
    for key, value in row.items():
        name = f"{prefix}.{_name(key)}"
        names |= _inner(value, name) if isinstance(value, Mapping) else {name: None}
    return names


def _name(key: str) -> str:
    return str(key).replace(" ", "_")


class _Columns(dict[str, int]):
    """The places of the columns of keys, -1 for a key without one; ``inner`` has those of the keys of mappings."""

    def __init__(self, places: Mapping[str, int], prefix: str = "") -> None:
        super().__init__()
        self.places, self.prefix, self.inner = places, prefix, dict[str, _Columns]()

    def __missing__(self, key: str) -> int:
        place = self[key] = self.places.get(self.prefix + _name(key), -1)
        self.inner[key] = _Columns(self.places, f"{self.prefix}{_name(key)}.")
        return place


def _filled(cells: list[Any], row: Mapping[str, Any], columns: _Columns) -> list[Any]:
    """Fill the cells of a row at the places of its columns; what has no column is left out."""
    for key, value in row.items():
        place, kind = columns[key], type(value)
        if kind is str or kind is int:
            if place >= 0:
                cells[place] = value
        elif kind not in _PLAIN and isinstance(value, Mapping):
            _filled(cells, value, columns.inner[key])
        elif place >= 0:
            cells[place] = _cell(value)
    return cells


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else ""
    if isinstance(value, (list, tuple)):
        return ";".join(str(_cell(finite(item))) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value
