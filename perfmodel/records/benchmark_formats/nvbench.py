"""Records of nvbench (``--json``): GPU time of isolated ("cold") calls, one row for each state.

Keys that are not known are ignored. Format: https://github.com/NVIDIA/nvbench, json_printer.cu.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import centre_of_statistics
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.records.benchmark_formats._rows import benchmarks_with, measured, named


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


class _Benchmark(msgspec.Struct):
    name: str
    states: list[_State]


class _Device(msgspec.Struct):
    id: int
    name: str


class _Record(msgspec.Struct):
    benchmarks: list[_Benchmark]
    devices: list[_Device] = []


def recognises(document: Any) -> bool:
    """Whether the entries of ``benchmarks`` have states, as only nvbench's do."""
    return benchmarks_with(document, "states")


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of nvbench."""
    record = msgspec.convert(document, _Record)
    devices = {device.id: device.name for device in record.devices}
    rows = tuple(_row(benchmark.name, state, devices) for benchmark in record.benchmarks for state in benchmark.states)
    return BenchRun(place, rows, "cuda")


def _row(name: str, state: _State, devices: Mapping[int, str]) -> BenchRow:
    axes = " ".join(f"{axis.name}={_axis(axis)}" for axis in state.axis_values or ())
    device = devices.get(state.device, "") if state.device is not None else ""
    identity = named(name, dimensions=axes, device=device)
    if state.is_skipped:
        return BenchRow(identity, None, "skipped", state.skip_reason or "")
    values = {summary.tag: _number(summary) for summary in state.summaries or ()}
    gpu = {
        tag.removeprefix("nv/cold/time/gpu/"): value for tag, value in values.items() if tag.startswith("nv/cold/time/")
    }
    mean, relative = gpu.get("mean"), gpu.get("stdev/relative")
    statistics = {
        "median": gpu.get("median"),
        "mean": mean,
        "p25": gpu.get("q1"),
        "p75": gpu.get("q3"),
        "stdev": mean * relative if mean is not None and relative is not None else None,
        "samples": values.get("nv/cold/sample_size"),
    }
    return measured(identity, centre_of_statistics(statistics))


def _axis(axis: _Named) -> str:
    """Return the value of an axis; a float without the digits that repeated addition of its step leaves."""
    try:
        return f"{float(axis.value):.10g}" if axis.type == "float64" else str(axis.value)
    except (TypeError, ValueError):
        return str(axis.value)


def _number(summary: _Summary) -> float | None:
    """Return the value of a summary, whose numbers are texts."""
    for item in summary.data:
        if item.name == "value":
            try:
                return float(item.value)
            except (TypeError, ValueError):
                return None
    return None
