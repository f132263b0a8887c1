"""The CSV files of AMD's profilers: how their headers are recognised, and their traces in the columns of nsys.

Headers differ by release: ``Start_Timestamp`` of rocprofv3 is ``BeginNs`` of rocprof, ``Agent_Id`` is ``gpu-id``. Times
are nanoseconds on the clock of the host (ROCprofiler-SDK, "Using rocprofv3", output file fields; ROCProfiler,
"Using rocprof", and file plugin of rocprofv2).
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from perfmodel.formats.nsys.reports import API_TRACE, GPU_TRACE, RANGES
from perfmodel.formats.text.stream import StreamTable


class Report(enum.Enum):
    """What a file of AMD's profilers holds, and how a message names it."""

    KERNELS = "a trace of kernels"
    COUNTERS = "counters of kernels"
    COPIES = "a trace of copies"
    CALLS = "a trace of API calls"
    SUMS = "statistics"
    UNTIMED = "kernels without times"
    OTHER = "a trace of other events"


#: column -> how the releases write it, in lower case without marks
_COLUMNS = {
    "start": ("starttimestamp", "beginns"),
    "end": ("endtimestamp", "stoptimestamp", "endns"),
    "kernel": ("kernelname",),
    "call": ("function",),
    "direction": ("direction", "operation"),
    "device": ("agentid", "gpuid"),
    "source": ("sourceagentid",),
    "target": ("destinationagentid",),
    "stream": ("streamid",),
    "queue": ("queueid",),
    "thread": ("threadid", "tid"),
    "correlation": ("correlationid",),
    "process": ("guid", "processid", "pid"),
    "dispatch": ("dispatchid", "index"),
    "counter": ("countername",),
    "domain": ("domain", "kind"),
    "name": ("name",),
    "calls": ("calls",),
    "total": ("totaldurationns",),
    # of a summary for people, in the unit that it was asked for
    "duration": ("durationnsec", "durationusec", "durationmsec", "durationsec"),
}
_MARKS = re.compile(r"[\W_]+")
#: what rocprof and rocprofv2 write of each launch; a further column is a counter
_DISPATCH = {
    *("", "index", "kernelname", "gpuid", "queueid", "queueindex", "pid", "tid", "grd", "wgr", "lds", "scr", "vgpr"),
    *("fbar", "archvgpr", "accumvgpr", "sgpr", "wavesize", "sig", "obj", "dispatchns", "beginns", "endns"),
    *("completens", "durationns", "dispatchid", "gridsize", "workgroupsize", "ldsperworkgroup", "scratchperworkitem"),
    *("kernelid", "starttimestamp", "endtimestamp", "correlationid", "agentid", "threadid", "processid"),
}
#: the columns that both traces get, as nsys writes them
_GPU_HEADERS = ("Start (ns)", "Duration (ns)", "Name", "CorrId", "Device", "Strm")
_API_HEADERS = ("Start (ns)", "Duration (ns)", "Name", "CorrId", "Tid", "Pid")
#: rocprof names the symbol of a kernel's descriptor in place of the kernel: "gemm(int) [clone .kd]", "gemm.kd"
_DESCRIPTOR = re.compile(r"(?:\.kd| \[clone \.kd\])$")
#: nanoseconds since 1970 have 19 digits
_MOST_DIGITS = 19
_FLOAT = re.compile(r"\d{1,19}\.\d{0,19}(?:[eE]\+?1?\d)?")
_COPY = "MEMORY_COPY_"
_NO_TIME = "event without a start or an end"
_BACKWARDS = "event that ends before it starts"
_REPEATED = "row with another counter of a launch that is counted"
UNDER_HIP = "call of HSA, which calls of HIP make"
COUNTED_ALONE = "Counters are collected from one kernel at a time, so there is no time line of the program."
_MARK = "mark of the program (ROCTX), which has no length"


def positions(headers: Sequence[str]) -> dict[str, int]:
    """Return the position of each column that the headers have.

    >>> positions(["Kernel_Name", "BeginNs", "EndNs"])
    {'start': 1, 'end': 2, 'kernel': 0}
    """
    plain = list(map(_plain, headers))
    found = {key: [plain.index(name) for name in names if name in plain] for key, names in _COLUMNS.items()}
    return {key: places[0] for key, places in found.items() if places}


