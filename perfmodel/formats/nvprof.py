"""Output of ``nvprof``, as CSV or as text: kernels and API calls in one table of sums, and the trace of the GPU.

In CSV the units are in a second header row and differ by column ("Time" in ms, "Avg" in us); in text each cell has
its unit. The percentages of the GPU's work and those of the API calls each add up to 100.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfmodel.core.units import format_si, parse_quantity
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import NO_SHAPES, event_kind
from perfmodel.formats.nsys.reports import API_TRACE, GPU_TRACE, column, seconds
from perfmodel.formats.nsys.timeline import device_notes
from perfmodel.formats.nsys.trace import Tables, gpu_trace
from perfmodel.formats.text.double_counting import percent_notes
from perfmodel.formats.text.numbers import NumberFormat, unit_s
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Timeline

NAME = "nvprof"
PRECEDENCE = 70
_BANNER = re.compile(r"^(?:==\d+==|=+) ?(?:NVPROF|Profiling (?:result|application))", re.MULTILINE)
_SUM = {"time(%)", "time", "calls", "name"}
_TRACE = {"start", "duration", "name"}
_METRICS = {"kernel", "invocations", "metric name"}
#: nvprof's units of size are binary: it prints a memset of 1028 B as 1.003906 KB
_UNITS = {"KB": "KiB", "MB": "MiB", "GB": "GiB"}
#: quantities of a trace as text -> their units in SI
_IN_CELLS = {"start": "s", "duration": "s", "size": "B"}
_WITH_UNIT = re.compile(r"(\d{1,15}(?:\.\d{0,15})?)([mun]?s|[KMG]?B)")
#: number of the launch behind the name of a kernel, which a trace as text has in place of a column
_LAUNCH_NUMBER = re.compile(r" \[\d+\]$")
_CELL = r"([\d.]+)([mun]?s)"
_OTHER = r"[\d.]+[mun]?s"
#: "GPU activities:  98.36%  1.23ms  10  123us  1us  2us  name"
_TEXT_ROW = re.compile(
    rf"(?:([A-Za-z][A-Za-z /()]*):)?\s*+([\d.]+)%\s+{_CELL}\s+(\d+)\s+{_OTHER}\s+{_OTHER}\s+{_OTHER}\s+(\S.*)"
)
_GPU, _API = "GPU activities", "API calls"
_NO_TIMELINE = (
    "nvprof's text rounds when work starts to some 10 us, too coarse for a time line: nvprof --csv --print-gpu-trace "
    "has all digits."
)
#: nvprof prints decimal points on every system, and no marks between thousands
_NUMBERS = NumberFormat()


def sniff(head: bytes) -> bool:
    """Recognise the output of nvprof by its banner or its headers."""
    text = head.decode("utf-8", "replace")
    try:
        return bool(_BANNER.search(text)) or bool(tables(text, lambda cells: bool(_kind(cells)), place=""))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read the output of ``nvprof`` or ``nvprof --print-gpu-trace``, as text or with ``--csv``.

    Entries are the kernels, copies and memsets of the GPU; a trace as CSV also gives a time line. API calls in the same
    table run beside them on the CPU and are left out. Without GPU work they are the entries, category "host".

    Raises
    ------
    InputFileError
        When the file cannot be read, has no times, or a row is incomplete.
    """
    place = os.fspath(path)
    text = read_text(path)
    rows, skipped = _text_rows(text), Counter[str]()
    found = [] if rows else tables(text, lambda cells: bool(_kind(cells)), place=place)
    traces = {
        kind: [_with_units(table) for table in found if _kind(table.headers) == kind] for kind in (GPU_TRACE, API_TRACE)
    }
    if any(table.rows for table in traces[GPU_TRACE]):
        is_text = any(_has_units_in_cells(table) for table in found if _kind(table.headers) == GPU_TRACE)
        entries, timeline, device = gpu_trace(Tables(traces, _NUMBERS, skipped, place), options.by)
        if is_text:
            return _profile(entries, (*device_notes(timeline), _NO_TIMELINE), skipped, place, device=device)
        return _profile(entries, device_notes(timeline), skipped, place, device=device, timeline=timeline)
    rows += [row for table in found if _kind(table.headers) == "sum" for row in _rows(table, skipped, place)]
    if not rows:
        raise _nothing(found, place)
    gpu = [row for row in rows if row.group == _GPU]
    notes = [note for group in (_GPU, _API) for note in _percent_notes(rows, group)]
    api_s = math.fsum(row.entry.time_s for row in rows if row.group != _GPU)
    if gpu and api_s:
        notes.append(f"Left out: API calls ({format_si(api_s, 's')}): they run on the CPU beside the kernels.")
    if not gpu:
        notes.append("These are times of API calls on the CPU; the file has no times of kernels.")
    return _profile([row.entry for row in gpu or rows], tuple(notes), skipped, place)


@dataclass(frozen=True)
class _Row:
    """One row of a table of sums; ``percent`` is its share of the group."""

    group: str
    entry: ProfileEntry
    percent: float | None


def _profile(
    entries: Sequence[ProfileEntry],
    notes: tuple[str, ...],
    skipped: Counter[str],
    place: str,
    *,
    device: str = "",
    timeline: Timeline | None = None,
) -> Profile:
    profile = Profile.from_entries(
        entries, source=place, notes=notes, skipped=skipped, format=NAME, device=device, timeline=timeline
    )
    if not profile.total_time_s > 0:
        raise InputFileError("no row has a time above zero.", place=place, remedy="Was anything run on the GPU?")
    return profile


