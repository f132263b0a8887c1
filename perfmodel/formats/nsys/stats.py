"""Output of ``nsys stats``, as CSV, JSON or text: sums by kernel, copy, API call and range, and the trace of the GPU.

One stream may contain several reports, between banners and progress. Kernels and copies of the GPU become the
entries. API calls run beside them on the CPU, and ranges contain them, so these are entries only without GPU work.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import NO_SHAPES, event_kind
from perfmodel.formats.nsys.documents import is_report, report_in
from perfmodel.formats.nsys.projected import projected_sum, projected_trace
from perfmodel.formats.nsys.reports import (
    API_SUM,
    API_TRACE,
    GPU_SUM,
    GPU_TRACE,
    KERNEL_EXEC,
    KERNEL_SUM,
    MEMORY_SIZE,
    MEMORY_TIME,
    MPI_SUM,
    NVTX_KERNELS,
    NVTX_SUM,
    OS_SUM,
    PROJECTED_SUM,
    PROJECTED_TRACE,
    SUMS,
    column,
    kind_of,
    numbers_of,
    report_kind,
    seconds,
)
from perfmodel.formats.nsys.timeline import device_notes
from perfmodel.formats.nsys.trace import Tables, gpu_trace
from perfmodel.formats.text.double_counting import own_times, percent_notes
from perfmodel.formats.text.numbers import NumberFormat
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "nsys stats"
PRECEDENCE = 50
#: reports of the kernels, the likeliest first: each of them has all of them
_KERNELS = (KERNEL_SUM, KERNEL_EXEC, NVTX_KERNELS)
#: reports of work on the CPU
_HOST = (NVTX_SUM, API_SUM, OS_SUM, MPI_SUM)
_ADD = "add --report cuda_gpu_kern_sum, or nvtx_gpu_proj_trace for those within ranges"


def sniff(head: bytes) -> bool:
    """Recognise the reports of ``nsys stats`` by their headers."""
    text = head.decode("utf-8-sig", "replace")
    if is_report(text):
        return True
    try:
        return bool(tables(text, lambda cells: bool(kind_of(cells)), place=""))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read the reports of ``nsys stats`` as a profile.

    Entries are the kernels, copies and memsets of the GPU: those of ``cuda_gpu_trace``, which also gives a time line,
    else of ``cuda_gpu_kern_sum``, ``cuda_kern_exec_sum`` or ``nvtx_kern_sum`` with ``cuda_gpu_mem_time_sum`` and
    ``_size_sum``, else the rows of ``cuda_api_gpu_sum`` that are not API calls. Without any of these they are the
    ranges of ``nvtx_sum`` with the time outside inner ranges, else the calls of ``cuda_api_sum``, ``osrt_sum`` or
    ``mpi_event_sum``, category "host". Units are those of the headers (``--timeunit``); old reports without units are
    in nanoseconds. The notes say what was left out and why, and where percentages do not fit the times.

    Raises
    ------
    InputFileError
        When the file cannot be read, has no such report, an incomplete row, or damaged times.
    """
    place = os.fspath(path)
    reports = _reports(read_text(path), place)
    skipped: Counter[str] = Counter()
    foreign = sum(table.foreign for table in _all(reports))
    if foreign:
        skipped["line that is not a row"] = foreign
    stream = _Stream(place, reports, numbers_of(_all(reports), place), skipped, options.by)
    profile = _from_gpu(stream) or _from_projections(stream) or _from_host(stream)
    if not profile.total_time_s > 0:
        raise InputFileError("no row has a time above zero.", place=place, remedy="Was anything traced on the GPU?")
    return profile


@dataclass
class _Stream:
    """The reports of a stream, and what was noted and skipped while reading them."""

    place: str
    reports: dict[str, list[StreamTable]]
    numbers: NumberFormat
    skipped: Counter[str]
    by: str
    notes: list[str] = field(default_factory=list)

    def tables(self) -> Tables:
        """Return its tables with what is needed to read their rows."""
        return Tables(self.reports, self.numbers, self.skipped, self.place)


def _all(reports: dict[str, list[StreamTable]]) -> list[StreamTable]:
    return [table for several in reports.values() for table in several]


