"""Plain tables as profiles: a name, a time with its unit, and optionally calls.

Reads delimited text (comma, tab, semicolon, bar, Markdown), JSON (a list of objects, ``{"rows": [...]}``, or an object
a line), TOML and YAML (a list of tables). Skipped rows are counted and named in the notes; errors name their line.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import event_kind
from perfmodel.formats.table.columns import Columns, choose_columns, find_name, percent_columns, time_columns
from perfmodel.formats.table.load import Table, from_document, from_text, is_document, load_table
from perfmodel.formats.table.own import refuse_own_columns
from perfmodel.formats.text.double_counting import (
    may_be_total,
    percent_notes,
    without_indented,
    without_kernels,
    without_total,
)
from perfmodel.formats.text.numbers import (
    LONGEST_TIME_S,
    MISSING,
    NumberFormat,
    long_unit_s,
    number_format,
    whole_count,
)
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "table"
#: asked last: every file that no other format recognises is taken for a table
PRECEDENCE = 0
_CELL = re.compile(r"([+-]?[\d.,'_ \u00a0\u202f]+(?:[eE][+-]?\d+)?)([A-Za-zµμ]*)")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([,'_ \u00a0\u202f])\d{3}(?:\1\d{3})*(\.\d*)?(?:[eE][+-]?\d+)?")
_EUROPEAN = NumberFormat(",")
#: whole numbers in JSON have any size; above this one they do not convert to float64 (at most 1.8e308)
_LARGEST_INTEGER = 1e300


def sniff(head: bytes) -> bool:
    """Accept anything, since this reader is asked last and its messages say what a table needs."""
    return True


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read a table of names and times as a profile.

    Columns are recognised by their headers, in any case, see `perfmodel.formats.table.columns`. The unit of time (s,
    ms, us, ns) is in the header or in the cells. Rows of one name are summed and rows without a time are skipped. Of
    a row above indented ones, which it contains, only the time outside of these counts. A
    row "total" never counts as an entry; time in it that the other rows do not hold becomes "(not itemised)". If the
    table lists operators and their kernels, the operators count. The notes of the profile say each of these, and where
    percentages do not fit the times.

    Parameters
    ----------
    path : a file of delimited text, or .json, .toml, .yaml.
    options : have no effect on tables.

    Raises
    ------
    InputFileError
        When the file cannot be read; has no names, no times or no unit; a time is negative, infinite, over 30 years
        or not a number; a row has more cells than there are columns; or all times are zero.
    """
    place = os.fspath(path)
    table = load_table(path, place)
    refuse_own_columns(table.headers, place)
    columns = choose_columns(table.headers, lambda index: _unit_in_cells(table, index), place=place)
    table = replace(table, european=_is_european(table, columns, place))
    skipped: Counter[str] = Counter()
    timed = [(row[1], entry) for row in table.rows if (entry := _entry(row, table, columns, skipped, place))]
    names = [_name(cells, columns) for cells, _ in timed]
    entries, nested_notes = without_indented([entry for _, entry in timed], names)
    entries, total_notes = without_total(entries)
    entries, kernel_notes = without_kernels(entries)
    notes = (
        *columns.notes,
        *_unit_notes(table, columns),
        *nested_notes,
        *total_notes,
        *kernel_notes,
        *(() if nested_notes else _percent_notes(table, timed)),
    )
    profile = Profile.from_entries(entries, source=place, notes=notes, skipped=skipped, format=NAME)
    if not profile.total_time_s > 0:
        problem = "all times are zero" if profile.entries else "no row has a time"
        raise InputFileError(f"{problem}.", place=place, remedy="A profile needs at least one time above zero.")
    return profile


def holds_profile(path: str | os.PathLike[str], head: bytes) -> bool:
    """Whether a file that no other format recognises has columns of names and times.

    Parameters
    ----------
    path : the file; a document is read as a whole.
    head : its first bytes, which are enough of a table in text.
    """
    place = os.fspath(path)
    try:
        if is_document(path):
            table = from_document(read_document(path), place)
        else:
            whole_lines = head[: head.rfind(b"\n") + 1] or head
            table = from_text(whole_lines.decode("utf-8", "replace"), place)
    except InputFileError:
        return False
    is_markdown = head.lstrip().startswith(b"|")  # a report, which can be written again
    has_both = find_name(table.headers) is not None and bool(time_columns(table.headers))
    return has_both and not is_markdown


def _entry(
    row: tuple[str, list[Any]], table: Table, columns: Columns, skipped: Counter[str], place: str
) -> ProfileEntry | None:
    """Return a row as an entry; None, with a count in ``skipped``, if it has no time."""
    where, cells = row
    if any(str(cell).strip() for cell in cells[len(table.headers) :]):
        raise InputFileError(
            f"{where} has {len(cells)} cells, but there are {len(table.headers)} columns.",
            place=place,
            remedy="Quote names that contain the delimiter.",
        )
    cells = [*cells, *([None] * (len(table.headers) - len(cells)))]
    context = f"{where}, column {columns.time.header!r}"
    value = _time_s(cells[columns.time.index], columns.time.unit_s, table, context, place)
    if value is None:
        skipped["row without a time"] += 1
        return None
    calls = None if columns.calls is None else _calls(cells[columns.calls], table, f"{where}, calls", place)
    if columns.time.kind != "total":
        value = _plausible(value * (1 if calls is None else calls), context, place)
    name = _name(cells, columns).strip()
    return ProfileEntry(name or "(unnamed)", value, calls, _category(name))


