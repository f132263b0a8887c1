"""Benchmark records of other tools: nvbench, google-benchmark, pytest-benchmark and hyperfine, all of them JSON.

What each of them holds is said in its own documentation; keys that are not known are ignored, as google-benchmark's
asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import Centre, centre_of_samples, centre_of_statistics
from perfmodel.comparison.pairing import OK, BenchRow, BenchRun

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class _Named(msgspec.Struct):
    name: str
    value: Any = None
    type: str | None = None


class _Summary(msgspec.Struct):
    tag: str
    data: list[_Named] = []


class _State(msgspec.Struct):
    device: int | None = None
    is_skipped: bool = False
    skip_reason: str | None = None
    axis_values: list[_Named] | None = None
    summaries: list[_Summary] | None = None


class _NvBenchmark(msgspec.Struct):
    name: str
    states: list[_State]


class _NvDevice(msgspec.Struct):
    id: int
    name: str


class _NvRecord(msgspec.Struct):
    benchmarks: list[_NvBenchmark]
    devices: list[_NvDevice] = []


def nvbench(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of nvbench: GPU time of isolated ("cold") calls, one row a state."""
    record = msgspec.convert(document, _NvRecord)
    names = {device.id: device.name for device in record.devices}
    rows = tuple(
        _nvbench_row(benchmark.name, state, names) for benchmark in record.benchmarks for state in benchmark.states
    )
    return BenchRun(place, rows, "cuda")


def _nvbench_row(name: str, state: _State, devices: Mapping[int, str]) -> BenchRow:
    axes = " ".join(f"{axis.name}={_axis(axis)}" for axis in state.axis_values or ())
    device = devices.get(state.device, "") if state.device is not None else ""
    identity = {"op": name, "name": name, "dimensions": axes, "device": device}
    if state.is_skipped:
        return BenchRow(identity, None, "skipped", state.skip_reason or "")
    found = {summary.tag: _number(summary) for summary in state.summaries or ()}
    gpu = {
        tag.removeprefix("nv/cold/time/gpu/"): value for tag, value in found.items() if tag.startswith("nv/cold/time/")
    }
    mean, relative = gpu.get("mean"), gpu.get("stdev/relative")
    statistics = {
        "median": gpu.get("median"),
        "mean": mean,
        "p25": gpu.get("q1"),
        "p75": gpu.get("q3"),
        "stdev": mean * relative if mean is not None and relative is not None else None,
        "samples": found.get("nv/cold/sample_size"),
    }
    return _measured(identity, centre_of_statistics(statistics))


def _axis(axis: _Named) -> str:
    """Return the value of an axis, a float without the digits that its steps have added up."""
    try:
        return f"{float(axis.value):.10g}" if axis.type == "float64" else str(axis.value)
    except (TypeError, ValueError):
        return str(axis.value)


def _number(summary: _Summary) -> float | None:
    """Return the value of a summary: numbers stand as texts in it."""
    for item in summary.data:
        if item.name == "value":
            try:
                return float(item.value)
            except (TypeError, ValueError):
                return None
    return None


class _GoogleRow(msgspec.Struct):
    name: str
    real_time: float | None = None
    time_unit: str = "ns"
    run_type: str = "iteration"
    run_name: str | None = None
    error_occurred: bool = False
    error_message: str | None = None


class _GoogleRecord(msgspec.Struct):
    benchmarks: list[_GoogleRow]


def google_benchmark(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of google-benchmark: wall time an iteration; repetitions of one name are its samples."""
    record = msgspec.convert(document, _GoogleRecord)
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
    rows = [_measured(_named(name), centre_of_samples(times)) for name, times in repetitions.items()]
    rows += [
        BenchRow(_named(name), None, "failed", reason) for name, reason in failed.items() if name not in repetitions
    ]
    return BenchRun(place, tuple(rows), "cpu")


class _PytestRow(msgspec.Struct):
    name: str
    stats: dict[str, Any]
    fullname: str | None = None


class _PytestRecord(msgspec.Struct):
    benchmarks: list[_PytestRow]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}


def pytest_benchmark(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of pytest-benchmark: seconds a call, of each round where ``--benchmark-save-data`` kept them."""
    record = msgspec.convert(document, _PytestRecord)
    machine = record.machine_info
    cpu = machine.get("cpu")
    brand = (cpu.get("brand_raw") or cpu.get("brand")) if isinstance(cpu, dict) else None
    device = str(brand or machine.get("processor") or machine.get("machine") or "")
    facts = {"commit": str(record.commit_info["id"])} if record.commit_info.get("id") else {}
    if machine.get("python_version"):
        facts["Python"] = str(machine["python_version"])
    rows = []
    for row in record.benchmarks:
        data = row.stats.get("data")
        known = {"p25": row.stats.get("q1"), "p75": row.stats.get("q3"), "stdev": row.stats.get("stddev")}
        known |= {key: row.stats.get(key) for key in ("median", "mean")} | {"samples": row.stats.get("rounds")}
        identity = _named(row.fullname or row.name) | {"device": device}
        rows.append(_measured(identity, _samples(data) or centre_of_statistics(known)))
    return BenchRun(place, tuple(rows), "cpu", "", facts)


class _HyperfineRow(msgspec.Struct):
    command: str
    median: float | None = None
    mean: float | None = None
    stddev: float | None = None
    times: list[float] | None = None
    parameters: dict[str, Any] = {}


class _HyperfineRecord(msgspec.Struct):
    results: list[_HyperfineRow]


def hyperfine(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of hyperfine: wall time of each run of a command."""
    record = msgspec.convert(document, _HyperfineRecord)
    rows = []
    for row in record.results:
        told = " ".join(f"{key}={value}" for key, value in row.parameters.items())
        known = {"median": row.median, "mean": row.mean, "stdev": row.stddev}
        centre = _samples(row.times) or centre_of_statistics(known)
        rows.append(_measured(_named(row.command) | {"dimensions": told}, centre))
    return BenchRun(place, tuple(rows), "cpu")


def _named(name: str) -> dict[str, str]:
    return {"op": name, "name": name}


def _samples(values: Any) -> Centre | None:
    """Return the middle of a list of times [s]; None where it is no list of two or more positive numbers."""
    if not isinstance(values, list) or len(values) < 2:
        return None
    usable = all(isinstance(value, (int, float)) and 0 < value < math.inf for value in values)
    return centre_of_samples(values) if usable else None


def _measured(identity: Mapping[str, str], centre: Centre | None) -> BenchRow:
    return BenchRow(identity, centre, OK if centre else "failed", "" if centre else "the record holds no time")


def _first(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the first object of a list in the document, or an empty one."""
    found = document.get(key)
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


Known = Callable[[Mapping[str, Any]], bool]
Reader = Callable[[Mapping[str, Any], str], BenchRun]
READERS: tuple[tuple[Known, Reader], ...] = (
    (lambda document: "states" in _first(document, "benchmarks"), nvbench),
    (lambda document: "stats" in _first(document, "benchmarks"), pytest_benchmark),
    (lambda document: "benchmarks" in document, google_benchmark),
    (lambda document: "command" in _first(document, "results"), hyperfine),
)