def _plain(header: str) -> str:
    return _MARKS.sub("", header.lower())


def report_of(headers: Sequence[str]) -> Report | None:
    """Return what a table with these headers holds, None for headers of another program."""
    has = positions(headers).keys()
    if {"name", "calls", "total"} <= has or {"name", "calls", "duration", "domain"} <= has:
        return Report.SUMS
    if not {"start", "end"} <= has:
        # "Index" and "gpu-id" alone stand in many a table
        by_dispatch = {"kernel", "dispatch", "device", "queue"} <= has
        return Report.UNTIMED if by_dispatch or {"kernel", "counter"} <= has else None
    if "kernel" in has:
        if not has & {"domain", "dispatch", "device", "correlation"}:
            return None
        counted = "counter" in has or ("domain" not in has and not _DISPATCH.issuperset(map(_plain, headers)))
        return Report.COUNTERS if counted else Report.KERNELS
    if not has & {"domain", "correlation"}:
        return None
    if "call" in has:
        return Report.CALLS
    # a trace of allocations has operations, too, but no direction
    allocations = {"device", "direction"} <= has
    return Report.COPIES if "direction" in has and not allocations else Report.OTHER


@dataclass
class Traces:
    """The traces of a stream in the columns of nsys, and what was left out of them.

    Attributes
    ----------
    gpu, api : rows of `_GPU_HEADERS` and `_API_HEADERS`, each with its line.
    ranges : ranges of the program, as rows of `_API_HEADERS`.
    skipped : reason -> number of rows.
    """

    gpu: list[tuple[int, list[str]]] = field(default_factory=list)
    api: list[tuple[int, list[str]]] = field(default_factory=list)
    ranges: list[tuple[int, list[str]]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def tables(self) -> dict[str, list[StreamTable]]:
        """Return the traces as `perfmodel.formats.nsys.trace.gpu_trace` takes them."""
        return {
            GPU_TRACE: [StreamTable("", _GPU_HEADERS, 1, self.gpu)],
            API_TRACE: [StreamTable("", _API_HEADERS, 1, self.api)],
            RANGES: [StreamTable("", _API_HEADERS, 1, self.ranges)],
        }


def different(tables: Iterable[StreamTable]) -> list[StreamTable]:
    """Return the tables without those that are there already: a pattern may match a file twice."""
    chosen: list[StreamTable] = []
    for table in tables:
        rows = [cells for _, cells in table.rows]
        if all(rows != [cells for _, cells in one.rows] for one in chosen):
            chosen.append(table)
    return chosen


def traces(tables: Iterable[StreamTable]) -> Traces:
    """Return the traces in some tables; other tables have no effect.

    Times count from the first event, as whole nanoseconds: float64 resolves 256 ns in the nanoseconds since 1970.
    """
    result = Traces()
    timed = {Report.KERNELS, Report.COUNTERS, Report.COPIES, Report.CALLS}
    chosen = [table for table in tables if report_of(table.headers) in timed]
    hip = any(_is_hip(table) for table in chosen)
    every = [(table, _events(table, result.skipped, hip=hip)) for table in chosen]
    origin_ns = min((start for _, events in every for start, *_ in events), default=0)
    for table, events in every:
        is_api = report_of(table.headers) is Report.CALLS
        row_of = _api_row if is_api else _gpu_row(table)
        for start, end, line, cell in events:
            rows = result.ranges if _is_mark(cell) else result.api if is_api else result.gpu
            rows.append((line, [str(start - origin_ns), str(end - start), *row_of(cell)]))
    return result


def _is_hip(table: StreamTable) -> bool:
    """Whether a table has calls of HIP."""
    domain = positions(table.headers).get("domain")
    if domain is None or report_of(table.headers) is not Report.CALLS:
        return False
    return any(cells[domain].startswith("HIP") for _, cells in table.rows)


def _events(table: StreamTable, skipped: Counter[str], *, hip: bool) -> list[tuple[int, int, int, dict[str, str]]]:
    """Return start [ns], end [ns], line and cells of each event; rows that do not count are skipped and counted.

    ``hip`` says that the stream has calls of HIP.
    """
    at = positions(table.headers)
    seen: set[tuple[str, str]] = set()
    events = []
    for line, cells in table.rows:
        cell = {key: cells[index] for key, index in at.items()}
        start, end = _whole(cell["start"]), _whole(cell["end"])
        if reason := _not_counted(cell, seen, hip=hip):
            skipped[reason] += 1
        elif not start or not end:
            skipped[_NO_TIME] += 1  # a time that was never written is 0
        elif end < start:
            skipped[_BACKWARDS] += 1
        else:
            events.append((start, end, line, cell))
    return events


def _not_counted(cell: dict[str, str], seen: set[tuple[str, str]], *, hip: bool) -> str:
    """Return why a row is no event of its own, or ""; ``seen`` are the launches of the rows before, and gets this."""
    if "counter" in cell:
        launch = cell.get("process", ""), cell.get("dispatch", "")
        if launch in seen:
            return _REPEATED  # there is one row a counter
        seen.add(launch)
    if _is_mark(cell):
        return _MARK if cell["start"] == cell["end"] else ""
    return UNDER_HIP if hip and "call" in cell and cell.get("domain", "").startswith("HSA") else ""


def _is_mark(cell: dict[str, str]) -> bool:
    """Whether a row of a trace of calls is a range or a mark of the program (ROCTX)."""
    return "call" in cell and cell.get("domain", "").startswith(("MARKER", "ROCTX"))


def _whole(text: str) -> int:
    """Return a time stamp with all of its digits, 0 for anything else.

    A program that filters the rows may write it as "172352210005122.0" or "1.72352210005122e+14".
    """
    if text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS:
        return int(text)
    return int(Decimal(text)) if _FLOAT.fullmatch(text) else 0


def _api_row(cell: dict[str, str]) -> list[str]:
    return [cell["call"], _correlation(cell), cell.get("thread", ""), cell.get("process", "")]


def _gpu_row(table: StreamTable) -> Callable[[dict[str, str]], list[str]]:
    """Return what gives the cells of a kernel or copy.

    A stream of HIP is what a program sees; a queue of the GPU stands for it where streams were not recorded.
    """
    at = positions(table.headers)
    by_stream = "stream" in at and any(cells[at["stream"]] not in ("", "0") for _, cells in table.rows)
    stream = "stream" if by_stream or "queue" not in at else "queue"

    def row(cell: dict[str, str]) -> list[str]:
        device = cell.get("device") or _device_of_copy(cell)
        return [_work(cell), _correlation(cell), device, cell.get(stream, "")]

    return row


def _work(cell: dict[str, str]) -> str:
    """Return the name of a kernel or copy."""
    if cell.get("kernel"):
        return kernel_name(cell["kernel"])
    direction = cell.get("direction", "")
    if "_TO_" in direction and not direction.startswith(_COPY):
        direction = _COPY + direction
    both = cell.get("source", ""), cell.get("target", "")
    return f"{direction} (peer)" if "DEVICE_TO_DEVICE" in direction and both[0] != both[1] else direction


def kernel_name(written: str) -> str:
    """Return the name of a kernel from that of its descriptor.

    >>> kernel_name("copy(float*) [clone .kd]"), kernel_name("Cijk_Ailk_MT64x64.kd")
    ('copy(float*)', 'Cijk_Ailk_MT64x64')
    """
    return _DESCRIPTOR.sub("", written)


def _device_of_copy(cell: dict[str, str]) -> str:
    """Return the GPU of a copy: where it goes, or where it comes from if it goes to the host."""
    return cell.get("source" if cell.get("direction", "").endswith("_TO_HOST") else "target", "")


def _correlation(cell: dict[str, str]) -> str:
    """Return what a launch and its work share; processes count alike, and only some tables name them."""
    number, process = cell.get("correlation", ""), cell.get("process", "")
    return f"{process}/{number}" if "-" in process and number else number
