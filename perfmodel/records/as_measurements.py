"""The JSON record of ``perfmodel bench`` as measured calls, which `calibrate --from` and `validate` take too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from perfmodel.accuracy.measured import MeasuredCalls, Measurements, Skips
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.files import read_document
from perfmodel.operators import Operator, load_operator
from perfmodel.records.measurements import read_measurements

#: a kernel that composes an operator from several others has another traffic than the operator; so records called
#: it before they said what it is composed of
_COMPOSED = "naive"
_REMEDY = "Write one with: perfmodel bench -o record.json."


class _Row(msgspec.Struct):
    op: str
    hardware: str
    dtype: str
    params: dict[str, Any]
    status: str = ""
    kernel: str | None = None
    cache: Literal["flushed", "rotating", "warm"] = "flushed"
    measured_time_s: float | None = None
    timing: Literal["kernel", "event", "graph"] | None = "kernel"
    implementation: str | None = None
    flags: str | None = None
    composition_time_s: float | None = None


class _Record(msgspec.Struct):
    command: str
    rows: list[_Row]


def read_bench_record(path: str | os.PathLike[str]) -> Measurements:
    """Return the measured calls of a record: every row with a time, but for compositions of several kernels.

    ``line`` counts the rows of the record from 1.

    Raises
    ------
    InputFileError
        When the file cannot be read, or is no record of ``perfmodel bench``.
    """
    place = os.fspath(path)
    try:
        record = msgspec.convert(read_document(path), _Record)
    except msgspec.ValidationError as error:
        raise InputFileError(f"is no record of measurements: {error}.", place=place, remedy=_REMEDY) from None
    if record.command != "bench":
        raise InputFileError(f"a record of {record.command!r} holds no measured times.", place=place, remedy=_REMEDY)
    skips = Skips()
    groups: dict[tuple[Any, ...], list[tuple[int, _Row]]] = {}
    for number, row in enumerate(record.rows, start=1):
        reason = _unusable(row)
        if reason:
            skips.add(reason, place, np.array([number]))
        else:
            groups.setdefault(_alike(row), []).append((number, row))
    return Measurements(place, tuple(_calls(rows, place) for rows in groups.values()), skips.all())


def _unusable(row: _Row) -> str:
    if row.status == "ok" and (row.kernel == _COMPOSED or row.composition_time_s is not None):
        return "a composition of several kernels"
    return "" if row.status == "ok" and row.measured_time_s else f"status {row.status!r}"


def _alike(row: _Row) -> tuple[Any, ...]:
    """Return in what rows of one group are alike: everything but the values of their sizes and the time."""
    params = tuple(sorted((name, None if _is_size(value) else repr(value)) for name, value in row.params.items()))
    return (row.hardware, row.op, row.dtype, row.timing, row.cache, _implementation(row), params)


def _implementation(row: _Row) -> str:
    return row.implementation or (row.kernel or "").split(".")[0]


def _calls(rows: Sequence[tuple[int, _Row]], place: str) -> MeasuredCalls:
    """Return the rows of one group, sizes as arrays."""
    numbers, records = zip(*rows, strict=True)
    first: _Row = records[0]
    return MeasuredCalls(
        hardware=first.hardware,
        op=_operator(rows, place),
        time_s=np.array([row.measured_time_s for row in records]),
        timing=first.timing or "kernel",
        cache=first.cache,
        implementation=_implementation(first),
        flags=np.array([row.flags or "" for row in records]),
        place=place,
        line=np.array(numbers),
    )


def _operator(rows: Sequence[tuple[int, _Row]], place: str) -> Operator:
    """Return the operator of one group; where that fails, the error names the row."""
    first = rows[0][1]
    sizes = {
        name: np.array([float(row.params[name]) for _, row in rows])
        for name, value in first.params.items()
        if _is_size(value)
    }
    try:
        return load_operator(first.op)(dtype=first.dtype, **{**first.params, **sizes})
    except (PerfModelError, TypeError) as error:
        if len(rows) > 1:
            for one in rows:  # the first that fails alone
                _operator([one], place)
        message = error.message if isinstance(error, PerfModelError) else str(error)
        raise InputFileError(message, place=f"{place}: row {rows[0][0]}", remedy=_REMEDY) from None


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_calls(path: str | os.PathLike[str]) -> Measurements:
    """Return the measured calls of a record of ``perfmodel bench`` or of a table, told apart by their first character.

    Raises
    ------
    InputFileError
        When the file cannot be read as what it seems to be.
    """
    # A table starts with a column's name, a JSON document with a brace; what cannot be opened the reader explains.
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        if stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return read_bench_record(path)
    return read_measurements(path)
