"""What ``nsys stats`` prints, as CSV or as text: sums by kernel, copy, API call and range, and the GPU's trace.

Several reports may stand in one stream, between banners and progress. The kernels and copies of the GPU become
the entries; calls of the API run beside them on the CPU, and ranges contain them, so they are entries only where
nothing of the GPU is there.
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
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.nsys.reports import (
    API_SUM,
    API_TRACE,
    GPU_SUM,
    GPU_TRACE,
    KERNEL_SUM,
    MEMORY_SIZE,
    MEMORY_TIME,
    NVTX_SUM,
    OS_SUM,
    SUMS,
    Column,
    column,
    kind_of,
    numbers_of,
    report_kind,
    seconds,
)
from perfmodel.formats.nsys.trace import gpu_trace
from perfmodel.formats.text.events import NO_SHAPES, category_word, device_notes
from perfmodel.formats.text.numbers import NumberFormat
from perfmodel.formats.text.percent import percent_notes
from perfmodel.formats.text.ranges import own_times
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile import profile as categories
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "nsys stats"
#: reports of the GPU's work, the first that is there is read
_GPU = (KERNEL_SUM, MEMORY_TIME)


def sniff(head: bytes) -> bool:
    """Tell the reports of ``nsys stats`` by their headers."""
    text = head.decode("utf-8-sig", "replace")
    try:
        return bool(tables(text, lambda cells: bool(kind_of(cells)), place=""))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Profile:
    """Read the reports of ``nsys stats`` as a profile.

    Entries are the kernels, copies and memsets of the GPU: of ``cuda_gpu_trace``, which also gives a time line,
    else of ``cuda_gpu_kern_sum`` with ``cuda_gpu_mem_time_sum`` and ``_size_sum``, else of the rows of
    ``cuda_api_gpu_sum`` that are not API calls. Without any of these they are the ranges of ``nvtx_sum`` with the
    time that is their own, else the calls of ``cuda_api_sum`` or ``osrt_sum``, category "host". Units are those
    of the headers (``--timeunit``); old reports without units are in nanoseconds. The notes say what was left
    out and why, and where percentages do not fit the times.

    Raises
    ------
    InputFileError
        When the file cannot be read, holds no such report, has a row that is not whole, or times that are none.
    """
    place = os.fspath(path)
    reports = _reports(read_text(path), place)
    skipped: Counter[str] = Counter()
    foreign = sum(table.foreign for table in _all(reports))
    if foreign:
        skipped["a line that is no row"] = foreign
    found = _Found(place, reports, numbers_of(_all(reports), place), skipped, (options or ReadOptions()).by)
    profile = _from_gpu(found) or _from_host(found)
    if not profile.total_time_s > 0:
        raise InputFileError("no row has a time above zero.", place=place, remedy="Was anything traced on the GPU?")
    return profile


@dataclass
class _Found:
    """What a stream holds, and what is said of it."""

    place: str
    reports: dict[str, list[StreamTable]]
    numbers: NumberFormat
    skipped: Counter[str]
    by: str
    notes: list[str] = field(default_factory=list)


def _all(reports: dict[str, list[StreamTable]]) -> list[StreamTable]:
    return [table for several in reports.values() for table in several]


def _reports(text: str, place: str) -> dict[str, list[StreamTable]]:
    """Return the tables of a stream by the kind of report, none twice."""
    found: dict[str, list[StreamTable]] = {}
    for table in tables(text, lambda cells: bool(kind_of(cells)), place=place):
        several = found.setdefault(report_kind(table), [])
        # the same report printed twice, by `nsys profile --stats` and again by `nsys stats`
        if all([cells for _, cells in table.rows] != [cells for _, cells in other.rows] for other in several):
            several.append(table)
    if not found:
        raise InputFileError(
            "holds no report of nsys stats that is known.",
            place=place,
            remedy="Make one: nsys stats --report cuda_gpu_kern_sum,cuda_gpu_mem_time_sum --format csv FILE.nsys-rep.",
        )
    if not any(table.rows for table in _all(found)):
        raise InputFileError("its reports have no rows.", place=place, remedy="Was anything traced on the GPU?")
    return {kind: [table for table in several if table.rows] for kind, several in found.items()}


def _from_gpu(found: _Found) -> Profile | None:
    """Return the profile of the GPU's work, where there is any."""
    reports = found.reports
    if reports.get(GPU_TRACE):
        traced, timeline, device = gpu_trace(reports, found.numbers, found.skipped, found.place, found.by)
        found.notes.extend(device_notes(timeline))
        used: tuple[str, ...] = (GPU_TRACE, API_TRACE)
    else:
        used = tuple(kind for kind in _GPU if reports.get(kind)) or ((GPU_SUM,) if reports.get(GPU_SUM) else ())
        traced, timeline, device = [entry for kind in used for entry in _sum(found, kind)], None, ""
        traced = _with_sizes(found, traced)
    if not traced:
        return None
    for kind in reports:
        if kind not in (*used, MEMORY_SIZE):
            found.notes.append(_left_out(found, kind))
    return _profile(found, traced, timeline=timeline, device=device)


