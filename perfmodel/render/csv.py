"""A report as CSV: full precision, SI base units, and the keys of the JSON format as column names."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".csv",)


def render(report: Report) -> str:
    """Return the rows of the report as CSV text; an unknown value is an empty cell.

    A mapping becomes one column ``key.inner`` for each inner key; a list becomes one cell, separated by semicolons.
    Column names have underscores instead of spaces.
    """
    report = report.more.get(report.csv_table, report)
    rows = report.as_json()["rows"]
    header = _header(rows) or [column.key for column in report.columns if column.show_row is None]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, header, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_flatten, rows))
    return stream.getvalue()


def _header(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all columns; a key with a mapping in some row has only columns of inner keys."""
    keys: dict[str, dict[str, None]] = {}
    for row in rows:
        for key, value in row.items():
            names = keys.setdefault(key, {})
            names.update(dict.fromkeys(_flatten({key: value})) if isinstance(value, Mapping) else {})
    return [name for key, names in keys.items() for name in (names or [_name(key)])]


def _name(key: str) -> str:
    return key.replace(" ", "_")


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in which each mapping is replaced by its items, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{_name(key)}.{inner}": item for inner, item in _flatten(value).items()}
        else:
            flat[_name(key)] = _cell(value)
    return flat


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ";".join(str(_cell(item)) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value
