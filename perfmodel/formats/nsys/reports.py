"""The reports of ``nsys stats``: how their headers are recognised, their columns and units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats.text.numbers import LONGEST_TIME_S, MISSING, NumberFormat, number_format, unit_s
from perfmodel.formats.text.stream import StreamTable

KERNEL_SUM, API_SUM, OS_SUM = "kernel sum", "api sum", "os sum"
MEMORY_TIME, MEMORY_SIZE, GPU_SUM = "memory time", "memory size", "gpu sum"
NVTX_SUM, GPU_TRACE, API_TRACE = "nvtx sum", "gpu trace", "api trace"
KERNEL_EXEC, NVTX_KERNELS, MPI_SUM = "kernel exec", "nvtx kernels", "mpi sum"
PROJECTED_SUM, PROJECTED_TRACE = "projected sum", "projected trace"
#: ranges of the program on the CPU, which a reader puts beside a trace; no report of nsys is read as one
RANGES = "ranges"

#: report -> what its rows are
SUMS = {
    KERNEL_SUM: "sums by kernel",
    API_SUM: "calls of the CUDA API",
    OS_SUM: "calls of the operating system",
    MEMORY_TIME: "sums by copy",
    MEMORY_SIZE: "sizes of copies",
    GPU_SUM: "sums by kernel, copy and call",
    NVTX_SUM: "ranges (NVTX)",
    KERNEL_EXEC: "sums by kernel and call",
    NVTX_KERNELS: "sums by range and kernel",
    MPI_SUM: "calls of MPI",
    PROJECTED_SUM: "ranges projected to the GPU",
    PROJECTED_TRACE: "trace of ranges projected to the GPU",
    GPU_TRACE: "trace of the GPU",
    API_TRACE: "trace of API calls",
}
_HEADER = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?")
_UNIT_IN_BANNER = re.compile(r"\((nanoseconds|microseconds|milliseconds|seconds|KiB|KB|MiB|MB|GiB|GB)\)")
#: calls of CUDA's runtime and driver; a table of calls without any lists those of the operating system
_CUDA_CALL = re.compile(r"\"?(?:cu|cuda|hip)[A-Z]")


@dataclass(frozen=True)
class Column:
    """A column of a report: its position, its name in lower case, and the unit in its header."""

    index: int
    name: str
    unit: str

    def unit_s(self, table: StreamTable) -> float:
        """Return its unit of time [s], from the header, else the banner, else nanoseconds as in old reports."""
        return _unit_s(self.unit, table.banner)

    def size_bytes(self, table: StreamTable) -> float:
        """Return its unit of size [B], from the header ("Bytes" is one), else the banner, else megabytes."""
        return _size_bytes(self.unit or ("B" if self.name == "bytes" else ""), table.banner)


# called for each row of a trace
@lru_cache(maxsize=256)
def _unit_s(unit: str, banner: str) -> float:
    in_banner = _UNIT_IN_BANNER.search(banner)
    scale = unit_s(unit) if unit else None
    if scale is None and in_banner:
        scale = unit_s(in_banner.group(1))
    return 1e-9 if scale is None else scale


@lru_cache(maxsize=256)
def _size_bytes(unit: str, banner: str) -> float:
    in_banner = _UNIT_IN_BANNER.search(banner)
    try:
        return parse_quantity(f"1 {unit or (in_banner.group(1) if in_banner else 'MB')}", "B")
    except PerfModelError:
        return 1e6


def _columns(headers: Sequence[str]) -> list[Column]:
    columns = []
    for index, header in enumerate(headers):
        match = _HEADER.fullmatch(" ".join(header.split()))
        name, unit = (match.group(1), match.group(2) or "") if match else (header, "")
        columns.append(Column(index, name.strip().lower(), unit))
    return columns


def column(table: StreamTable, *names: str, percent: bool = False) -> Column | None:
    """Return the first column with one of these names, of percentages or of anything else."""
    columns = [one for one in _columns(table.headers) if (one.unit == "%") == percent]
    return next((one for name in names for one in columns if one.name == name), None)


def kind_of(headers: Sequence[str]) -> str:
    """Return the report that a header belongs to, or ""; `report_kind` separates two reports with equal headers."""
    columns = _columns(headers)
    names, units = {one.name for one in columns}, {one.name: one.unit for one in columns}
    if {"start", "duration", "name"} <= names:
        if "grdx" in names or {"corrid", "strm"} <= names:
            return GPU_TRACE
        return API_TRACE if {"result", "corrid"} <= names else ""
    if {"count", "kavg", "kernel name"} <= names:
        return KERNEL_EXEC
    if {"nvtx range", "total time", "kernel name"} <= names:
        return NVTX_KERNELS
    if {"range", "total proj time"} <= names:
        return PROJECTED_SUM
    if {"name", "projected start", "projected duration"} <= names:
        return PROJECTED_TRACE
    if units.get("time") == "%" and "total time" in names:
        return _kind_of_shares(names)
    if "total" in names and "time" not in names and names & {"count", "operations"} and names & {"operation", "name"}:
        return MEMORY_SIZE
    return ""


def _kind_of_shares(names: set[str]) -> str:
    """Return the report of total times with their percentages, from the names of its columns."""
    if "range" in names:
        return NVTX_SUM if "instances" in names else ""
    if "category" in names and "operation" in names:
        return GPU_SUM
    if "operation" in names or {"operations", "name"} <= names:
        return MEMORY_TIME
    if "name" in names and names & {"num calls", "calls"}:
        return API_SUM
    if {"name", "instances"} <= names:
        return MPI_SUM if "source" in names else KERNEL_SUM
    return ""


def report_kind(table: StreamTable) -> str:
    """Return the report of a table; the CUDA API and the operating system have the same headers."""
    kind = kind_of(table.headers)
    name = column(table, "name")
    if kind == API_SUM and name is not None:
        if "osrt" in table.banner.lower() or "os runtime" in table.banner.lower():
            return OS_SUM
        if table.rows and not any(_CUDA_CALL.match(cells[name.index]) for _, cells in table.rows):
            return OS_SUM
    return kind


def numbers_of(reports: Iterable[StreamTable], place: str) -> NumberFormat:
    """Return how all reports write their numbers."""
    texts: list[str] = []
    for table in reports:
        numeric = [one.index for one in _columns(table.headers) if one.unit or one.name in ("instances", "num calls")]
        texts.extend(cells[index] for _, cells in table.rows for index in numeric)
    return number_format(texts, place=place)


def seconds(numbers: NumberFormat, text: str, time: Column, table: StreamTable, where: str) -> float | None:
    """Return a time of a row [s], or None for an empty cell.

    Raises
    ------
    InputFileError
        When it is negative, over 30 years, or not a number.
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
