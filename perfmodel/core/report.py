"""A report: columns with units, rows, notes. Every command makes one, every renderer takes one.

`report` turns any result into a report. Each room has one ``report.py`` that registers on it:

    @report.register
    def _(result: Prediction, *, title: str = "") -> Report: ...

It is found by the name of the room in which the result's class is defined, so that no result imports its printing and
no list of rooms has to be kept.
"""

from __future__ import annotations

import functools
import html
import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.units import format_binary, format_si

SCHEMA_VERSION = 1
#: longer names, as kernels with their template arguments have them, are shortened in tables for people
_LONGEST_NAME = 48


@dataclass(frozen=True)
class Column:
    """One column of a report.

    Attributes
    ----------
    key : key of the value in each row, and in JSON and CSV.
    title : heading in tables for people; empty means the key.
    unit : SI unit of the value; "fraction" prints as a percentage, "iB" a capacity in B as GiB or MiB; empty for
        text and plain numbers.
    shown : whether tables for people have the column; JSON and CSV always do.
    digits : significant digits in tables for people.
    drop : 0 for a column that every table has; where the terminal is too narrow, columns with the highest
        number are left out first.
    show : turns a value into the text for people; JSON keeps the value itself. None prints by type and unit.
    """

    key: str
    title: str = ""
    unit: str = ""
    shown: bool = True
    digits: int = 4
    drop: int = 0
    show: Callable[[Any], str] | None = None

    @property
    def heading(self) -> str:
        """The heading in tables for people."""
        return self.title or self.key.replace("_", " ")

    def text(self, value: Any) -> str:
        """Return a value as people read it: SI prefixes, percentages, ``-`` for what is not known."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        if self.show is not None:
            return _printable(self.show(value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (int, float)):
            if self.unit == "fraction":
                return f"{100 * value:.1f} %"
            if self.unit == "iB":
                return format_binary(float(value))
            return format_si(float(value), self.unit, self.digits) if self.unit else _plain(value, self.digits)
        if isinstance(value, Mapping):
            return " ".join(f"{key}={self.text(item)}" for key, item in value.items())
        if isinstance(value, (list, tuple)):
            return ", ".join(self.text(item) for item in value)
        return _printable(str(value))


def _printable(text: str) -> str:
    """Return a text with control characters written out: a name may not move the cursor or end a row."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@dataclass(frozen=True)
class Report:
    """The result of a command, ready for any renderer.

    Attributes
    ----------
    command : the command that made it.
    columns : the columns in order.
    rows : one mapping a row, with plain values in SI base units; keys without a column are left to JSON.
    context : what the rows hold for: version, hardware, machine, date.
    notes : sentences for people, printed below the table and kept in JSON as ``notes``.
    title : heading for people.
    more : further tables, by the key under which JSON keeps their rows; CSV has the first table only.
    """

    command: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    context: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    title: str = ""
    more: Mapping[str, Report] = field(default_factory=dict)

    def shown_columns(self) -> list[Column]:
        """The columns for people: those marked as shown in which some row says something."""
        return [
            column
            for column in self.columns
            if column.shown
            and (not self.rows or any(column.text(row.get(column.key)) not in ("", "-") for row in self.rows))
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object: schema_version, command, context, rows (and further tables and notes)."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "context": finite(self.context),
            "rows": [finite(row) for row in self.rows],
            **{key: [finite(row) for row in table.rows] for key, table in self.more.items()},
        }
        if self.notes:
            document["notes"] = list(self.notes)
        return document

    def _repr_html_(self) -> str:
        """Show the report as a table in a notebook."""
        columns = self.shown_columns()
        head = "".join(f"<th>{html.escape(column.heading)}</th>" for column in columns)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(column.text(row.get(column.key)))}</td>" for column in columns)
            + "</tr>"
            for row in self.rows
        )
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        more = "".join(table._repr_html_() for table in self.more.values())
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}{more}"


class Reportable:
    """A result that shows as its report: in notebooks by itself, elsewhere by `report`."""

    def report(self) -> Report:
        """Return this result as a report."""
        return report(self)

    def _repr_html_(self) -> str:
        """Show the result as a table in a notebook."""
        return report(self)._repr_html_()


@functools.singledispatch
def report(result: Any, **options: Any) -> Report:
    """Return a result as a report: columns with units, rows, notes.

    Parameters
    ----------
    result : what a public function of perfmodel returned, or a sequence of such results of one kind where its room
        reports several together.
    options : what the room's ``report.py`` accepts for this kind of result, as ``title`` or ``context``.

    Raises
    ------
    TypeError
        When no room knows how to report the result.
    """
    for room in _rooms_of(result):
        _load_report_of(room)
        function = report.dispatch(type(result))
        if function is not _unregistered:
            made: Report = function(result, **options)
            return made
    raise TypeError(f"{type(result).__name__} has no report.")


_unregistered = report.dispatch(object)


def _rooms_of(result: Any) -> list[str]:
    """Return the packages that may register a report for a result: those that define its class or its bases."""
    modules = [kind.__module__ for kind in type(result).__mro__]
    return list(dict.fromkeys(".".join(module.split(".")[:2]) for module in modules if "." in module))


@functools.cache
def _load_report_of(room: str) -> None:
    """Import ``<room>.report``, which registers the reports of the room's results."""
    if importlib.util.find_spec(f"{room}.report") is not None:
        importlib.import_module(f"{room}.report")


def _plain(value: float, digits: int) -> str:
    """Print a number without a unit: integers whole, others with significant digits."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return format_si(value, "", digits)


def short_name(name: str) -> str:
    """Return a name of at most 48 characters: both ends of a longer one, which tell kernels apart.

    >>> short_name("void kernel<" + "int, " * 20 + "float>(Params)")
    'void kernel<int, int, int, int, ...loat>(Params)'
    """
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:32]}...{name[35 - _LONGEST_NAME :]}"


def finite(value: Any) -> Any:
    """Return ``value`` with what JSON cannot say (NaN, infinities) as None, and mappings as dicts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
