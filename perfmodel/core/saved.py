"""Tables that were read from JSON, with the columns of the command that wrote them.

The ``report.py`` of a room has a function ``saved(table)`` for its commands: it takes a report whose columns are made
of the keys of its rows alone, and returns it as the command shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.core.report import Column, Report

#: rows of a ranking that people see, unless they ask for a number
SEEN = 10


def first_rows(table: Report, what: str) -> Report:
    """Return a ranking of which people see the first rows.

    Parameters
    ----------
    what : is ranked, in the plural.
    """
    rest = len(table.rows) - SEEN
    if rest <= 0:
        return table
    unlisted = f"{rest} more {what}: --top {len(table.rows)} of the command lists them."
    return replace(table, people_rows=table.rows[:SEEN], unlisted=unlisted)


def with_columns(table: Report, columns: Sequence[Column], **changes: Any) -> Report:
    """Return a table with other columns and other fields of a report, without the notes that the columns bring."""
    explained = {column.note for column in columns}
    notes = tuple(note for note in table.notes if note not in explained)
    return replace(table, **{"columns": tuple(columns), "notes": notes, **changes})


def with_tables(table: Report, **layouts: tuple[str, Sequence[Column]]) -> Report:
    """Return a table of whose further tables some have a title and columns, by their keys."""
    more = dict(table.more)
    for key in layouts.keys() & more.keys():
        title, columns = layouts[key]
        more[key] = with_columns(more[key], columns, title=title)
    return replace(table, more=more)
