"""Benchmark records of an imaginary tool: {"stopwatch": 1, "runs": {"NAME": [SECONDS, ...]}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.comparison.noise import centre_of_samples
from perfmodel.comparison.pairing import BenchRow, BenchRun


class _Record(msgspec.Struct):
    runs: dict[str, list[float]]


def recognises(document: Any) -> bool:
    """Return whether a parsed JSON document has the tool's version."""
    return isinstance(document, dict) and "stopwatch" in document


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return the runs of a record."""
    record = msgspec.convert(document, _Record)
    rows = (BenchRow({"op": name, "name": name}, centre_of_samples(times)) for name, times in record.runs.items())
    return BenchRun(place, tuple(rows), "cpu")