def _reports(text: str, place: str) -> dict[str, list[StreamTable]]:
    """Return the tables of a stream by the kind of report, without duplicates."""
    reports: dict[str, list[StreamTable]] = {}
    is_json = is_report(text)
    found = [report_in(text, place)] if is_json else tables(text, lambda cells: bool(kind_of(cells)), place=place)
    for table in found:
        several = reports.setdefault(report_kind(table), [])
        # `nsys profile --stats` prints the reports that `nsys stats` prints again
        if all([cells for _, cells in table.rows] != [cells for _, cells in other.rows] for other in several):
            several.append(table)
    if not reports:
        raise InputFileError(
            "has no known report of nsys stats.",
            place=place,
            remedy="Make one: nsys stats --report cuda_gpu_kern_sum,cuda_gpu_mem_time_sum --format csv FILE.nsys-rep.",
        )
    if not any(table.rows for table in _all(reports)):
        raise InputFileError("its reports have no rows.", place=place, remedy="Was anything traced on the GPU?")
    return {kind: [table for table in several if table.rows] for kind, several in reports.items()}


def _from_gpu(stream: _Stream) -> Profile | None:
    """Return the profile of the GPU's work, or None without any."""
    reports = stream.reports
    if reports.get(GPU_TRACE):
        entries, timeline, device = gpu_trace(stream.tables(), stream.by)
        stream.notes.extend(device_notes(timeline))
        used: tuple[str, ...] = (GPU_TRACE, API_TRACE)
    else:
        kernels = [kind for kind in _KERNELS if reports.get(kind)][:1]
        copies = [MEMORY_TIME] if reports.get(MEMORY_TIME) else []
        used = tuple(kernels + copies) or ((GPU_SUM,) if reports.get(GPU_SUM) else ())
        entries, timeline, device = [entry for kind in used for entry in _sum(stream, kind)], None, ""
        entries = _with_sizes(stream, entries)
    if not entries:
        return None
    for kind in reports:
        if kind not in (*used, MEMORY_SIZE):
            stream.notes.append(_left_out(stream, kind))
    return _profile(stream, entries, timeline=timeline, device=device)


def _from_projections(stream: _Stream) -> Profile | None:
    """Return the profile of ranges of the program by the GPU work in them, or None without any."""
    for kind, read_table in ((PROJECTED_TRACE, projected_trace), (PROJECTED_SUM, projected_sum)):
        if stream.reports.get(kind):
            entries, notes = read_table(stream.tables())
            stream.notes.extend(notes)
            stream.notes.extend(_left_out(stream, other) for other in stream.reports if other != kind)
            return _profile(stream, entries)
    return None


def _from_host(stream: _Stream) -> Profile:
    """Return the profile of ranges or calls on the CPU."""
    for kind, rows in (
        (NVTX_SUM, "ranges of the program (NVTX)"),
        (API_SUM, "calls of the CUDA API on the CPU"),
        (OS_SUM, "calls of the operating system, summed over all threads"),
        (MPI_SUM, "calls of MPI, summed over all processes"),
    ):
        entries = _sum(stream, kind) if stream.reports.get(kind) else []
        if not entries:
            continue
        stream.notes.append(f"These are times of {rows}; the file has no times of kernels: {_ADD}.")
        if kind == NVTX_SUM:
            entries, notes = own_times(Profile.from_entries(entries).entries)
            stream.notes.extend(notes)
        stream.notes.extend(_left_out(stream, other) for other in stream.reports if other != kind)
        return _profile(stream, entries)
    raise InputFileError(
        "its reports have no times of kernels, copies, ranges or calls.",
        place=stream.place,
        remedy=f"{_ADD[0].upper()}{_ADD[1:]}.",
    )


def _profile(stream: _Stream, entries: Sequence[ProfileEntry], **more: Any) -> Profile:
    return Profile.from_entries(
        entries, source=stream.place, notes=tuple(stream.notes), skipped=stream.skipped, format=NAME, **more
    )


def _sum(stream: _Stream, kind: str) -> list[ProfileEntry]:
    """Return the rows of all reports of one kind."""
    several = stream.reports[kind]
    plain = [table for table in several if column(table, "gridxyz") is None]
    if plain and len(plain) < len(several):
        stream.notes.append("Left out: kernels by grid and block, since a report by name lists them too.")
        several = plain
    if len(several) > 1:
        stream.notes.append(f"{len(several)} different reports of one kind ({SUMS[kind]}) are added up.")
    return [entry for table in several for entry in _rows(stream, kind, table)]


