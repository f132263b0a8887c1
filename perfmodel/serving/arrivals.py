"""Reading files of requests: arrival, prompt and output tokens of each, as CSV or as JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.units import format_count
from perfmodel.errors import InputFileError, nearest
from perfmodel.files import read_text
from perfmodel.serving.requests import LONGEST, Requests

#: what a column means -> its names, in lower case without separators, in public traces too: Azure's (TIMESTAMP,
#: ContextTokens, GeneratedTokens), BurstGPT's (Request tokens, Response tokens), Vidur's (num_prefill_tokens) and
#: Mooncake's (input_length)
_NAMES: Mapping[str, tuple[str, ...]] = {
    "arrival": ("arrival", "arrivaltime", "arrivedat", "time", "timestamp", "queued", "start"),
    "prompt": (
        "prompt", "prompttokens", "promptlen", "input", "inputtokens", "inputlength", "inputlen", "isl",
        "numprefilltokens", "contexttokens", "requesttokens",
    ),
    "output": (
        "output", "outputtokens", "outputlength", "outputlen", "osl", "numdecodetokens", "generatedtokens",
        "responsetokens", "completiontokens",
    ),
}  # fmt: skip
#: suffix of an arrival column -> seconds; without one it is in seconds, but in Mooncake's traces, which have the
#: hashes of blocks of the prompts (github.com/kvcache-ai/Mooncake, "timestamp" in ms)
_MOONCAKE, _MOONCAKE_NOTE = "hash_ids", "Times are milliseconds: hash_ids tell a trace of Mooncake."
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNIT = re.compile(r"[ _(\[]+(s|ms|us|ns)[)\]]?$")
_SHOWN = 6


@dataclass(frozen=True)
class RequestFile:
    """The requests of a file, and what a reader should know about it.

    Attributes
    ----------
    requests : in the order of their arrival, the first at 0 s.
    notes : decisions of the reader, as sentences for people.
    """

    requests: Requests
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """The cells of a file by column, and the line of each row."""

    place: str
    columns: Mapping[str, Sequence[Any]]
    lines: Sequence[int]


def read_requests(path: str | os.PathLike[str], *, need_times: bool = True) -> RequestFile:
    """Return the requests of a CSV file, or of a file with a JSON object a line (.jsonl, .ndjson); gzip is unpacked.

    Columns are recognised by many names (arrival_s, timestamp, input, prompt_tokens, isl, output_tokens, ...). Times
    are seconds, or dates, unless the column's name ends in ms, us or ns, or the trace is Mooncake's (ms). The first
    request arrives at 0 s.

    Parameters
    ----------
    path : the file.
    need_times : whether a file without arrival times is wrong.

    Raises
    ------
    InputFileError
        When the file cannot be read, a column is missing or there twice, a cell is blank or no number, a time is
        negative, or a length is no whole number above 0.
    """
    place = os.fspath(path)
    text = read_text(path)
    name = place.lower().removesuffix(".gz")
    table = _json_lines(text, place) if name.endswith((".jsonl", ".ndjson", ".json")) else _csv(text, place)
    columns = {meaning: _column(table, meaning) for meaning in _NAMES}
    missing = [meaning for meaning in ("prompt", "output") if not columns[meaning]]
    missing += ["arrival"] * (need_times and not columns["arrival"])
    if missing:
        raise _no_column(missing[0], table)
    prompt, output = (_lengths(table, columns[meaning]) for meaning in ("prompt", "output"))
    times = _times(table, columns["arrival"]) if columns["arrival"] else np.zeros(len(table.lines))
    order = np.argsort(times, kind="stable")
    unused = [column for column in table.columns if column not in columns.values()]
    notes = (*_order_notes(times, order), *_unused_notes(unused))
    if columns["arrival"] and _of_mooncake(table, columns["arrival"]):
        notes = (_MOONCAKE_NOTE, *notes)
    times = times[order]
    return RequestFile(Requests(times - times[0], prompt[order], output[order]), notes)


def _order_notes(times: NDArray[np.float64], order: NDArray[np.int64]) -> tuple[str, ...]:
    late = int((np.diff(times) < 0).sum())
    if not late:
        return ()
    return (f"{format_count(late, 'request')} came before the row above; the requests were sorted by arrival.",)


def _unused_notes(unused: Sequence[str]) -> tuple[str, ...]:
    if not unused:
        return ()
    listed = ", ".join(unused[:_SHOWN]) + (", ..." if len(unused) > _SHOWN else "")
    return (f"Columns of the file that are not used: {listed}.",)


def _csv(text: str, place: str) -> _Table:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader)]
        rows, lines = [], []
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise InputFileError(
                    f"the row has {len(row)} cells, the header {len(header)}.", place=f"{place}:{reader.line_num}"
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputFileError(f"{error}.", place=f"{place}:{reader.line_num}") from None
    if not rows:
        raise InputFileError("has no requests.", place=place, remedy="Write a header and a row a request.")
    return _Table(place, dict(zip(header, zip(*rows, strict=True), strict=True)), lines)


def _json_lines(text: str, place: str) -> _Table:
    rows: list[dict[str, Any]] = []
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputFileError(f"is no JSON: {error}.", place=f"{place}:{number}") from None
        if not isinstance(row, dict):
            raise InputFileError("is no JSON object.", place=f"{place}:{number}", remedy="Write one a line.")
        rows.append(row)
        lines.append(number)
    names = dict.fromkeys(str(key) for row in rows for key in row)
    return _Table(place, {name: [row.get(name, "") for row in rows] for name in names}, lines)


def _plain(name: str) -> tuple[str, float]:
    """Return a column's name in lower case without separators and unit, and the unit in seconds."""
    lower = name.strip().lower()
    match = _UNIT.search(lower)
    stem = lower[: match.start()] if match else lower
    return re.sub(r"[ _\-()\[\]]+", "", stem), _UNITS[match.group(1)] if match else 1.0


