"""The JSON record of ``perfmodel bench`` as measured calls, which `calibrate --from` and `validate` take too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from perfmodel.analysis.measured import MeasuredCalls, Measurements, Skips
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.files import read_document
from perfmodel.operators import load_operator
from perfmodel.profiles.measurements import read_measurements

#: a kernel that composes an operator from several others has another traffic than the operator
COMPOSED = "naive"
_REMEDY = "Write one with: perfmodel bench -o record.json."


class _Row(msgspec.Struct):
    op: str
    hardware: str
    dtype: str
    params: dict[str, Any]
    status: str = ""
    kernel: str | None = None
    cache: str = "flushed"
    measured_time_s: float | None = None


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
    calls = []
    for number, row in enumerate(record.rows, start=1):
        reason = _unusable(row)
        if reason:
            skips.add(reason, place, np.array([number]))
        else:
            calls.append(_call(row, place, number))
    return Measurements(place, tuple(calls), skips.all())


def _unusable(row: _Row) -> str:
    if row.kernel == COMPOSED:
        return "a composition of several kernels"
    return "" if row.status == "ok" and row.measured_time_s else f"status {row.status!r}"


def _call(row: _Row, place: str, number: int) -> MeasuredCalls:
    try:
        op = load_operator(row.op)(dtype=row.dtype, **_arrays(row.params))
    except (PerfModelError, TypeError) as error:
        message = error.message if isinstance(error, PerfModelError) else str(error)
        raise InputFileError(message, place=f"{place}: row {number}", remedy=_REMEDY) from None
    return MeasuredCalls(
        hardware=row.hardware,
        op=op,
        time_s=np.array([row.measured_time_s]),
        timing="kernel",
        cache=row.cache,
        implementation=(row.kernel or "").split(".")[0],
        flags=np.array([""]),
        place=place,
        line=np.array([number]),
    )


def _arrays(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes as arrays of one element, the shape of a group of rows; the rest as it is."""
    sizes = {key: np.array([float(value)]) for key, value in params.items() if _is_size(value)}
    return {**params, **sizes}


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
