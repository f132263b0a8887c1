"""Tables of a page: every column of a report, and how its numbers are made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column, Report, finite
from perfmodel.prediction.explain import meaning
from perfmodel.render.html.origins import error_meanings, origins_of
from perfmodel.render.html.packing import View, packed

#: rows beyond these are left out of a page, and counted
MOST_ROWS = 20_000
#: rows from which a table is packed
_PACKED_ROWS = 300
#: the headings of the first table
TITLES = {
    "analyze": "Operators", "bench": "Measured operators", "train": "Training step", "serve": "Loads",
    "search serve": "Deployments", "search train": "Set-ups", "whatif": "Steps", "diagnose": "Dimensions",
    "roi": "Changes, ranked", "capture": "Operators by module", "monitor": "Readings", "compare": "Changes of time",
    "project": "Parts", "validate": "Errors", "models": "Models", "operators": "Operators",
    "hardware list": "Machines", "hardware show": "Specification",
}  # fmt: skip


def table_view(report: Report, key: str = "") -> View:
    """Return a table with every column, and how its numbers are made.

    The texts of columns that format themselves stand beside their values. Values that terms and inputs of a number are
    read from stay mappings.
    """
    columns = [column for column in report.columns if _has_values(column, report.rows)]
    origins = origins_of(report.command, {column.key for column in columns} | _all_keys(report))
    used = {name for origin in origins.values() for name in (*origin["inputs"], origin["terms"]) if name}
    hidden = [Column(name, shown=False) for name in sorted(used - {column.key for column in columns})]
    columns = [*columns, *(column for column in hidden if _has_values(column, report.rows))]
    custom = [column for column in columns if column.show or column.show_row or column.fit]
    texts = {id(column): len(columns) + index for index, column in enumerate(custom)}
    rows = [
        [*(_cell_value(row.get(column.key), column.key in used) for column in columns), *(c.cell(row) for c in custom)]
        for row in list(report.rows)[:MOST_ROWS]
    ]
    view: View = {
        "kind": "table",
        "key": key or report.command,
        "title": _title(report, key),
        "columns": [
            {
                "key": column.key, "title": column.heading, "unit": column.unit, "shown": column.shown,
                "text": texts.get(id(column)), "prose": column.prose, "origin": origins.get(column.key),
            }
            for column in columns
        ],
        "meanings": _meanings(report.rows, used),
        "left_out": max(0, len(report.rows) - MOST_ROWS),
    }  # fmt: skip
    return view | _rows_of(rows)


def _title(report: Report, key: str) -> str:
    """Return the heading of a table: its own where it is a further one, else by the command or by its key."""
    return (report.title or key.replace("_", " ").capitalize()) if key else TITLES.get(report.command, "Rows")


def _all_keys(report: Report) -> set[str]:
    return {key for row in list(report.rows)[:50] for key, value in row.items() if _is_given(value)}


def _rows_of(rows: list[list[Any]]) -> View:
    """Return rows as they are, or many of them packed."""
    if len(rows) < _PACKED_ROWS:
        return {"rows": rows}
    text = json.dumps([finite(row) for row in rows], ensure_ascii=False, separators=(",", ":"))
    return {"packed": packed(text.encode()), "count": len(rows)}


def _meanings(rows: Sequence[Mapping[str, Any]], used: set[str]) -> dict[str, str]:
    """Return term -> meaning, for the terms of the rows."""
    if not used & {"predicted_terms_s", "interval_shares"}:
        return {}
    terms = {str(term) for row in rows[:MOST_ROWS] for term in (row.get("predicted_terms_s") or {})}
    known = {term: meaning(term) for term in sorted(terms)}
    return {term: text for term, text in known.items() if text} | error_meanings()


def _has_values(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(_is_given(row.get(column.key)) for row in rows)


def _is_given(value: Any) -> bool:
    """Whether a value is neither unknown nor empty; numbers of NumPy cannot be compared with a list."""
    return isinstance(value, (bool, int, float)) or value not in (None, "", [], {})


def _cell_value(value: Any, structured: bool) -> Any:
    """Return a value that JSON and the script can sort: lists and mappings become text, unless terms are read off."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if structured and isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_cell_value(item, False)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(_cell_value(item, False)) for item in value)
    return str(value)
