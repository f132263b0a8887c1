"""What an existing file holds that cannot be made again: somebody's measurements, or what a profiler wrote.

Those who read such files recognise them, so that a format that perfmodel reads is a format that it does not replace.
Results that perfmodel derived from them, as a diagnosis or a projection, are replaced.
"""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from perfmodel.errors import InputFileError

_PROFILES = {
    "torch trace": "a trace of a profiler",
    "nsys sqlite": "an SQLite database, as nsys exports it",
    "nsys stats": "a report of nsys stats",
    "key_averages": "a table of key_averages",
}
_TABLE = "table"
#: a word of what a file holds -> the command that reads it
_COMMANDS = (
    ("perfmodel monitor", "monitor --read {}"),
    ("perfmodel calibrate", "hardware show {}"),
    ("measurements of perfmodel bench", "validate {}"),
    ("table of measurements", "validate {}"),
    ("table of measured runs", "validate {}"),
    ("measurements of", "compare {} AFTER"),  # of another tool
    ("holds", "diagnose {}"),  # a profile
)
#: what JSON of perfmodel begins with, and the command that wrote it
_OWN = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*\d+(?:\s*,\s*"command"\s*:\s*"([\w ]+)")?')
_READINGS = "holds readings of perfmodel monitor"
_SQLITE, _PARQUET = b"SQLite format 3\0", b"PAR1"


def held_in(path: str) -> str:
    """Return what a file is or holds that no command may replace, as the end of "FILE ..."; "" for any other file."""
    return read_by(path)[0]


def read_by(path: str) -> tuple[str, str]:
    """Return what a file holds that cannot be made again, as the end of "FILE ...", and what command reads it.

    Both are "" for any other file: one that is empty or of no kind that perfmodel reads, or a result that perfmodel can
    make again.
    """
    what = _held(path)
    command = next((command for word, command in _COMMANDS if word in what), "")
    return what, f"perfmodel {command.format(path)}" if command else ""


def _held(path: str) -> str:
    from perfmodel.formats.detect import find_format, read_head
    from perfmodel.formats.table import is_derived
    from perfmodel.measure.monitor.record import is_monitored
    from perfmodel.records.output_file import header, measurements_in

    try:
        head = read_head(path)
    except InputFileError:  # empty, unreadable or of no kind that perfmodel reads
        return ""
    if is_derived(header(head)):
        return ""
    if found := measurements_in(path):
        return f"holds {found}"
    if is_monitored(path):
        return _READINGS
    if own := _OWN.match(head):
        return _READINGS if own[1] == b"monitor" else ""
    if head.startswith(_PARQUET):
        return "holds a table of measurements"
    if b"\0" in head and not head.startswith(_SQLITE):  # no text: a picture
        return ""
    name = find_format(path).reader.NAME
    if name != _TABLE:
        return f"holds {_PROFILES.get(name, f'a report of {name}')}"
    return _held_in_text(path, head)


def _held_in_text(path: str, head: bytes) -> str:
    """Return what a text holds that no profiler of a format of its own wrote."""
    from perfmodel.api.judging import ROOMS
    from perfmodel.formats.table import holds_profile
    from perfmodel.records.output_file import header

    if head.lstrip().startswith(b"{"):
        if tool := _benchmark_tool(path):
            return f"holds measurements of {tool}"
    elif any(import_module(room).recognises(frozenset(header(head))) for room in ROOMS):
        return "holds a table of measured runs"
    return "holds a profile: a table of names and times" if holds_profile(path, head) else ""


def _benchmark_tool(path: str) -> str:
    """Return the tool whose record a JSON document is, "" if it is none."""
    import json

    from perfmodel.files import read_text
    from perfmodel.records.runs import format_of

    try:
        document: Any = json.loads(read_text(path))
        found = format_of(document)
    except (InputFileError, ValueError, RecursionError):
        return ""
    return cast(ModuleType, found).__name__.rpartition(".")[2].replace("_", "-") if found is not None else ""