def _from_host(found: _Found) -> Profile:
    """Return the profile of ranges or calls on the CPU."""
    for kind, what in (
        (NVTX_SUM, "ranges of the program (NVTX)"),
        (API_SUM, "calls of the CUDA API on the CPU"),
        (OS_SUM, "calls of the operating system, of all threads together"),
    ):
        entries = _sum(found, kind) if found.reports.get(kind) else []
        if not entries:
            continue
        found.notes.append(f"These are times of {what}; no times of kernels are there.")
        if kind == NVTX_SUM:
            entries, notes = own_times(Profile.from_entries(entries).entries)
            found.notes.extend(notes)
        found.notes.extend(_left_out(found, other) for other in found.reports if other != kind)
        return _profile(found, entries)
    raise InputFileError(
        "its reports hold no times of kernels, copies, ranges or calls.",
        place=found.place,
        remedy="Add the report cuda_gpu_kern_sum.",
    )


def _profile(found: _Found, entries: Sequence[ProfileEntry], **more: Any) -> Profile:
    return Profile.from_entries(
        entries, source=found.place, notes=tuple(found.notes), skipped=found.skipped, format=NAME, **more
    )


def _sum(found: _Found, kind: str) -> list[ProfileEntry]:
    """Return the rows of all reports of one kind."""
    several = found.reports[kind]
    plain = [table for table in several if column(table, "gridxyz") is None]
    if plain and len(plain) < len(several):
        found.notes.append(
            "Kernels are also listed by grid and block: those rows would count them twice, and are left out."
        )
        several = plain
    if len(several) > 1:
        found.notes.append(f"{len(several)} different reports of one kind ({SUMS[kind]}) are added up.")
    return [entry for table in several for entry in _rows(found, kind, table)]


def _rows(found: _Found, kind: str, table: StreamTable) -> list[ProfileEntry]:
    """Return the rows of a table of sums."""
    total = column(table, "total time", "total")
    name = column(table, "range", "operation", "name")
    if total is None or name is None:
        raise InputFileError(f"line {table.line}: no column of times or names.", place=found.place)
    calls = column(table, "instances", "num calls", "calls", "count", "operations")
    kind_column, percent = column(table, "category"), column(table, "time", percent=True)
    entries, percents = [], []
    for line, cells in table.rows:
        time_s = seconds(found.numbers, cells[total.index], total, table, f"{found.place}, line {line}")
        if time_s is None:
            found.skipped["a row without a time"] += 1
            continue
        percents.append(None if percent is None else found.numbers.parse(cells[percent.index]))
        category = _category(kind, cells[name.index], None if kind_column is None else cells[kind_column.index])
        unknown = "" if category == categories.HOST else NO_SHAPES
        count = _calls(found, cells, calls)
        entries.append(ProfileEntry(cells[name.index] or "(unnamed)", time_s, count, category, not_modelled=unknown))
    if percent is not None:
        found.notes.extend(percent_notes(percents, [entry.time_s for entry in entries], table.headers[percent.index]))
    if kind == GPU_SUM:
        api_s = math.fsum(entry.time_s for entry in entries if entry.category == categories.HOST)
        if api_s:
            found.notes.append(
                f"API calls on the CPU ({format_si(api_s, 's')}) stand in the same table and are left out."
            )
        entries = [entry for entry in entries if entry.category != categories.HOST]
    return entries


def _category(kind: str, name: str, written: str | None) -> str:
    """Return the category of a row, from the report that it stands in."""
    if kind in (NVTX_SUM, API_SUM, OS_SUM) or (written is not None and "API" in written.upper()):
        return categories.HOST
    return category_word(name)


def _calls(found: _Found, cells: Sequence[str], calls: Column | None) -> int | None:
    number = None if calls is None else found.numbers.parse(cells[calls.index])
    return int(number) if number is not None and 0 <= number < 2**53 else None


def _with_sizes(found: _Found, entries: list[ProfileEntry]) -> list[ProfileEntry]:
    """Add the bytes of the report of sizes to the copies of the same name."""
    sizes: dict[str, float] = {}
    for table in found.reports.get(MEMORY_SIZE, ()):
        total, name = column(table, "total"), column(table, "operation", "name")
        if total is None or name is None:
            continue
        for _, cells in table.rows:
            moved = (found.numbers.parse(cells[total.index]) or 0.0) * total.size_bytes(table)
            sizes[cells[name.index]] = sizes.get(cells[name.index], 0.0) + moved
    return [
        replace(entry, metrics=MappingProxyType({"copied_bytes": sizes[entry.name]})) if entry.name in sizes else entry
        for entry in entries
    ]


def _left_out(found: _Found, kind: str) -> str:
    """Say what a report holds that is not counted."""
    why = {
        API_SUM: "they run on the CPU beside the kernels",
        API_TRACE: "they run on the CPU beside the kernels",
        OS_SUM: "they run on the CPU beside the kernels",
        NVTX_SUM: "they contain one another and the rest",
    }.get(kind, "they are in the other reports already")
    total_s = 0.0
    for table in found.reports[kind]:
        time = column(table, "total time", "total", "duration")
        if time is not None and kind != MEMORY_SIZE:
            total_s += math.fsum(
                found.numbers.parse(cells[time.index]) or 0.0 for _, cells in table.rows
            ) * time.unit_s(table)
    return f"Left out: {SUMS[kind]} ({format_si(total_s, 's')}): {why}."
