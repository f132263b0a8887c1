"""Reading and writing the JSON record of `analyze` and `bench`.

Version 2 is written, versions 1 and 2 are read. Keys that are not known are kept in `Record.values` and otherwise
ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perfmodel import storage
from perfmodel.core.report import SCHEMA_VERSION
from perfmodel.core.vocabulary import CacheState, Limiter, Timing
from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.records.schema import Document, Record

READABLE_VERSIONS = (1, SCHEMA_VERSION)
COMMANDS = ("analyze", "bench")
#: command -> how to get such a record
_EXAMPLES = {
    "analyze": "perfmodel analyze OPS... --on HW -o record.json",
    "bench": "perfmodel bench OPS... -o record.json",
}
#: suffixes of records, ``.gz`` behind it aside
SUFFIXES = (".json",)
#: words of version 1 for the limiter "link", and for the terms of a prediction that belong to "compute"
_LINKS_1 = ("pcie", "nvlink", "xgmi", "transfer")
_ARITHMETIC_1 = ("math", "tile waste", "wave quantisation", "pipeline", "power", "split-k")


def read_record(path: str | os.PathLike[str], commands: Sequence[str] = COMMANDS) -> Record:
    """Return the record in a JSON file, in the words of the current version.

    Parameters
    ----------
    path : the file.
    commands : the commands whose records are accepted.

    Raises
    ------
    InputFileError
        When the file cannot be read, is not a record of one of ``commands`` or of a version that is known, or has no
        rows.
    """
    place = storage.one(path)
    document = read_document(place, SUFFIXES, remedy=f"A record is JSON. {_remedy(commands)}")
    return parse_record(document, place, commands)


def parse_record(document: Any, place: str, commands: Sequence[str] = COMMANDS) -> Record:
    """Return the record in a parsed JSON document; see `read_record`.

    Parameters
    ----------
    document : the parsed document.
    place : the file, for messages.
    commands : the commands whose records are accepted.
    """
    remedy = _remedy(commands)
    if isinstance(document, dict):
        document = in_current_words(document, place)
        _check_command(document, place, commands)
    try:
        checked = msgspec.convert(document, Document)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InputFileError(f"is not a record: {reason_of(error)}.", place=place, remedy=remedy) from None
    if not checked.rows:
        raise InputFileError("the record has no rows.", place=place, remedy=remedy)
    facts = document.get("context", {})
    return Record(checked.command, document["rows"], facts, tuple(checked.notes), place)


def _remedy(commands: Sequence[str]) -> str:
    return f"Write one with: {' or '.join(_EXAMPLES[command] for command in commands)}."


def _check_command(document: Mapping[str, Any], place: str, commands: Sequence[str]) -> None:
    """Refuse the JSON of another command, before its keys are compared with those of a record."""
    command = document.get("command")
    if "schema_version" in document and isinstance(command, str) and command not in commands:
        raise wrong_command(command, place, commands)


def wrong_command(command: str, place: str, commands: Sequence[str]) -> InputFileError:
    """Build the error for the JSON of another command than those whose records are needed."""
    wanted = " or ".join(commands)
    look = f"To look at this one: perfmodel show {place}."
    message = f"is a record of {command!r}; one of {wanted} is needed."
    return InputFileError(message, place=place, remedy=f"{_remedy(commands)} {look}")


def reason_of(error: msgspec.ValidationError | UnicodeEncodeError) -> str:
    """Return why a document does not fit a schema, with the key: "expected `str`, got `int` at rows[0].op"."""
    if isinstance(error, UnicodeEncodeError):
        return f"a text in it holds half of a character, {error.object[error.start]!a}"
    message, _, key = str(error).partition(" - at `$")
    where = f" at {key.rstrip('`').lstrip('.')}" if key else ""
    return f"{message[0].lower()}{message[1:]}{where}"


def in_current_words(document: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a document with the keys and words of the current version.

    Raises
    ------
    InputFileError
        When the document is of a version that is not known.
    """
    version = document.get("schema_version", SCHEMA_VERSION)
    if version not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise InputFileError(f"schema version {version!r} is not known; {known} are.", place=place)
    return _from_version_1(document) if version == 1 else document


def _from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """Translate a document of version 1.

    Version 1 called a cold cache "flushed", the limiter "link" by the name of the link, the timing "kernel" of the
    settings "event", and the traffic of device memory "dram" in the terms of a prediction. Its ``predicted_limiter``
    was the largest term.
    """
    document = {**document, "schema_version": SCHEMA_VERSION}
    context = document.get("context")
    if isinstance(context, dict):
        document["context"] = context = _cold(context)
        if isinstance(context.get("settings"), dict):
            context["settings"] = settings = _cold(context["settings"])
            if settings.get("timing") == Timing.EVENT:
                settings["timing"] = str(Timing.KERNEL)
    if isinstance(document.get("rows"), list):
        memory = _main_memory(document)
        document["rows"] = [_row_1(row, memory) if isinstance(row, dict) else row for row in document["rows"]]
    return document


def _cold(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {**mapping, "cache": str(CacheState.COLD)} if mapping.get("cache") == "flushed" else dict(mapping)


def _main_memory(document: Mapping[str, Any]) -> str:
    """Return what the main memory of the record's machines is called: "dram" on a CPU, else "hbm"."""
    rows = (row for row in document["rows"] if isinstance(row, dict))
    is_cpu = any(Limiter.DRAM in (row.get("limiter"), row.get("fits_in")) for row in rows)
    return str(Limiter.DRAM if is_cpu else Limiter.HBM)


def _row_1(row: Mapping[str, Any], memory: str) -> dict[str, Any]:
    row = _cold(row)
    for key in ("limiter", "resident_limiter"):
        if key in row:
            row[key] = _limiter_1(row[key], memory)
    if isinstance(row.get("predicted_terms_s"), dict):
        row["predicted_terms_s"] = {_term_1(name, memory): value for name, value in row["predicted_terms_s"].items()}
    if "predicted_limiter" in row:
        row["largest_term"] = _term_1(row["predicted_limiter"], memory)
        row["predicted_limiter"] = _limiter_of_term_1(row["largest_term"])
    return row


def _limiter_1(word: Any, memory: str) -> Any:
    if word in _LINKS_1:
        return str(Limiter.LINK)
    return memory if word == "memory" else word


def _limiter_of_term_1(term: Any) -> str:
    if term in _ARITHMETIC_1:
        return str(Limiter.COMPUTE)
    if term in _LINKS_1:
        return str(Limiter.LINK)
    return str(term) if term in list(Limiter) else str(Limiter.UNKNOWN)


def _term_1(name: Any, memory: str) -> Any:
    return memory if name == "dram" else name
