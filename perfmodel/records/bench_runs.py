"""Benchmark records of any kind as rows to compare: those of ``perfmodel bench``, and JSON of other tools."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import Centre, centre_of_samples, centre_of_statistics
from perfmodel.comparison.pairing import OK, BenchRow, BenchRun
from perfmodel.core.report import SCHEMA_VERSION
from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.records import other_tools as bench_formats

_REMEDY = (
    "compare reads JSON of perfmodel bench, nvbench, pytest-benchmark, google-benchmark and hyperfine: "
    "perfmodel bench OPS... -o record.json."
)
#: share of the CPUs that other processes take from which on a machine is busy, as `perfmodel bench` warns
_BUSY = 0.25
#: what is noted where two records differ in it: keys of the context, and of its device
_CONTEXT_FACTS = {"perfmodel": "perfmodel", "commit": "commit"}
_DEVICE_FACTS = {
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "triton": "triton",
    "cpu_capability": "CPU instructions",
    "power_limit_w": "power limit [W]",
    "max_sm_clock_hz": "largest SM clock [Hz]",
    "ecc": "ECC",
    "mig": "MIG",
}


class _Row(msgspec.Struct):
    op: str
    status: str | None = None
    reason: str | None = None
    name: str | None = None
    dimensions: str | None = None
    dtype: str | None = None
    kernel: str | None = None
    cache: str | None = None
    timing: str | None = None
    time_s: dict[str, Any] | None = None
    samples_s: list[float] | None = None
    measured_time_s: float | None = None


class _Record(msgspec.Struct):
    command: str
    rows: list[_Row]
    schema_version: int = SCHEMA_VERSION
    context: dict[str, Any] = {}


def read_bench_run(path: str | os.PathLike[str]) -> BenchRun:
    """Return a benchmark record, told apart from the others by its keys.

    Raises
    ------
    InputFileError
        When the file cannot be read, is no benchmark record that is known, or holds no row.
    """
    place = os.fspath(path)
    document = read_document(path)
    if not isinstance(document, dict):
        raise InputFileError("is no benchmark record: no JSON object.", place=place, remedy=_REMEDY)
    reader = next((made for known, made in _READERS if known(document)), None)
    if reader is None:
        keys = ", ".join(list(document)[:6]) or "none"
        raise InputFileError(f"is no benchmark record that is known; its keys: {keys}.", place=place, remedy=_REMEDY)
    try:
        run = reader(document, place)
    except msgspec.ValidationError as error:
        message, _, key = str(error).partition(" - at `$")
        where = f" at {key.rstrip('`').lstrip('.')}" if key else ""
        raise InputFileError(f"is no record: {message[0].lower()}{message[1:]}{where}.", place=place) from None
    if not run.rows:
        raise InputFileError("the record has no rows.", place=place, remedy=_REMEDY)
    return run


def _own(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of ``perfmodel bench``."""
    record = msgspec.convert(document, _Record)
    if record.command != "bench":
        raise InputFileError(f"a record of {record.command!r} holds no measured times.", place=place, remedy=_REMEDY)
    if record.schema_version != SCHEMA_VERSION:
        found = record.schema_version
        raise InputFileError(f"schema version {found!r} is not known; {SCHEMA_VERSION} is.", place=place)
    context = record.context
    device, machine = (_mapping(context.get(key)) for key in ("device", "machine"))
    kind = str(device.get("kind") or "")
    rows = tuple(_row(row, _device(device), f"{place}: row {index}") for index, row in enumerate(record.rows, start=1))
    facts = {name: str(context[key]) for key, name in _CONTEXT_FACTS.items() if context.get(key) is not None}
    facts |= {name: str(device[key]) for key, name in _DEVICE_FACTS.items() if device.get(key) is not None}
    chosen = _mapping(context.get("settings")).get("timing") == "auto"
    free = frozenset({"timing"} if chosen else ())
    return BenchRun(place, rows, kind, _busy(machine) if kind == "cpu" else "", facts, free)


def _row(row: _Row, device: str, place: str) -> BenchRow:
    identity = {
        "op": row.op,
        "name": row.name or row.op,
        "dimensions": row.dimensions or "",
        "dtype": row.dtype or "",
        "kernel": row.kernel or "",
        "cache": row.cache or "",
        "timing": row.timing or "",
        "device": device,
    }
    status = row.status or OK
    return BenchRow(identity, _centre(row, place) if status == OK else None, status, row.reason or "")


def _centre(row: _Row, place: str) -> Centre | None:
    """Return the middle of a row's samples: from all of them, else from their statistics."""
    wrong = next((value for value in row.samples_s or () if not 0 < value < math.inf), None)
    if wrong is not None:
        raise InputFileError(f"a sample of {wrong} s is no time above zero.", place=f"{place}, samples_s")
    if row.samples_s and len(row.samples_s) > 1:
        return centre_of_samples(row.samples_s)
    return centre_of_statistics(row.time_s or {"median": row.measured_time_s})


def _device(device: Mapping[str, Any]) -> str:
    """Return the device as rows are known by it: its name, and the threads of a CPU."""
    name, threads = str(device.get("name") or ""), device.get("threads")
    many = "" if threads == 1 else "s"
    return f"{name}, {threads} thread{many}" if threads and name else name


def _busy(machine: Mapping[str, Any]) -> str:
    load, cpus = machine.get("load_average"), machine.get("cpu_count")
    if not isinstance(load, (int, float)) or not isinstance(cpus, int):
        return ""
    return f"load average {load:.1f} on {cpus} CPUs" if load >= _BUSY * cpus else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_Known = Callable[[Mapping[str, Any]], bool]
_Reader = Callable[[Mapping[str, Any], str], BenchRun]
_READERS: tuple[tuple[_Known, _Reader], ...] = (
    (lambda document: "command" in document and "rows" in document, _own),
    *bench_formats.READERS,
)
