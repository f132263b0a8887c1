"""A report: columns with units, rows, notes. Every command makes one, every renderer takes one.

`report` turns any result into a report. Each room has one ``report.py`` that registers on it:

    @report.register
    def _(result: Prediction, *, title: str = "") -> Report: ...

It is found by the name of the room in which the result's class is defined, so that no result imports its printing and
no list of rooms has to be kept.
"""

from __future__ import annotations

import abc
import functools
import importlib
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.panel import Panel
from perfmodel.core.units import format_binary, format_fraction, format_si
from perfmodel.errors import ArgumentError

#: version of the JSON output: 2 uses the words of `perfmodel.core.vocabulary` throughout
SCHEMA_VERSION = 2
#: width of a line where nothing says how wide it may be [characters]
WIDTH = 80
#: longest text of a result in an interactive session [characters]: two or three lines of a terminal
_LONGEST_HEADLINE = 240
#: rows of a long table that are made, and written, at a time: a tenth of a second
_BLOCK = 1000
#: tables for people print shorter times as 0 [s]
_SHORTEST_SHOWN = 1e-9


@dataclass(frozen=True)
class Column:
    """One column of a report.

    Attributes
    ----------
    key : key of the value in each row, and in JSON and CSV.
    title : heading in tables for people; empty means the key.
    unit : SI unit of the value; "fraction" prints as a percentage, "iB" prints bytes as GiB or MiB; empty for
        text and plain numbers.
    shown : whether tables for people have the column; JSON, CSV and ``--wide`` always do.
    digits : significant digits in tables for people.
    drop : 0 for a column that every table has. Where the width is too small, columns with the highest number are
        left out first.
    show : turns a value into text for people; None prints by type and unit. JSON and CSV keep the value.
    show_row : turns a whole row into text for people, where the value alone is not enough: a unit that another key
        holds, or a range between two values.
    fit : the same for a line of some width [characters], which a text table has: long names are shortened to it.
    prose : a sentence, too long for a cell: text tables print it below the table, by the number of its row.
    merge : leave the cell empty where the row above has the same value in this column and in every merged column
        to the left of it.
    note : a sentence that explains the heading, among the notes of what shows the column; JSON always has it.
    """

    key: str
    title: str = ""
    unit: str = ""
    shown: bool = True
    digits: int = 4
    drop: int = 0
    show: Callable[[Any], str] | None = None
    show_row: Callable[[Mapping[str, Any]], str] | None = None
    fit: Callable[[Mapping[str, Any], int], str] | None = None
    prose: bool = False
    merge: bool = False
    note: str = ""

    @property
    def heading(self) -> str:
        """The heading in tables for people: that of a time has no unit, since its cells have theirs ("80 ms")."""
        key = self.key.removesuffix("_s") if self.unit == "s" else self.key
        return self.title or key.replace("_", " ")

    def cell(self, row: Mapping[str, Any], width: int = WIDTH) -> str:
        """Return the text for people of this column in one row, whose line has a width [characters]."""
        if self.fit is not None:
            return printable(self.fit(row, width))
        return self.text(row.get(self.key)) if self.show_row is None else printable(self.show_row(row))

    def text(self, value: Any) -> str:
        """Return a value as text for people: SI prefixes, percentages, ``-`` for an unknown value."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        if self.show is not None:
            return printable(self.show(value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (int, float)):
            return self._number(value)
        if isinstance(value, Mapping):
            return " ".join(f"{key}={self.text(item)}" for key, item in value.items())
        if isinstance(value, (list, tuple)):
            return ", ".join(self.text(item) for item in value)
        return printable(str(value))

    def _number(self, value: float) -> str:
        if self.unit == "fraction":
            return format_fraction(value)
        if self.unit == "s" and abs(value) < _SHORTEST_SHOWN:
            value = 0
        if self.unit == "iB":
            return format_binary(float(value))
        return format_si(float(value), self.unit, self.digits) if self.unit else _plain(value, self.digits)


def printable(text: str) -> str:
    r"""Return a text with control characters written out: a name may not move the cursor or end a row.

    >>> printable("a\nb")
    'a\\nb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class LongRows(Sequence[Mapping[str, Any]], abc.ABC):
    """Rows that are made when they are asked for, since all of them together take gigabytes."""

    @abc.abstractmethod
    def keys(self) -> Mapping[str, Any]:
        """Return a row that has all keys of all rows, also within its mappings."""