def _kind(headers: Sequence[str]) -> str:
    """Return what a table holds, from its headers: "sum", "metrics", one of the traces, or ""."""
    names = {header.strip().lower() for header in headers}
    if names >= _SUM:
        return "sum"
    if names >= _TRACE and names & {"stream", "correlation_id", "context"}:
        return GPU_TRACE if "stream" in names else API_TRACE
    return "metrics" if names >= _METRICS else ""


def _has_units_in_cells(table: StreamTable) -> bool:
    """Whether a trace is of nvprof's text, in which each cell has its unit ("182.84ms")."""
    return bool(table.rows) and any(map(_WITH_UNIT.fullmatch, table.rows[0][1]))


def _from_text(table: StreamTable) -> StreamTable:
    """Return a trace of nvprof's text in seconds and bytes, and its kernels without the numbers of their launches."""
    units = [_IN_CELLS.get(header.lower(), "") for header in table.headers]
    headers = tuple(f"{header} ({unit})" if unit else header for header, unit in zip(table.headers, units, strict=True))
    rows = [(line, [_plain(cell, unit) for cell, unit in zip(cells, units, strict=True)]) for line, cells in table.rows]
    return replace(table, headers=headers, rows=rows)


def _plain(cell: str, unit: str) -> str:
    match = _WITH_UNIT.fullmatch(cell) if unit else None
    if match is None:
        return _LAUNCH_NUMBER.sub("", cell)
    return repr(parse_quantity(f"{match.group(1)} {_UNITS.get(match.group(2), match.group(2))}", unit))


def _with_units(table: StreamTable) -> StreamTable:
    """Move the units of the second header row, or of all cells, into the headers."""
    if _has_units_in_cells(table):
        return _from_text(table)
    if not table.rows or not any(unit_s(cell) for cell in table.rows[0][1] if cell):
        return table
    units = table.rows[0][1]
    headers = tuple(
        f"{header} ({_UNITS.get(unit, unit)})" if unit and unit != "%" else header
        for header, unit in zip(table.headers, units, strict=True)
    )
    return replace(table, headers=headers, rows=table.rows[1:])


def _rows(table: StreamTable, skipped: Counter[str], place: str) -> list[_Row]:
    """Return the rows of a table of sums."""
    if table.rows and not any(unit_s(cell) for cell in table.rows[0][1] if cell):
        raise InputFileError(
            f"line {table.line + 1}: the row of units below nvprof's header is missing.",
            place=place,
            remedy="Keep the second header row (,%,ms,,us,us,ms,).",
        )
    table = _with_units(table)
    time, name, calls = column(table, "time"), column(table, "name"), column(table, "calls")
    group, percent = column(table, "type"), column(table, "time", percent=True)
    if time is None or name is None or calls is None:
        return []
    banner = _API if "API" in table.banner else _GPU
    rows: list[_Row] = []
    for line, cells in table.rows:
        time_s = seconds(_NUMBERS, cells[time.index], time, table, f"{place}, line {line}")
        if time_s is None:
            skipped["row without a time"] += 1
            continue
        kind = cells[group.index] if group is not None else banner
        share = None if percent is None else _NUMBERS.parse(cells[percent.index])
        rows.append(_Row(kind, _entry(kind, cells[name.index], time_s, _NUMBERS.count(cells[calls.index])), share))
    return rows


def _text_rows(text: str) -> list[_Row]:
    """Return the rows of nvprof's text, in which only the first row of a group names the group."""
    rows: list[_Row] = []
    group = _GPU
    for line in text.splitlines():
        if "API calls:" in line and line.startswith("=="):
            group = _API
        match = _TEXT_ROW.fullmatch(line.strip())
        if match is None:
            continue
        group = match.group(1).strip() if match.group(1) else group
        share, value = _NUMBERS.parse(match.group(2)), _NUMBERS.parse(match.group(3))
        if value is not None:
            time_s = value * (unit_s(match.group(4)) or 1.0)
            rows.append(_Row(group, _entry(group, match.group(6), time_s, _NUMBERS.count(match.group(5))), share))
    return rows


def _entry(group: str, name: str, time_s: float, calls: int | None) -> ProfileEntry:
    kind = event_kind(name) if group == _GPU else EventKind.HOST
    reason = "" if kind is EventKind.HOST else NO_SHAPES
    return ProfileEntry(name or "(unnamed)", time_s, calls, kind, not_modelled=reason)


def _percent_notes(rows: Sequence[_Row], group: str) -> tuple[str, ...]:
    """Check the percentages of one group, which add up to 100."""
    members = [row for row in rows if row.group == group]
    times_s = [row.entry.time_s for row in members]
    return percent_notes([row.percent for row in members], times_s, f"Time(%) of {group}")


def _nothing(found: Sequence[StreamTable], place: str) -> InputFileError:
    """Return the error for a file without times."""
    metrics = any(_kind(table.headers) == "metrics" for table in found)
    return InputFileError(
        "has metrics of kernels but no times." if metrics else "has no table of nvprof; was nothing profiled?",
        place=place,
        remedy="Run nvprof --csv without --metrics and --events.",
    )
