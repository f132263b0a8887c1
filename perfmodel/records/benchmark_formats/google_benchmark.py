"""Records of google-benchmark (``--benchmark_format=json``): wall time per iteration; repetitions are samples.

Keys that are not known are ignored, as its documentation asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import centre_of_samples
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.records.benchmark_formats._rows import benchmarks_with, measured, named

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class _Row(msgspec.Struct):
    name: str
    real_time: float | None = None
    time_unit: str = "ns"
    run_type: str = "iteration"
    run_name: str | None = None
    error_occurred: bool = False
    error_message: str | None = None


class _Record(msgspec.Struct):
    benchmarks: list[_Row]


def recognises(document: Any) -> bool:
    """Whether the entries of ``benchmarks`` have a time in a unit, or an error."""
    return benchmarks_with(document, "real_time", "time_unit", "error_occurred")


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of google-benchmark."""
    record = msgspec.convert(document, _Record)
    repetitions: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    for row in record.benchmarks:
        name = row.run_name or row.name
        if row.error_occurred:
            failed[name] = row.error_message or ""
        elif row.run_type == "iteration" and row.real_time is not None and row.real_time > 0:
            if row.time_unit not in _SECONDS:
                raise msgspec.ValidationError(f"Unknown time_unit {row.time_unit!r} of {name}")
            repetitions.setdefault(name, []).append(row.real_time * _SECONDS[row.time_unit])
    rows = [measured(named(name), centre_of_samples(times)) for name, times in repetitions.items()]
    rows += [
        BenchRow(named(name), None, "failed", reason) for name, reason in failed.items() if name not in repetitions
    ]
    return BenchRun(place, tuple(rows), "cpu")