#: asked after each block of rows, with their number, whether the next one is wanted
GoesOn = Callable[[int], bool]


@dataclass(frozen=True)
class Report:
    """The result of a command, ready for any renderer.

    Attributes
    ----------
    command : the command that produced it.
    columns : the columns in order.
    rows : one mapping for each row, with plain values in SI base units; JSON also has the keys without a column. Very
        many are a `LongRows`, which makes them when they are asked for.
    context : the conditions that the rows hold under: version, hardware, machine, date.
    notes : sentences below the table for people; JSON has them as ``notes``.
    title : heading for people.
    more : further tables, by the key under which JSON keeps their rows; CSV has the first table only.
    csv_table : key of the further table that CSV has instead; empty for the first one.
    panels : lines that renderers which draw show beside the rows; others leave them out.
    only_wide : whether text for people leaves out this table, as one of ``more``, unless every column is asked for.
    decision : the decision that the rows lead to, in one sentence for people; JSON keeps it in ``context`` if at all.
    assumptions : what the decision rests on, for a page that others read: Markdown lists it above the table.
    people_rows : the rows that people see, where these are fewer or in another order; None for all rows.
    nothing : what people see in place of a table without rows.
    unlisted : a sentence for people about the rows that ``people_rows`` leaves out, and how to see them.
    """

    command: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    context: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    title: str = ""
    more: Mapping[str, Report] = field(default_factory=dict)
    decision: str = ""
    assumptions: tuple[str, ...] = ()
    people_rows: Sequence[Mapping[str, Any]] | None = None
    nothing: str = "(no rows)"
    unlisted: str = ""
    csv_table: str = ""
    only_wide: bool = False
    panels: tuple[Panel, ...] = ()

    @property
    def shown_rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows that people see."""
        return self.rows if self.people_rows is None else self.people_rows

    @property
    def shown_notes(self) -> tuple[str, ...]:
        """The sentences below a table of all columns that people may see, the decision apart."""
        explained = any(column.note for column in self.columns)
        return self.notes_beside(self.shown_columns() if explained else ())

    def notes_beside(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """Return the sentences for people below a table of some columns, the decision apart."""
        notes = (*self.notes, *(column.note for column in columns if column.note))
        return (self.unlisted, *notes) if self.unlisted else notes

    @property
    def headline(self) -> str:
        """The report in a line or two: its title, the decision, and of a single row its figures, else how many rows."""
        figures = ""
        if len(self.shown_rows) == 1:
            (row,) = self.shown_rows
            main = [column for column in self.shown_columns() if not column.drop and not column.prose]
            cells = [(column, column.cell(row)) for column in main]
            figures = ", ".join(f"{column.heading} {cell}" for column, cell in cells if cell not in ("", "-"))
        elif not self.title:
            figures = f"{len(self.rows)} rows"
        parts = (self.title, self.decision or figures)
        return printable(_shortened("; ".join(part for part in parts if part), _LONGEST_HEADLINE))

    def shown_columns(self, *, wide: bool = False) -> list[Column]:
        """Return the columns for people that have a value in some row; ``wide`` includes those not marked as shown."""
        rows = self.shown_rows
        return [
            column
            for column in self.columns
            if (column.shown or wide) and (not rows or any(column.cell(row) not in ("", "-") for row in rows))
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object: schema_version, command, context, rows, further tables and notes."""
        return {**self._before(), "rows": [finite(row) for row in self.rows], **self._behind()}

    def _before(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "command": self.command, "context": finite(self.context)}

    def _behind(self, notes: tuple[str, ...] = ()) -> dict[str, Any]:
        tables: dict[str, Any] = {key: [finite(row) for row in table.rows] for key, table in self.more.items()}
        notes = (*notes, *self.notes, *(column.note for column in self.columns if column.note))
        return tables | ({"notes": list(notes)} if notes else {})

    def json_text(self) -> str:
        """Return the report as JSON text; a number that is not finite is null."""
        return "".join(self.json_pieces(lambda rows: True))

    def json_pieces(self, goes_on: GoesOn) -> Iterator[str]:
        """Yield the text of `json_text` a piece at a time; where it does not go on, a note says how many rows it has.

        Parameters
        ----------
        goes_on : is asked after each block of rows.
        """
        if not self.rows:
            yield _json(self.as_json()) + "\n"
            return
        yield _json(self._before()).removesuffix("\n}") + ',\n  "rows": ['
        between, written = "", 0
        for rows in blocks(self.rows):
            for row in rows:
                yield f"{between}\n    " + _json(finite(row)).replace("\n", "\n    ")
                between = ","
            written += len(rows)
            if not goes_on(len(rows)):
                break
        total = len(self.rows)
        behind = self._behind((f"Interrupted: the first {written} of {total} rows.",) if written < total else ())
        yield "\n  ]" + ("," + _json(behind).removeprefix("{") if behind else "\n}") + "\n"

    def __repr__(self) -> str:
        """Return the headline, or how many rows there are: all fields would fill pages."""
        return f"<Report of {self.command}: {self.headline}>"

    def __str__(self) -> str:
        """Return the table that `perfmodel` prints, in 80 columns: ``print(pm.report(result))``."""
        text: str = importlib.import_module("perfmodel.render.table").render(self)
        return text.rstrip("\n")

    def _repr_html_(self) -> str:
        """Show the report as a table in a notebook."""
        import html

        columns = self.shown_columns()
        head = "".join(f"<th>{html.escape(column.heading)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(column.cell(row))}</td>" for column in columns) + "</tr>"
            for row in self.shown_rows
        )
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        sentences = (self.decision, *self.shown_notes) if self.decision else self.shown_notes
        notes = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
        more = "".join(table._repr_html_() for table in self.more.values() if not table.only_wide)
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}{more}"


