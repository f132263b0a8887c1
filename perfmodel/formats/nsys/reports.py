"""The reports of ``nsys stats``: which one a header belongs to, its columns and their units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats.table.columns import unit_s
from perfmodel.formats.table.reader import LONGEST_TIME_S
from perfmodel.formats.text.numbers import MISSING, NumberFormat, number_format
from perfmodel.formats.text.stream import StreamTable

KERNEL_SUM, API_SUM, OS_SUM = "kernel sum", "api sum", "os sum"
MEMORY_TIME, MEMORY_SIZE, GPU_SUM = "memory time", "memory size", "gpu sum"
NVTX_SUM, GPU_TRACE, API_TRACE = "nvtx sum", "gpu trace", "api trace"

#: report -> its rows in words
SUMS = {
    KERNEL_SUM: "sums by kernel",
    API_SUM: "calls of the CUDA API",
    OS_SUM: "calls of the operating system",
    MEMORY_TIME: "sums by copy",
    MEMORY_SIZE: "sizes of copies",
    GPU_SUM: "sums by kernel, copy and call",
    NVTX_SUM: "ranges (NVTX)",
    GPU_TRACE: "the GPU's trace",
    API_TRACE: "the trace of API calls",
}
_HEADER = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?")
_UNIT_IN_BANNER = re.compile(r"\((nanoseconds|microseconds|milliseconds|seconds|KiB|KB|MiB|MB|GiB|GB)\)")
#: calls of CUDA's runtime and driver, which tell that table from the operating system's
_CUDA_CALL = re.compile(r"\"?(?:cu|cuda|hip)[A-Z]")


@dataclass(frozen=True)
class Column:
    """A column of a report: where it stands, its name in lower case, and the unit that stands behind it."""

    index: int
    name: str
    unit: str

    def unit_s(self, table: StreamTable) -> float:
        """Return its unit of time [s]: of the header, else of the banner, else nanoseconds, as nsys has it."""
        return _unit_s(self.unit, table.banner)

    def size_bytes(self, table: StreamTable) -> float:
        """Return its unit of size [B]; megabytes where nothing says otherwise."""
        return _size_bytes(self.unit, table.banner)


# asked for each row of a trace
@lru_cache(maxsize=256)
def _unit_s(unit: str, banner: str) -> float:
    written = _UNIT_IN_BANNER.search(banner)
    known = unit_s(unit) if unit else None
    if known is None and written:
        known = unit_s(written.group(1))
    return 1e-9 if known is None else known


@lru_cache(maxsize=256)
def _size_bytes(unit: str, banner: str) -> float:
    written = _UNIT_IN_BANNER.search(banner)
    try:
        return parse_quantity(f"1 {unit or (written.group(1) if written else 'MB')}", "B")
    except PerfModelError:
        return 1e6


def _columns(headers: Sequence[str]) -> list[Column]:
    found = []
    for index, header in enumerate(headers):
        match = _HEADER.fullmatch(" ".join(header.split()))
        name, unit = (match.group(1), match.group(2) or "") if match else (header, "")
        found.append(Column(index, name.strip().lower(), unit))
    return found


def column(table: StreamTable, *names: str, percent: bool = False) -> Column | None:
    """Return the first column of one of these names: of percentages, or else of anything but percentages."""
    fitting = [one for one in _columns(table.headers) if (one.unit == "%") == percent]
    return next((one for name in names for one in fitting if one.name == name), None)


def kind_of(headers: Sequence[str]) -> str:
    """Return the report that a header belongs to, or an empty string; banners tell some kinds apart later."""
    names = [one.name for one in _columns(headers)]
    units = {one.name: one.unit for one in _columns(headers)}
    known = set(names)
    if {"start", "duration"} <= known and "name" in known:
        if "grdx" in known or {"corrid", "strm"} <= known:
            return GPU_TRACE
        return API_TRACE if {"result", "corrid"} <= known else ""
    if "time" in known and units.get("time") == "%" and known & {"total time"}:
        if "range" in known:
            return NVTX_SUM if "instances" in known else ""
        if "category" in known and "operation" in known:
            return GPU_SUM
        if "operation" in known or ("operations" in known and "name" in known):
            return MEMORY_TIME
        if "name" in known and known & {"num calls", "calls"}:
            return API_SUM
        return KERNEL_SUM if "name" in known and "instances" in known else ""
    if "total" in known and "time" not in known and known & {"count", "operations"} and known & {"operation", "name"}:
        return MEMORY_SIZE
    return ""


def report_kind(table: StreamTable) -> str:
    """Return the report of a table, where its header leaves several."""
    kind = kind_of(table.headers)
    name = column(table, "name")
    if kind == API_SUM and name is not None:
        if "osrt" in table.banner.lower() or "os runtime" in table.banner.lower():
            return OS_SUM
        if table.rows and not any(_CUDA_CALL.match(cells[name.index]) for _, cells in table.rows):
            return OS_SUM
    return kind


def numbers_of(reports: Iterable[StreamTable], place: str) -> NumberFormat:
    """Return how the numbers of all reports are written."""
    texts: list[str] = []
    for table in reports:
        numeric = [one.index for one in _columns(table.headers) if one.unit or one.name in ("instances", "num calls")]
        texts.extend(cells[index] for _, cells in table.rows for index in numeric)
    return number_format(texts, place=place)


def seconds(numbers: NumberFormat, text: str, time: Column, table: StreamTable, where: str) -> float | None:
    """Return a time of a row [s], or None where it says nothing.

    Raises
    ------
    InputFileError
        When it is no number, negative, or over 30 years.
    """
    if text.strip().lower() in MISSING:
        return None
    value = numbers.parse(text)
    header = table.headers[time.index]
    if value is None:
        raise InputFileError(f"{text[:40]!r} in column {header!r} is not a time.", place=where)
    if value < 0:
        raise InputFileError(f"the time {text[:40]!r} in column {header!r} is negative.", place=where)
    time_s = value * time.unit_s(table)
    if time_s > LONGEST_TIME_S:
        raise InputFileError(
            f"the time in column {header!r} is over 30 years.", place=where, remedy="Is the unit right?"
        )
    return time_s
