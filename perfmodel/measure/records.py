"""Bench records: one JSON file a run, written after every row, read back with its mistakes explained."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.core.report import SCHEMA_VERSION, Report
from perfmodel.errors import InputFileError
from perfmodel.files import read_text, write_atomic


@dataclass(frozen=True)
class Record:
    """A bench record as it stands in its file; keys that are not known are kept."""

    context: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    path: str

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """The hardware specification that the run was compared with, as a document."""
        found = self.context.get("spec")
        return found if isinstance(found, Mapping) else None


def write_record(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report as a record; a process killed meanwhile leaves the record before it.

    Raises
    ------
    UsageError
        When the place cannot be written.
    """
    write_atomic(path, json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n")


def read_record(path: str | os.PathLike[str]) -> Record:
    """Return the bench record in a file.

    Raises
    ------
    InputFileError
        When the file is missing, is cut off or is no JSON, is not a bench record, or is of a later schema.
    """
    place = os.fspath(path)
    text = read_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        end = text.rstrip()[-1:]
        cut = " It seems to be cut off." if text.lstrip()[:1] == "{" and end != "}" else ""
        raise InputFileError(
            f"is not valid JSON: {error}.{cut}", place=place, remedy="Write a record with perfmodel bench -o FILE."
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise _foreign(place, "it has no list of rows")
    version = document.get("schema_version")
    if not isinstance(version, int):
        raise _foreign(place, "it has no schema_version")
    if version > SCHEMA_VERSION:
        raise InputFileError(
            f"has schema_version {version}; this perfmodel reads up to {SCHEMA_VERSION}.",
            place=place,
            remedy="Read it with a later perfmodel.",
        )
    if document.get("command") != "bench":
        raise _foreign(place, f"its command is {document.get('command')!r}")
    context = document.get("context")
    rows = document["rows"]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not {"op", "kernel", "status"} <= row.keys():
            raise InputFileError(f"row {number} lacks op, kernel or status.", place=place)
    return Record(context if isinstance(context, dict) else {}, tuple(rows), place)


def _foreign(place: str, why: str) -> InputFileError:
    return InputFileError(
        f"is not a bench record: {why}.", place=place, remedy="Write one with perfmodel bench -o FILE."
    )
