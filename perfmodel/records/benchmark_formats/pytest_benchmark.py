"""Records of pytest-benchmark: seconds per call, of each round where ``--benchmark-save-data`` kept them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import centre_of_statistics
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.records.benchmark_formats._rows import benchmarks_with, measured, named, samples_centre


class _Row(msgspec.Struct):
    name: str
    stats: dict[str, Any]
    fullname: str | None = None


class _Record(msgspec.Struct):
    benchmarks: list[_Row]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}


def recognises(document: Any) -> bool:
    """Whether the entries of ``benchmarks`` have statistics, as only those of pytest-benchmark do."""
    return benchmarks_with(document, "stats")


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of pytest-benchmark."""
    record = msgspec.convert(document, _Record)
    device = _device(record.machine_info)
    facts = {"commit": str(record.commit_info["id"])} if record.commit_info.get("id") else {}
    if record.machine_info.get("python_version"):
        facts["Python"] = str(record.machine_info["python_version"])
    return BenchRun(place, tuple(_row(row, device) for row in record.benchmarks), "cpu", "", facts)


def _device(machine: Mapping[str, Any]) -> str:
    cpu = machine.get("cpu")
    brand = (cpu.get("brand_raw") or cpu.get("brand")) if isinstance(cpu, dict) else None
    return str(brand or machine.get("processor") or machine.get("machine") or "")


def _row(row: _Row, device: str) -> BenchRow:
    stats = row.stats
    statistics = {
        "median": stats.get("median"),
        "mean": stats.get("mean"),
        "p25": stats.get("q1"),
        "p75": stats.get("q3"),
        "stdev": stats.get("stddev"),
        "samples": stats.get("rounds"),
    }
    centre = samples_centre(stats.get("data")) or centre_of_statistics(statistics)
    return measured(named(row.fullname or row.name, device=device), centre)
