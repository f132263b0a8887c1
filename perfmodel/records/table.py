"""A table of measurements as columns of text, with the line of each row; its errors name the file and the cell."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Vocabulary
from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import read_text
from perfmodel.records.layouts import PARQUET, Columns, read_parquet, tidy

#: columns that every table has
REQUIRED = ("hardware", "op", "dtype", "time_s")
_HARDWARE = "hardware"
#: how columns of times begin in other tables
_TIMES = ("time", "latency", "duration", "median", "mean")

#: numbers of rows
Lines = NDArray[np.int64]
_Word = TypeVar("_Word", bound=Vocabulary)


@dataclass(frozen=True)
class Table:
    """A file as columns of text, with the line of each row.

    ``unnamed`` counts the rows that name no machine, and have the one that the caller states.
    """

    place: str
    columns: Mapping[str, NDArray[np.object_]]
    line: Lines
    unnamed: int = 0

    def cells(self, name: str, rows: Lines) -> NDArray[np.object_]:
        """Return the cells of some rows; blank ones for a column that the table lacks."""
        return self.columns[name][rows] if name in self.columns else np.full(rows.shape, "", dtype=object)

    def numbers(self, name: str, rows: Lines) -> NDArray[np.float64]:
        """Return the numbers of some rows, NaN where a cell is blank."""
        cells = self.cells(name, rows)
        try:
            return cells.astype(np.float64)
        except ValueError:
            return np.array([self._number(name, row, cell) for row, cell in zip(rows, cells, strict=True)])

    def _number(self, name: str, row: int, cell: str) -> float:
        try:
            return float(cell) if cell.strip() else np.nan
        except ValueError:
            raise self.error(row, name, f"{cell[:40]!r} is not a number.", "Write it as 4096 or 2.4e-06.") from None

    def word(self, name: str, row: int, default: _Word) -> _Word:
        """Return the word in one cell; the default where it is blank."""
        cell = str(self.cells(name, np.array([row]))[0])
        try:
            return type(default)(cell) if cell else default
        except ValueError:
            unknown = unknown_name(name, cell, type(default))
            raise self.error(row, name, unknown.message, unknown.remedy) from None

    def error(self, row: int, name: str, message: str, remedy: str = "") -> InputFileError:
        """Return the error for one cell."""
        return InputFileError(f"line {self.line[row]}, column {name!r}: {message}", place=self.place, remedy=remedy)


def read_table(path: str | os.PathLike[str], hardware: str = "") -> Table:
    """Return the cells of a file.

    Parameters
    ----------
    hardware : the machine of rows that name none; "" where nobody states it.

    Raises
    ------
    InputFileError
        When the file cannot be read, lacks a required column, or has no rows, or one with too many or too few cells.
    """
    place = os.fspath(path)
    if place.endswith(PARQUET):
        return _table(place, read_parquet(path), hardware)
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header([*tidy(dict.fromkeys(header, ())), *_stated(hardware)], place, header)
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise InputFileError(f"line {reader.line_num} cannot be read as CSV: {error}.", place=place) from None
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise InputFileError(
                f"line {line} has {len(row)} cells where the header has {len(header)}.",
                place=place,
                remedy="Was the file cut off, or does a cell hold a comma without quotes?",
            )
    if not rows:
        raise InputFileError("has a header and no rows.", place=place, remedy="Is the path right?")
    return _table(place, dict(zip(header, zip(*rows, strict=True), strict=True)), hardware, lines)


def _stated(hardware: str) -> list[str]:
    """Return the columns that a stated machine stands for."""
    return [_HARDWARE] if hardware else []


def _table(place: str, cells: Columns, hardware: str, lines: Sequence[int] = ()) -> Table:
    """Return columns of text as a table; rows count from 1 where they have no lines."""
    found = tidy(cells)
    _check_header([*found, *_stated(hardware)], place, list(found))
    columns = {name: _column(column) for name, column in found.items()}
    rows = len(columns["time_s"])
    unnamed = 0
    if hardware:
        named = [str(cell).strip() for cell in columns.get(_HARDWARE, [""] * rows)]
        columns[_HARDWARE] = _column([cell or hardware for cell in named])
        unnamed = named.count("")
    if not rows:
        raise InputFileError("has a header and no rows.", place=place, remedy="Is the path right?")
    return Table(place, columns, np.array(lines if len(lines) else range(1, rows + 1)), unnamed)


def _column(cells: Sequence[str]) -> NDArray[np.object_]:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _check_header(known: list[str], place: str, header: list[str]) -> None:
    missing = [name for name in REQUIRED if name not in known]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if missing or repeated:
        shown = ", ".join(header)
        raise InputFileError(
            f"has no column {', '.join(missing)}." if missing else f"has two columns {', '.join(repeated)}.",
            place=place,
            remedy=f"A table of measurements has a header with {', '.join(REQUIRED)} and the operator's dimensions; "
            f"found {shown[:120]!r}.{_hints(missing, header)}",
        )


def _hints(missing: Sequence[str], header: Sequence[str]) -> str:
    """Return what to write into columns that are missing, where the header says what was meant."""
    hints = []
    if "hardware" in missing and "op" in header:
        hints.append("hardware is a name of `perfmodel hardware list` in each row; --on HW states one for all rows.")
    other = next((name for name in header if name.lower().startswith(_TIMES)), "")
    if "time_s" in missing and other:
        hints.append(f"time_s is in seconds: convert {other!r}.")
    return "".join(f" {hint}" for hint in hints)
