"""The traces of ``nsys stats`` (``cuda_gpu_trace``, ``cuda_api_trace``), ``nvprof`` and ``rocprof`` as a time line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.interned import Interned
from perfmodel.formats.kernel_names import event_kind
from perfmodel.formats.nsys.reports import API_TRACE, GPU_TRACE, RANGES, column, seconds
from perfmodel.formats.nsys.timeline import GpuEvent, HostEvent, build_timeline, entries_of
from perfmodel.formats.text.numbers import NumberFormat
from perfmodel.formats.text.stream import StreamTable
from perfmodel.profile.copies import copy_direction
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import Timeline

#: "NVIDIA A100 (0)": name and number
_DEVICE = re.compile(r"(.*?)\s*\((\d{1,9})\)")
#: "Agent 4", "GPU 0" and "4" are numbers without a name
_NUMBERED = re.compile(r"(?:(?:Agent|[CG]PU)[ -]?)?(\d{1,9})")
_PINNED = {"pinned": 1, "pageable": 0}


@dataclass(frozen=True)
class Tables:
    """Tables of a stream and what is needed to read their rows.

    Attributes
    ----------
    by_report : tables of each kind of report.
    numbers : how numbers are written.
    skipped : reason -> number of rows that were skipped.
    place : the file, for messages.
    """

    by_report: Mapping[str, Sequence[StreamTable]]
    numbers: NumberFormat
    skipped: Counter[str]
    place: str


def gpu_trace(tables: Tables, by: str) -> tuple[list[ProfileEntry], Timeline, str]:
    """Return the entries, the time line and the device's name of a trace.

    ``by`` is that of `entries_of`; a trace names no operators, so "op" is the same as "kernel".

    Raises
    ------
    InputFileError
        When a start or a duration is negative, or not a number.
    """
    names = Interned[str]()
    api: list[HostEvent] = []
    calls: dict[str, int] = {}
    process_of: dict[str, str] = {}
    for table in tables.by_report.get(API_TRACE, ()):
        for row in _rows(table, tables):
            # processes count alike, and the work of the GPU does not say whose it is
            if process_of.setdefault(row.correlation, row.process) != row.process:
                calls[row.correlation] = -1
            elif row.correlation:
                calls.setdefault(row.correlation, len(api))
            api.append(HostEvent(row.start_s, row.duration_s, names[row.name], row.thread))
    gpu: list[GpuEvent] = []
    devices: dict[str, int] = {}
    for table in tables.by_report[GPU_TRACE]:
        gpu.extend(_gpu_event(row, names, calls, devices) for row in _rows(table, tables))
    ranges = [
        HostEvent(row.start_s, row.duration_s, names[row.name], row.thread)
        for table in tables.by_report.get(RANGES, ())
        for row in _rows(table, tables)
    ]
    timeline = build_timeline(names, gpu, api, (), ranges)
    named = [match.group(1) for name in devices if (match := _DEVICE.fullmatch(name))]
    return *entries_of(timeline, by), named[0] if named else ""


@dataclass(frozen=True)
class _Row:
    """One row of a trace; -1, NaN and "" mean unknown."""

    start_s: float
    duration_s: float
    name: str
    correlation: str
    device: str
    process: str
    stream: int
    thread: int
    bytes: float
    pinned: int


#: column -> its headers in lower case, in nsys and in nvprof
_TEXTS = {
    "name": ("name",),
    "correlation": ("corrid", "correlation_id"),
    "device": ("device",),
    "process": ("pid",),
    "stream": ("strm", "stream"),
    "thread": ("tid",),
    "bytes": ("bytes", "size"),
    "source": ("srcmemkd", "srcmemtype"),
    "target": ("dstmemkd", "dstmemtype"),
}


def _rows(table: StreamTable, tables: Tables) -> Iterator[_Row]:
    """Yield the rows of a trace that have a time."""
    start, duration = column(table, "start"), column(table, "duration")
    if start is None or duration is None:
        return
    columns = {key: column(table, *headers) for key, headers in _TEXTS.items()}
    for line, cells in table.rows:
        where = f"{tables.place}, line {line}"
        start_s = seconds(tables.numbers, cells[start.index], start, table, where)
        duration_s = seconds(tables.numbers, cells[duration.index], duration, table, where)
        if start_s is None or duration_s is None:
            tables.skipped["event without a time"] += 1
            continue
        texts = {key: "" if place is None else cells[place.index] for key, place in columns.items()}
        size = tables.numbers.parse(texts["bytes"])
        unit_bytes = 1.0 if columns["bytes"] is None else columns["bytes"].size_bytes(table)
        memory = {_PINNED[side] for key in ("source", "target") if (side := texts[key].lower()) in _PINNED}
        yield _Row(
            start_s,
            duration_s,
            texts["name"] or "(unnamed)",
            texts["correlation"],
            texts["device"],
            texts["process"],
            stream=_number(tables.numbers, texts["stream"]),
            thread=_number(tables.numbers, texts["thread"]),
            bytes=math.nan if size is None else size * unit_bytes,
            # a copy with one pageable side is pageable
            pinned=min(memory, default=-1),
        )


def _number(numbers: NumberFormat, text: str) -> int:
    """Return the number of a stream or thread, or -1."""
    number = numbers.count(text)
    return -1 if number is None else number


def _gpu_event(row: _Row, names: Interned[str], calls: Mapping[str, int], devices: dict[str, int]) -> GpuEvent:
    """Return a row as an event; ``calls`` maps correlations to calls, ``devices`` names to numbers."""
    return GpuEvent(
        row.start_s,
        row.duration_s,
        names[row.name],
        device=_device_number(row.device, devices),
        stream=row.stream,
        launch=calls.get(row.correlation, -1),
        bytes=row.bytes,
        direction=copy_direction(row.name) if event_kind(row.name) is EventKind.MEMCPY else -1,
        pinned=row.pinned,
    )


def _device_number(written: str, devices: dict[str, int]) -> int:
    """Return the number in a device's name, or its rank by first appearance; -1 without a name."""
    if not written:
        return -1
    if written not in devices:
        named, numbered = _DEVICE.fullmatch(written), _NUMBERED.fullmatch(written)
        number = named.group(2) if named else numbered.group(1) if numbered else len(devices)
        devices[written] = int(number)
    return devices[written]
