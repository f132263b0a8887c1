"""Records of hyperfine (``--export-json``): wall time of each run of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import centre_of_statistics
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.records.benchmark_formats._rows import measured, named, samples_centre


class _Row(msgspec.Struct):
    command: str
    median: float | None = None
    mean: float | None = None
    stddev: float | None = None
    times: list[float] | None = None
    parameters: dict[str, Any] = {}


class _Record(msgspec.Struct):
    results: list[_Row]


def recognises(document: Any) -> bool:
    """Whether the entries of ``results`` have a command."""
    entries = document.get("results") if isinstance(document, dict) else None
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict) and "command" in entries[0]


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of hyperfine."""
    record = msgspec.convert(document, _Record)
    return BenchRun(place, tuple(_row(row) for row in record.results), "cpu")


def _row(row: _Row) -> BenchRow:
    parameters = " ".join(f"{key}={value}" for key, value in row.parameters.items())
    statistics = {"median": row.median, "mean": row.mean, "stdev": row.stddev}
    centre = samples_centre(row.times) or centre_of_statistics(statistics)
    return measured(named(row.command, dimensions=parameters), centre)
