"""Reading the JSON records that `analyze` and `bench` write; keys that are not known are ignored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from perfmodel.core.report import SCHEMA_VERSION
from perfmodel.errors import InputFileError
from perfmodel.files import read_document

COMMANDS = ("analyze", "bench")
_REMEDY = "Write one with: perfmodel analyze OPS... --on HW -o record.json, or perfmodel bench -o record.json."


class Row(msgspec.Struct, omit_defaults=True):
    """What a plot needs of a row; numbers are in SI base units, None where there is none."""

    op: str
    hardware: str
    dtype: str
    arithmetic_intensity_flop_per_byte: float | None = None
    attainable_flop_per_s: float | None = None
    name: str | None = None
    engine: str | None = None
    dimensions: str | None = None
    kernel: str | None = None
    status: str | None = None
    achieved_flop_per_s: float | None = None
    faster_than_bound: bool | None = None
    limiter: str | None = None
    working_set_bytes: float | None = None
    achieved_bytes_per_s: float | None = None
    sustain: dict[str, Any] | None = None

    def as_point(self) -> dict[str, Any]:
        """Return the row as the mapping that the plot takes."""
        return {**msgspec.structs.asdict(self), "status": self.status or "ok"}


class Context(msgspec.Struct):
    """What the rows hold for. ``spec`` is the specification that a benchmark was compared with."""

    spec: dict[str, Any] | None = None


class Record(msgspec.Struct):
    """One record: the rows of one run of a command."""

    schema_version: int
    command: str
    rows: list[Row]
    context: Context = msgspec.field(default_factory=Context)
    notes: list[str] = []


def read_record(path: str | os.PathLike[str]) -> Record:
    """Return the record in a JSON file, as far as a plot needs it.

    Raises
    ------
    InputFileError
        When the file cannot be read, is no record of `analyze` or `bench`, or is of another schema version.
    """
    return read_whole_record(path)[0]


def read_whole_record(path: str | os.PathLike[str]) -> tuple[Record, dict[str, Any]]:
    """Return the record in a JSON file, checked, and the document with all that it holds.

    Raises
    ------
    InputFileError
        When the file cannot be read, is no record of `analyze` or `bench`, or is of another schema version.
    """
    place = os.fspath(path)
    if Path(path).suffix.lower() != ".json":
        raise InputFileError("a record is a JSON file.", place=place, remedy=_REMEDY)
    document = read_document(path)
    if isinstance(document, dict) and document.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        found = document["schema_version"]
        raise InputFileError(f"schema version {found!r} is not known; {SCHEMA_VERSION} is.", place=place)
    try:
        record = msgspec.convert(document, Record)
    except msgspec.ValidationError as error:
        message, _, key = str(error).partition(" - at `$")
        where = f" at {key.rstrip('`').lstrip('.')}" if key else ""
        reason = f"{message[0].lower()}{message[1:]}{where}"
        raise InputFileError(f"is no record: {reason}.", place=place, remedy=_REMEDY) from None
    if record.command not in COMMANDS:
        raise InputFileError(f"a record of {record.command!r} holds no points to plot.", place=place, remedy=_REMEDY)
    if not record.rows:
        raise InputFileError("the record has no rows.", place=place, remedy=_REMEDY)
    return record, document