def _rows(stream: _Stream, kind: str, table: StreamTable) -> list[ProfileEntry]:
    """Return the rows of a table of sums."""
    total = column(table, "total time", "total", "kavg")
    name = column(table, "range", "operation", "name", "kernel name")
    if total is None or name is None:
        raise InputFileError(f"line {table.line}: no column of times or names.", place=stream.place)
    calls = column(table, "instances", "num calls", "calls", "count", "operations", "kern inst")
    category, percent = column(table, "category"), column(table, "time", percent=True)
    entries, percents = [], []
    for line, cells in table.rows:
        time_s = seconds(stream.numbers, cells[total.index], total, table, f"{stream.place}, line {line}")
        if time_s is None:
            stream.skipped["row without a time"] += 1
            continue
        percents.append(None if percent is None else stream.numbers.parse(cells[percent.index]))
        event = _kind(kind, cells[name.index], "" if category is None else cells[category.index])
        reason = "" if event is EventKind.HOST else NO_SHAPES
        count = None if calls is None else stream.numbers.count(cells[calls.index])
        if kind == KERNEL_EXEC:
            time_s *= count or 0  # it has the mean of a kernel in place of the sum
        entries.append(ProfileEntry(cells[name.index] or "(unnamed)", time_s, count, event, not_modelled=reason))
    if kind == NVTX_KERNELS:
        stream.notes.append("A kernel counts in each range around it: where ranges nest, the total is too large.")
    if percent is not None:
        stream.notes.extend(percent_notes(percents, [entry.time_s for entry in entries], table.headers[percent.index]))
    return _without_api(stream, entries) if kind == GPU_SUM else entries


def _without_api(stream: _Stream, entries: list[ProfileEntry]) -> list[ProfileEntry]:
    """Return the GPU's part of the report that lists API calls in the same table."""
    api_s = math.fsum(entry.time_s for entry in entries if entry.category == EventKind.HOST)
    if api_s:
        stream.notes.append(f"Left out: API calls ({format_si(api_s, 's')}): they run on the CPU beside the kernels.")
    return [entry for entry in entries if entry.category != EventKind.HOST]


def _kind(report: str, name: str, category: str) -> EventKind:
    """Return the kind of work of a row."""
    if report in _HOST or "API" in category.upper():
        return EventKind.HOST
    return event_kind(name)


def _with_sizes(stream: _Stream, entries: list[ProfileEntry]) -> list[ProfileEntry]:
    """Add the bytes from the report of sizes to the copies of the same name."""
    sizes: dict[str, float] = {}
    for table in stream.reports.get(MEMORY_SIZE, ()):
        total, name = column(table, "total"), column(table, "operation", "name")
        if total is None or name is None:
            continue
        for _, cells in table.rows:
            moved = (stream.numbers.parse(cells[total.index]) or 0.0) * total.size_bytes(table)
            sizes[cells[name.index]] = sizes.get(cells[name.index], 0.0) + moved
    return [
        replace(entry, metrics=MappingProxyType({"copied_bytes": sizes[entry.name]})) if entry.name in sizes else entry
        for entry in entries
    ]


def _left_out(stream: _Stream, kind: str) -> str:
    """Return the note on a report that is not counted."""
    reason = {
        **dict.fromkeys((API_SUM, API_TRACE, OS_SUM, MPI_SUM), "they run on the CPU beside the kernels"),
        **dict.fromkeys((NVTX_SUM, PROJECTED_SUM, PROJECTED_TRACE), "they contain one another and the kernels"),
    }.get(kind, "other reports already count them")
    total_s = 0.0
    for table in stream.reports[kind]:
        time = column(table, "total time", "total", "duration", "total proj time", "projected duration")
        if time is not None and kind != MEMORY_SIZE:
            total_s += math.fsum(
                stream.numbers.parse(cells[time.index]) or 0.0 for _, cells in table.rows
            ) * time.unit_s(table)
    time_text = f" ({format_si(total_s, 's')})" if total_s else ""
    return f"Left out: {SUMS[kind]}{time_text}: {reason}."