def _column(table: _Table, meaning: str) -> str:
    """Return the column with a meaning, or "" where there is none."""
    found = [name for name in table.columns if _plain(name)[0] in _NAMES[meaning]]
    if len(found) > 1:
        raise InputFileError(
            f"{' and '.join(map(repr, found))} both hold the {meaning}.", place=table.place, remedy="Remove one."
        )
    return found[0] if found else ""


def _no_column(meaning: str, table: _Table) -> InputFileError:
    names = ", ".join(list(table.columns)[:12])
    allowed = {"arrival": "arrival_s", "prompt": "prompt", "output": "output"}
    hint = nearest(allowed[meaning], list(table.columns)).replace("Did you mean", "Is it")
    return InputFileError(
        f"has no column for the {meaning}; its columns are {names}.",
        place=table.place,
        remedy=f"{hint} Needed: arrival_s, prompt, output.".strip(),
    )


def _numbers(table: _Table, column: str) -> NDArray[np.float64]:
    """Return the cells of a column as finite numbers."""
    cells = table.columns[column]
    try:
        values = np.array(cells, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    if values.ndim != 1:
        values = np.full(len(cells), np.nan)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        cell = cells[int(bad[0])]
        what = "is blank" if cell is None or not str(cell).strip() else f"= {str(cell)[:30]!r} is no number"
        raise _wrong(table, column, int(bad[0]), what, "Fill the cell or remove the row.")
    return values


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (OverflowError, TypeError, ValueError):
        return float("nan")


def _lengths(table: _Table, column: str) -> NDArray[np.int64]:
    values = _numbers(table, column)
    bad = np.flatnonzero((values < 1) | (values != np.floor(values)) | (values > LONGEST))
    if len(bad):
        first = int(bad[0])
        raise _wrong(
            table,
            column,
            first,
            f"= {values[first]:g} is no whole number of tokens from 1 to {LONGEST:.0f}",
            "Correct it.",
        )
    return values.astype(np.int64)


def _times(table: _Table, column: str) -> NDArray[np.float64]:
    """Return the arrival times [s]; dates become seconds since the first of them."""
    cells = table.columns[column]
    if isinstance(cells[0], str) and _number(cells[0]) != _number(cells[0]) and cells[0].strip():
        return _dates(table, column)
    values = _numbers(table, column) * (_UNITS["ms"] if _of_mooncake(table, column) else _plain(column)[1])
    bad = np.flatnonzero(values < 0)
    if len(bad):
        first = int(bad[0])
        raise _wrong(table, column, first, f"= {cells[first]} is a time before the start", "Times count from 0 on.")
    return values


def _of_mooncake(table: _Table, column: str) -> bool:
    return column == "timestamp" and _MOONCAKE in table.columns


def _dates(table: _Table, column: str) -> NDArray[np.float64]:
    values = []
    for index, cell in enumerate(table.columns[column]):
        try:
            # fromisoformat of Python 3.11 reads at most six digits of a second
            values.append(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", str(cell).strip())).timestamp())
        except ValueError:
            raise _wrong(
                table, column, index, f"= {str(cell)[:30]!r} is neither a number nor a date",
                "Write seconds, or dates as 2024-05-10 00:00:00.",
            ) from None  # fmt: skip
    times = np.array(values)
    return np.asarray(times - times.min())


def _wrong(table: _Table, column: str, index: int, what: str, remedy: str) -> InputFileError:
    return InputFileError(f"{column} {what}.", place=f"{table.place}:{table.lines[index]}", remedy=remedy)
