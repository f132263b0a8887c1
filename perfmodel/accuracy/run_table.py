"""Tables of published runs: CSV, plain or gzip, with one run a row and the unit in each column's name."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.files import read_text

#: the column of a run's machine, for which a stated machine may stand
HARDWARE = "hardware"


@dataclass(frozen=True)
class Run:
    """One row of a table: cells by the names of their columns; a blank cell is one that was not published.

    Attributes
    ----------
    cells : column -> text.
    table : name of the table, that of its file.
    place : file and line, for messages.
    """

    cells: Mapping[str, str]
    table: str
    place: str

    def text(self, column: str, default: str = "") -> str:
        """Return a cell without blanks round it, or ``default`` for a blank or missing one."""
        return self.cells.get(column, "").strip() or default

    def number(self, column: str, default: float = math.nan) -> float:
        """Return a cell as a finite number, or ``default`` for a blank one.

        Raises
        ------
        InputFileError
            When the cell is no finite number.
        """
        text = self.text(column)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputFileError(f"{column} = {text!r} is no number.", place=self.place, remedy="Correct the cell.")
        return value

    def whole(self, column: str, default: int = 0) -> int:
        """Return a cell as a whole number, or ``default`` for a blank one.

        Raises
        ------
        InputFileError
            When the cell is no whole number.
        """
        value = self.number(column, float(default))
        if value != int(value):
            raise InputFileError(f"{column} = {value:g} is no whole number.", place=self.place)
        return int(value)


@dataclass(frozen=True)
class RunTable:
    """The runs of one file, in its order."""

    place: str
    columns: tuple[str, ...]
    runs: tuple[Run, ...]


def run_columns(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file.

    Raises
    ------
    InputFileError
        When the file cannot be read.
    """
    first = read_text(path).partition("\n")[0]
    try:
        return tuple(name.strip() for name in next(csv.reader([first]), []))
    except csv.Error:
        return ()  # no table of runs; the reader of measurements says what is wrong


def read_run_table(path: str | os.PathLike[str], hardware: str = "") -> RunTable:
    """Return the runs of a CSV file.

    Parameters
    ----------
    path : the file.
    hardware : the machine of runs that name none, as of a table without the column; "" where nobody states it.

    Raises
    ------
    InputFileError
        When the file cannot be read, has no row, or a row has more cells than the header has names.
    """
    place = os.fspath(path)
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), skipinitialspace=True)
    table = storage.name_of(place).removesuffix(".gz").removesuffix(".csv")
    runs = []
    try:
        for cells in reader:
            line = f"{place}:{reader.line_num}"
            if None in cells:
                raise InputFileError("the row has more cells than the header has names.", place=line)
            named = {str(name).strip(): text or "" for name, text in cells.items()}
            if hardware and not named.get(HARDWARE, "").strip():
                named[HARDWARE] = hardware
            runs.append(Run(named, table, line))
    except csv.Error as error:
        raise InputFileError(f"{error}.", place=f"{place}:{reader.line_num}") from None
    if not runs:
        raise InputFileError("has no rows.", place=place)
    columns = dict.fromkeys(
        str(name).strip() for name in (*(reader.fieldnames or ()), *([HARDWARE] if hardware else ()))
    )
    return RunTable(place, tuple(columns), tuple(runs))