def blocks(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows of a report, some at a time."""
    left = iter(rows)
    while block := list(itertools.islice(left, _BLOCK)):
        yield block


class Reportable:
    """A result that shows as its report: in notebooks by itself, elsewhere by `report`; its repr is the headline."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # `dataclass` writes a repr of all fields, a megabyte for a trace, unless the class has one of its own
        if "__repr__" not in vars(cls):
            cls.__repr__ = Reportable.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the headline of the report: all fields would fill pages."""
        return f"<{type(self).__name__}: {report(self).headline}>"

    def report(self, **options: Any) -> Report:
        """Return this result as a report; the room's ``report.py`` lists the options."""
        return report(self, **options)

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
    ArgumentError
        When no room knows how to report the result; a TypeError, too.
    """
    kind = type(result[0] if isinstance(result, (list, tuple)) and result else result)
    for room in _rooms_of(kind):
        _load_report_of(room)
        function = report.dispatch(kind)
        if function is not _unregistered:
            reported: Report = function(result, **options)
            return reported
    remedy = "Give what a function of perfmodel returned, as pm.predict(op, hardware)."
    raise ArgumentError(f"{kind.__name__} has no report.", remedy=remedy)


_unregistered = report.dispatch(object)


#: the core's reports; its ``report`` module is this one
_CORE_REPORTS = {"perfmodel.core": "perfmodel.core.hardware_report"}


def _rooms_of(kind: type) -> list[str]:
    """Return the packages that may register a report for a class: those that define it or its bases."""
    modules = [base.__module__ for base in kind.__mro__]
    return list(dict.fromkeys(".".join(module.split(".")[:2]) for module in modules if "." in module))


@functools.cache
def _load_report_of(room: str) -> None:
    """Import ``<room>.report``, which registers the reports of the room's results."""
    module = _CORE_REPORTS.get(room, f"{room}.report")
    parent = sys.modules.get(module.rpartition(".")[0])
    if hasattr(parent, "__path__") and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)


def _json(value: Mapping[str, Any]) -> str:
    import json

    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def _plain(value: float, digits: int) -> str:
    """Print a number without a unit: integers whole, others with significant digits."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return format_si(value, "", digits)


def _shortened(text: str, longest: int) -> str:
    """Return a text of at most some characters: the beginning of a longer one."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def number(value: object) -> float | None:
    """Return a finite number of a document as a float, None for anything else.

    >>> number(2), number("2"), number(True), number(10**400)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # integers of JSON may have hundreds of digits; a comparison takes them, and is false for NaN
    return float(value) if abs(value) <= sys.float_info.max else None


def finite(value: Any) -> Any:
    """Return ``value`` with what JSON cannot say (NaN, infinities) as None, and mappings as dicts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
