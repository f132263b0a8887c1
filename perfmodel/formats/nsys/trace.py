"""The traces of ``nsys stats`` (``cuda_gpu_trace``, ``cuda_api_trace``) and of ``nvprof`` as a time line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.formats.kernel_names import copy_direction
from perfmodel.formats.nsys.reports import API_TRACE, GPU_TRACE, Column, column, seconds
from perfmodel.formats.text.events import Names, build_timeline, entries_of
from perfmodel.formats.text.numbers import NumberFormat
from perfmodel.formats.text.stream import StreamTable
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import HostRanges, Timeline

#: "NVIDIA A100 (0)": name and number
_DEVICE = re.compile(r"(.*?)\s*\((\d+)\)")
_PINNED = {"pinned": 1, "pageable": 0}


def gpu_trace(
    reports: Mapping[str, Sequence[StreamTable]], numbers: NumberFormat, skipped: Counter[str], place: str, by: str
) -> tuple[list[ProfileEntry], Timeline, str]:
    """Return the entries, the time line and the device of a trace.

    ``by`` is that of `entries_of`; a trace names no operators, so "op" is the same as "kernel".

    Raises
    ------
    InputFileError
        When a start or duration is no number, or negative.
    """
    names = Names()
    api: dict[str, list[Any]] = {"start_s": [], "duration_s": [], "name": [], "thread": []}
    calls: dict[str, int] = {}
    for table in reports.get(API_TRACE, ()):
        for row in _rows(table, numbers, skipped, place):
            calls.setdefault(row["correlation"], len(api["start_s"]))
            for key in ("start_s", "duration_s"):
                api[key].append(row[key])
            api["name"].append(names.number(row["name"]))
            api["thread"].append(row["thread"])
    gpu: dict[str, list[Any]] = {}
    devices: dict[str, int] = {}
    for table in reports[GPU_TRACE]:
        for row in _rows(table, numbers, skipped, place):
            row["launch"] = calls.get(row["correlation"], -1)
            row["name"] = names.number(row["name"])
            row["device"] = _device_number(row["device"], devices)
            for key, value in row.items():
                gpu.setdefault(key, []).append(value)
    timeline = build_timeline(names, gpu, api, HostRanges(), HostRanges())
    known = [match.group(1) for name in devices if (match := _DEVICE.fullmatch(name))]
    return *entries_of(timeline, by), known[0] if known else ""


def _device_number(written: str, devices: dict[str, int]) -> int:
    """Return the number of a device: as written, else in the order of appearance, -1 where none is written."""
    if not written:
        return -1
    if written not in devices:
        match = _DEVICE.fullmatch(written)
        devices[written] = int(match.group(2)[:9]) if match else len(devices)
    return devices[written]


def _rows(table: StreamTable, numbers: NumberFormat, skipped: Counter[str], place: str) -> list[dict[str, Any]]:
    """Return the rows of a trace that have a time."""
    start, duration = column(table, "start"), column(table, "duration")
    if start is None or duration is None:
        return []
    text = {
        key: column(table, *spellings)
        for key, spellings in (
            ("name", ("name",)),
            ("correlation", ("corrid", "correlation_id")),
            ("device", ("device",)),
            ("stream", ("strm", "stream")),
            ("thread", ("tid",)),
            ("bytes", ("bytes", "size")),
            ("source", ("srcmemkd", "srcmemtype")),
            ("target", ("dstmemkd", "dstmemtype")),
        )
    }
    found = []
    for line, cells in table.rows:
        where = f"{place}, line {line}"
        start_s = seconds(numbers, cells[start.index], start, table, where)
        duration_s = seconds(numbers, cells[duration.index], duration, table, where)
        if start_s is None or duration_s is None:
            skipped["an event without a time"] += 1
            continue
        row = {key: cells[one.index] if one is not None else "" for key, one in text.items()}
        found.append(_event(row, start_s, duration_s, numbers, text["bytes"], table))
    return found


def _event(
    row: Mapping[str, str],
    start_s: float,
    duration_s: float,
    numbers: NumberFormat,
    size: Column | None,
    table: StreamTable,
) -> dict[str, Any]:
    """Return one event with what its cells say."""
    moved = numbers.parse(row["bytes"])
    sides = {_PINNED[side] for side in (row["source"].lower(), row["target"].lower()) if side in _PINNED}
    stream, thread = (numbers.parse(row[key]) for key in ("stream", "thread"))
    return {
        "start_s": start_s,
        "duration_s": duration_s,
        "name": row["name"] or "(unnamed)",
        "correlation": row["correlation"],
        "device": row["device"],
        "stream": -1 if stream is None or not 0 <= stream < 2**53 else int(stream),
        "thread": -1 if thread is None or not 0 <= thread < 2**53 else int(thread),
        "bytes": float("nan") if moved is None or size is None else moved * size.size_bytes(table),
        "direction": copy_direction(row["name"]) if row["bytes"] else -1,
        # a copy with one pageable side is pageable
        "pinned": min(sides) if sides else -1,
    }
