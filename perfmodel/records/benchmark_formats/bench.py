"""Records of ``perfmodel bench``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.comparison.noise import Centre, centre_of_samples, centre_of_statistics
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.errors import InputFileError
from perfmodel.records.record import parse_record, wrong_command
from perfmodel.records.schema import BUSY_SHARE, Context, Record, Row, Status

#: more CPUs than any machine has, or more load: no such number is believed
_MOST_CPUS = 10**6
#: keys of the context, and of its device, that are reported where two records differ -> their names for people
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


def recognises(document: Any) -> bool:
    """Whether a document has a command and rows, as all JSON of perfmodel does."""
    return isinstance(document, dict) and "command" in document and "rows" in document


def read(document: Mapping[str, Any], place: str) -> BenchRun:
    """Return a record of ``perfmodel bench``."""
    return run_of(parse_record(document, place, ("bench",)))


def run_of(record: Record) -> BenchRun:
    """Return the rows of a record of ``perfmodel bench`` as those of any tool's benchmark.

    Raises
    ------
    InputFileError
        When the record is of another command, or a sample is no time.
    """
    place = record.place
    if record.command != "bench":
        raise wrong_command(record.command, place, ("bench",))
    context = record.context
    device, kind = _device(context.device), str(context.device.get("kind") or "")
    rows = tuple(_row(row, device, f"{place}: row {index}") for index, row in enumerate(record.rows, start=1))
    facts = {title: str(value) for key, title in _CONTEXT_FACTS.items() if (value := getattr(context, key)) is not None}
    facts |= {
        title: str(value) for key, title in _DEVICE_FACTS.items() if (value := context.device.get(key)) is not None
    }
    chosen_by_row = frozenset({"timing"} if context.settings.get("timing") == "auto" else ())
    return BenchRun(place, rows, kind, _busy(context), facts, chosen_by_row)


def _row(row: Row, device: str, place: str) -> BenchRow:
    identity = {
        "op": row.op,
        "name": row.name or row.op,
        "dimensions": row.dimensions or "",
        "dtype": row.dtype,
        "kernel": row.kernel or "",
        "cache": str(row.cache or ""),
        "timing": str(row.timing or ""),
        "device": device,
    }
    status = row.status or Status.OK
    return BenchRow(identity, _centre(row, place) if status == Status.OK else None, str(status), row.reason or "")


def _centre(row: Row, place: str) -> Centre | None:
    """Return the centre of a row's samples; from their statistics where the samples were not kept."""
    wrong = next((value for value in row.samples_s or () if not 0 < value < math.inf), None)
    if wrong is not None:
        raise InputFileError(f"a sample of {wrong} s is not a time above zero.", place=f"{place}, samples_s")
    if row.samples_s and len(row.samples_s) > 1:
        return centre_of_samples(row.samples_s)
    return centre_of_statistics(row.time_s or {"median": row.measured_time_s})


def _device(device: Mapping[str, Any]) -> str:
    """Return the device as part of a row's identity: its name, and the threads of a CPU."""
    name, threads = str(device.get("name") or ""), device.get("threads")
    plural = "" if threads == 1 else "s"
    return f"{name}, {threads} thread{plural}" if threads and name else name


def _busy(context: Context) -> str:
    load, cpus = (_believable(context.machine.get(key)) for key in ("load_average", "cpu_count"))
    return f"load average {load:.1f} on {cpus:.0f} CPUs" if load and cpus and load >= BUSY_SHARE * cpus else ""


def _believable(number: Any) -> float:
    return float(number) if isinstance(number, (int, float)) and 0 <= number <= _MOST_CPUS else 0.0
