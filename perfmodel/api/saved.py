"""The JSON that commands wrote, read back: a record, readings of a monitor, or the result of any other command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfmodel import storage
from perfmodel.core.report import Report, Reportable
from perfmodel.errors import InputFileError
from perfmodel.files import read_document

if TYPE_CHECKING:
    from perfmodel.measure.monitor.record import Recorded
    from perfmodel.records.schema import Record

#: command, a key that some row has ("" for any rows), and the module whose ``saved`` knows the columns; first match
_LAYOUTS = (
    ("analyze", "algorithm", "perfmodel.prediction.algorithms.report"),
    ("bench", "least_time_s", "perfmodel.measure.algorithms_report"),
    ("bench --check", "", "perfmodel.measure.report"),
    ("calibrate", "family", "perfmodel.accuracy.report"),
    ("calibrate", "constant", "perfmodel.serving.report"),
    ("calibrate", "", "perfmodel.measure.report"),
    ("capture", "", "perfmodel.module_capture.report"),
    ("compare", "", "perfmodel.comparison.report"),
    ("diagnose", "", "perfmodel.diagnosis.report"),
    ("hardware detect", "", "perfmodel.hardware_catalog.report"),
    ("hardware lint", "", "perfmodel.hardware_catalog.report"),
    ("hardware list", "", "perfmodel.hardware_catalog.report"),
    ("hardware show", "", "perfmodel.hardware_catalog.report"),
    ("models", "", "perfmodel.workloads.report"),
    ("monitor", "", "perfmodel.measure.report"),
    ("operators", "", "perfmodel.operators.report"),
    ("project", "", "perfmodel.diagnosis.report"),
    ("roi", "", "perfmodel.investment.report"),
    ("search serve", "", "perfmodel.serving.report"),
    ("search train", "", "perfmodel.training.report"),
    ("serve", "", "perfmodel.serving.report"),
    ("train", "", "perfmodel.training.report"),
    ("validate", "", "perfmodel.accuracy.report"),
    ("whatif", "", "perfmodel.investment.report"),
)
#: keys of a document that are no further tables
_OWN = ("rows", "notes")
_KEYS = {"schema_version", "command", "rows"}
_REMEDY = "Write one with --format json, or -o FILE.json, of any command."


@dataclass(frozen=True)
class SavedResult(Reportable):
    """The JSON of a command, but that of records, which are a `perfmodel.records.schema.Record`.

    Attributes
    ----------
    command : that wrote it: "train", "search serve", ...
    rows : its rows, with the keys that the command's page lists.
    facts : the context.
    tables : the rows of further tables, by their keys.
    notes : sentences for people.
    place : the file.
    """

    command: str
    rows: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    place: str = ""


def read_saved(path: str | os.PathLike[str]) -> Record | Recorded | SavedResult:
    """Return what perfmodel wrote into a file.

    Raises
    ------
    InputFileError
        When the file cannot be read, or holds something else; the message says what, and what reads it.
    """
    from perfmodel.measure.monitor.record import is_monitored, read_recorded
    from perfmodel.records.record import SUFFIXES, in_current_words, parse_record

    place = storage.one(path)
    if is_monitored(place):
        return read_recorded(place)
    if elsewhere := _read_elsewhere(place):
        raise elsewhere
    document = read_document(place, SUFFIXES, remedy=_REMEDY)
    if not isinstance(document, dict) or not document.keys() >= _KEYS:
        raise InputFileError("is not a record: no command of perfmodel wrote it.", place=place, remedy=_REMEDY)
    if not isinstance(document["command"], str) or not _is_table(document["rows"]):
        raise InputFileError("is not a record: its command or rows are damaged.", place=place, remedy=_REMEDY)
    document = in_current_words(document, place)
    if document["command"] in ("analyze", "bench") and _layout(document["command"], document["rows"]) is None:
        return parse_record(document, place)
    return _result(document, place)


def _read_elsewhere(place: str) -> InputFileError | None:
    """Return the error for what is no JSON of a command, but a file that some command reads; None for any other."""
    from perfmodel.api.held import read_by

    if not storage.is_file(place):
        return None  # what opens it explains that
    what, command = read_by(place)
    if not command or _is_own(place):
        return None
    return InputFileError(f"{what}, no JSON of a command.", place=place, remedy=f"Read it with: {command}.")


def _is_own(place: str) -> bool:
    """Return whether a file begins as the JSON of a command does."""
    from perfmodel.formats.detect import read_head

    return b'"schema_version"' in read_head(place)[:200]


def _is_table(rows: object) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def _layout(command: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the module that knows the columns of a command's rows."""
    keys = {key for row in rows for key in row}
    return next((module for name, key, module in _LAYOUTS if name == command and (not key or key in keys)), None)


def _result(document: Mapping[str, Any], place: str) -> SavedResult:
    facts, notes = document.get("context"), document.get("notes")
    return SavedResult(
        document["command"],
        document["rows"],
        facts if isinstance(facts, dict) else {},
        {key: rows for key, rows in document.items() if key not in _OWN and rows and _is_table(rows)},
        tuple(map(str, notes)) if isinstance(notes, list) else (),
        place,
    )


def report_of(saved: SavedResult) -> Report:
    """Return the table of a result as its command shows it; of a plugin's command, with the keys as columns.

    JSON has no titles: that of the table names the file, and further tables have those of their command where these are
    always the same, else their key.

    Raises
    ------
    InputFileError
        When a value is not what the command writes.
    """
    from perfmodel.render.html.inputs import json_report

    document = {
        "command": saved.command,
        "rows": saved.rows,
        "context": saved.facts,
        "notes": list(saved.notes),
        **saved.tables,
    }
    try:
        table = json_report(document, saved.place)
        module = _layout(table.command, saved.rows)
        table = table if module is None else import_module(module).saved(table)
        title = f"{table.command} record {storage.name_of(saved.place)}"
        table = replace(table, title=title, context=saved.facts, decision=str(saved.facts.get("decision") or ""))
        for one in (table, *table.more.values()):
            one.shown_columns(wide=True)  # shows each cell once, so that a damaged one is told here
        return table
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputFileError(
            f"cannot be shown: a value is not what perfmodel {saved.command} writes ({error}).",
            place=saved.place,
            remedy="Write it again with --format json.",
        ) from error


def titled(saved: Record | Recorded | SavedResult) -> Record | Recorded | SavedResult:
    """Return what was read; a record of analyze or bench with a title that names its file, as results have."""
    from perfmodel.records.schema import Record

    if not isinstance(saved, Record):
        return saved
    return replace(saved, title=f"{saved.command} record {storage.name_of(saved.place)}")