def _name(cells: Sequence[Any], columns: Columns) -> str:
    """Return the name of a row, with the spaces that indent it; "" where it has no such cell."""
    cell = cells[columns.name] if columns.name < len(cells) else None
    return "" if cell is None else str(cell)


def _category(name: str) -> EventKind | str:
    """Return that a row is a copy or an exchange, by its name; "" for others, since a table may list any work."""
    kind = event_kind(name)
    return "" if kind is EventKind.KERNEL else kind


def _unit_notes(table: Table, columns: Columns) -> tuple[str, ...]:
    """Return a note if times have several units."""
    index = columns.time.index
    cells = (str(cells[index]).strip() for _, cells in table.rows if index < len(cells))
    matches = (match for match in map(_CELL.fullmatch, cells) if match is not None and long_unit_s(match.group(2)))
    units = dict.fromkeys(match.group(2) for match in matches)
    return (f"Times have several units ({', '.join(units)}); each is converted.",) if len(units) > 1 else ()


def _percent_notes(table: Table, timed: Sequence[tuple[list[Any], ProfileEntry]]) -> tuple[str, ...]:
    """Check the columns of percentages against the times; no note if one of them fits."""
    rows = [(cells, entry) for cells, entry in timed if not may_be_total(entry.name)]
    first: tuple[str, ...] = ()
    for index in percent_columns(table.headers):
        shares = [_percent(cells[index] if index < len(cells) else None) for cells, _ in rows]
        notes = percent_notes(shares, [entry.time_s for _, entry in rows], table.headers[index])
        if not notes and any(share is not None for share in shares):
            return ()
        first = first or notes
    return first


def _percent(cell: Any) -> float | None:
    """Return a percentage as written, None for anything else."""
    try:
        number = float(str(cell).strip().rstrip("%").replace(",", "."))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _unit_in_cells(table: Table, index: int) -> bool:
    """Whether any cell of a column is a number with a unit of time."""
    cells = (str(cells[index]).strip() for _, cells in table.rows if index < len(cells))
    return any(match is not None and long_unit_s(match.group(2)) is not None for match in map(_CELL.fullmatch, cells))


def _is_european(table: Table, columns: Columns, place: str) -> bool:
    """Whether the times or the calls of a table can only have a decimal comma, as "12,5" and "1.234.567".

    Raises
    ------
    InputFileError
        When others can only have a decimal point.
    """
    chosen = [columns.time.index, *([] if columns.calls is None else [columns.calls])]
    cells = (cells[index] for _, cells in table.rows for index in chosen if index < len(cells))
    matches = (_CELL.fullmatch(cell.strip()) for cell in cells if isinstance(cell, str))
    return number_format((match.group(1) for match in matches if match), place=place).decimal == ","


def _time_s(cell: Any, column_unit_s: float | None, table: Table, where: str, place: str) -> float | None:
    """Return the time in a cell [s], or None if it holds none."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return None
    number, unit = _number(cell, table, where, place)
    if math.isnan(number):
        return None
    if unit is None:
        if column_unit_s is None and number != 0:
            raise InputFileError(f"{where}: {cell!r} has no unit.", place=place, remedy="Write it as in '12 ms'.")
        unit = column_unit_s or 1.0
    elif column_unit_s is not None and unit != column_unit_s:
        raise InputFileError(
            f"{where}: {cell!r} has another unit than the header.", place=place, remedy="Give the unit once."
        )
    return _plausible(number * unit, where, place)


def _number(cell: Any, table: Table, where: str, place: str) -> tuple[float, float | None]:
    """Return the number in a cell and its unit of time [s], None without a unit."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        # a comparison with NaN is false, so NaN takes the first way
        return (math.inf if cell > 0 else -math.inf) if abs(cell) >= _LARGEST_INTEGER else float(cell), None
    match = _CELL.fullmatch(cell.strip()) if isinstance(cell, str) else None
    unit = long_unit_s(match.group(2)) if match and match.group(2) else None
    if match is None or (match.group(2) and unit is None):
        shown = str(cell).strip()[:40]
        raise InputFileError(f"{where}: {shown!r} is not a time.", place=place, remedy="Write it as in '12.5 ms'.")
    text = match.group(1).strip()
    if table.european and (number := _EUROPEAN.parse(text)) is not None:
        return number, unit
    grouped = _GROUPED.fullmatch(text)
    may_be_decimal = table.delimiter == ";" and text.count(",") == 1 and "." not in text
    if grouped and not (may_be_decimal and grouped.group(1) == ","):
        text = text.replace(grouped.group(1), "")
    try:
        return float(text), unit
    except ValueError:
        remedy = "Write a decimal point, and no mark or ',' between thousands."
        raise InputFileError(f"{where}: {text[:40]!r} is ambiguous as a number.", place=place, remedy=remedy) from None


def _plausible(time_s: float, where: str, place: str) -> float:
    """Return a time; raise if it is negative or over 30 years."""
    if time_s < 0:
        raise InputFileError(f"{where}: the time is negative ({format_si(time_s, 's')}).", place=place)
    if time_s > LONGEST_TIME_S:
        raise InputFileError(f"{where}: the time is over 30 years.", place=place, remedy="Is the unit right?")
    return time_s


def _calls(cell: Any, table: Table, where: str, place: str) -> int | None:
    """Return a number of calls, or None if the cell holds none."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return None
    # a count has no decimal mark, whatever separates the cells
    number, unit = _number(cell, replace(table, delimiter=","), where, place)
    calls = whole_count(number)
    if unit is not None or calls is None or calls != number:
        raise InputFileError(f"{where}: {str(cell)[:40]!r} is not a whole number of calls.", place=place)
    return calls
