"""SQLite files that profilers write: opened for reading alone, with tables and columns that differ by release."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.formats.text.numbers import LONGEST_TIME_S
from perfmodel.storage import gzipped

#: start of every SQLite 3 file (https://www.sqlite.org/fileformat.html)
MAGIC = b"SQLite format 3\0"


class Database:
    """One open file.

    Attributes
    ----------
    tables : the columns of each table and view.
    """

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self.tables: dict[str, set[str]] = {
            name: {row[1] for row in base.execute(f'PRAGMA table_info("{name}")')}
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            if isinstance(name, str) and '"' not in name
        }

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of a table, None for columns that this release lacks; nothing without the table."""
        if table not in self.tables:
            return []
        wanted = ", ".join(f'"{name}"' if name in self.tables[table] else "NULL" for name in columns)
        # the names come from the readers and exist in the file
        return self._base.execute(f'SELECT {wanted} FROM "{table}"').fetchall()  # noqa: S608

    def has_rows(self, table: str) -> bool:
        """Return whether a table of the file has any row."""
        return self._base.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None  # noqa: S608

    def timed(self, table: str, skipped: Counter[str], *columns: str) -> list[tuple[Any, ...]]:
        """Return start and end [ns] and the columns of each row; rows without a time are skipped and counted."""
        rows = []
        for start, end, *rest in self.rows(table, "start", "end", *columns):
            if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
                skipped["event without a start or an end"] += 1
            elif end < start or max(abs(start), abs(end)) > LONGEST_TIME_S * 1e9:
                skipped["event that ends before it starts, or is 30 years away"] += 1
            else:
                rows.append((start, end, *rest))
        return rows


@contextlib.contextmanager
def open_database(path: str | os.PathLike[str], program: str, remedy: str) -> Iterator[Database]:
    """Open an SQLite file without writing anything, not even a journal.

    Parameters
    ----------
    path : the file.
    program, remedy : who writes such files, and how, for messages.

    Raises
    ------
    InputFileError
        When the file cannot be read, is packed, or is not a complete SQLite file, also while it is in use.
    """
    place = os.fspath(path)
    try:
        file = storage.local(path)
        with open(file, "rb") as stream:
            head = stream.read(len(MAGIC))
        if head.startswith(gzipped.MAGIC):
            raise InputFileError("is packed with gzip.", place=place, remedy="Unpack it first: gunzip FILE.")
        if head != MAGIC:
            raise InputFileError("is not an SQLite file.", place=place, remedy=remedy)
        # immutable: reads without locks, also in a folder that is not writable
        with closing(sqlite3.connect(f"file:{quote(str(Path(file).resolve()))}?mode=ro&immutable=1", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            yield Database(base)
    except OSError as error:
        raise InputFileError(f"cannot be read: {error.strerror or error}.", place=place) from None
    # UnicodeDecodeError: a damaged schema breaks even the message about it
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())  # a damaged name may hold line ends
        raise InputFileError(
            f"is not a complete SQLite file of {program}: {reason}.", place=place, remedy="Export or copy it again."
        ) from None


def whole(value: Any) -> int:
    """Return an integer of a file, or -1 for anything else."""
    return value if isinstance(value, int) else -1
