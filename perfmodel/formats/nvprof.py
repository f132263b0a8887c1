"""What ``nvprof`` prints, as CSV or as text: sums by kernel and by API call in one table, and the GPU's trace.

In CSV the units stand in a second header row and differ by column ("Time" in ms, "Avg" in us); in text they stand
in each cell. The percentages of the GPU's work and of the API calls each add up to 100.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from perfmodel.core.units import format_si
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.nsys.reports import API_TRACE, GPU_TRACE, column, seconds
from perfmodel.formats.nsys.trace import gpu_trace
from perfmodel.formats.table.columns import unit_s
from perfmodel.formats.text.events import NO_SHAPES, category_word, device_notes
from perfmodel.formats.text.numbers import NumberFormat
from perfmodel.formats.text.percent import percent_notes
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile import profile as categories
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "nvprof"
_BANNER = re.compile(r"^(?:==\d+==|=+) ?(?:NVPROF|Profiling (?:result|application))", re.MULTILINE)
_SUM = {"time(%)", "time", "calls", "name"}
_TRACE = {"start", "duration", "name"}
_METRICS = {"kernel", "invocations", "metric name"}
#: units as nvprof writes them; its sizes are binary: a memset of 1028 B is printed as 1.003906 KB
_UNITS = {"KB": "KiB", "MB": "MiB", "GB": "GiB"}
_CELL = r"([\d.]+)([mun]?s)"
_OTHER = r"[\d.]+[mun]?s"
#: "GPU activities:  98.36%  1.23ms  10  123us  1us  2us  name"
_TEXT_ROW = re.compile(
    rf"\s*(?:([A-Za-z][A-Za-z /()]*):)?\s*([\d.]+)%\s+{_CELL}\s+(\d+)\s+{_OTHER}\s+{_OTHER}\s+{_OTHER}\s+(\S.*)"
)
_GPU, _API = "GPU activities", "API calls"
#: nvprof writes points in every country, and no marks between thousands
_NUMBERS = NumberFormat()


def sniff(head: bytes) -> bool:
    """Tell the output of nvprof by its banner or its headers."""
    text = head.decode("utf-8", "replace")
    try:
        return bool(_BANNER.search(text)) or bool(tables(text, lambda cells: bool(_kind(cells)), place=""))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Profile:
    """Read the output of ``nvprof``, ``nvprof --csv`` or ``nvprof --print-gpu-trace --csv``.

    Entries are the kernels, copies and memsets of the GPU; a trace gives a time line too. The API calls of the
    same table run beside them on the CPU and are left out; they are the entries, category "host", where nothing
    of the GPU is there.

    Raises
    ------
    InputFileError
        When the file cannot be read, holds no times, or a row is not whole.
    """
    place = os.fspath(path)
    text = read_text(path)
    rows, skipped = _text_rows(text), Counter[str]()
    found = [] if rows else tables(text, lambda cells: bool(_kind(cells)), place=place)
    traces = {
        kind: [_with_units(table) for table in found if _kind(table.headers) == kind] for kind in (GPU_TRACE, API_TRACE)
    }
    if any(table.rows for table in traces[GPU_TRACE]):
        entries, timeline, device = gpu_trace(traces, _NUMBERS, skipped, place, (options or ReadOptions()).by)
        return _profile(entries, device_notes(timeline), skipped, place, device=device, timeline=timeline)
    rows += [row for table in found if _kind(table.headers) == "sum" for row in _rows(table, skipped, place)]
    if not rows:
        raise _nothing(found, place)
    gpu = [row for row in rows if row[0] == _GPU]
    notes = [note for name in (_GPU, _API) for note in _percent_notes(rows, name)]
    api_s = math.fsum(entry.time_s for kind, entry, _ in rows if kind != _GPU)
    if gpu and api_s:
        notes.append(f"Left out: API calls ({format_si(api_s, 's')}): they run on the CPU beside the kernels.")
    if not gpu:
        notes.append("These are times of API calls on the CPU; no times of kernels are there.")
    return _profile([entry for _, entry, _ in gpu or rows], tuple(notes), skipped, place)


#: of a row of sums: group, entry, percentage
_Row = tuple[str, ProfileEntry, float | None]


def _profile(
    entries: Sequence[ProfileEntry], notes: tuple[str, ...], skipped: Counter[str], place: str, **more: object
) -> Profile:
    profile = Profile.from_entries(entries, source=place, notes=notes, skipped=skipped, format=NAME, **more)  # type: ignore[arg-type]
    if not profile.total_time_s > 0:
        raise InputFileError("no row has a time above zero.", place=place, remedy="Was anything run on the GPU?")
    return profile


def _kind(headers: Sequence[str]) -> str:
    """Return what a table is by its header: "sum", a trace, "metrics", or an empty string."""
    known = {header.strip().lower() for header in headers}
    if known >= _SUM:
        return "sum"
    if known >= _TRACE and known & {"stream", "correlation_id", "context"}:
        return GPU_TRACE if "stream" in known else API_TRACE
    return "metrics" if known >= _METRICS else ""


def _with_units(table: StreamTable) -> StreamTable:
    """Move the units of the second header row into the headers."""
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
            f"line {table.line + 1}: the units that nvprof writes under its header are missing.",
            place=place,
            remedy="Keep the second header row (,%,ms,,us,us,ms,).",
        )
    table = _with_units(table)
    time, name, calls = column(table, "time"), column(table, "name"), column(table, "calls")
    group, percent = column(table, "type"), column(table, "time", percent=True)
    banner = _API if "API" in table.banner else _GPU
    found: list[_Row] = []
    for line, cells in table.rows:
        if time is None or name is None or calls is None:
            break
        time_s = seconds(_NUMBERS, cells[time.index], time, table, f"{place}, line {line}")
        if time_s is None:
            skipped["a row without a time"] += 1
            continue
        kind = cells[group.index] if group is not None else banner
        number = _NUMBERS.parse(cells[calls.index])
        count = int(number) if number is not None and 0 <= number < 2**53 else None
        share = None if percent is None else _NUMBERS.parse(cells[percent.index])
        found.append((kind, _entry(kind, cells[name.index], time_s, count), share))
    return found


def _text_rows(text: str) -> list[_Row]:
    """Return the rows of nvprof's text; a group's name stands on its first row only."""
    found: list[_Row] = []
    group = _GPU
    for line in text.splitlines():
        if "API calls:" in line and line.startswith("=="):
            group = _API
        match = _TEXT_ROW.fullmatch(line.rstrip())
        if match is None:
            continue
        group = match.group(1).strip() if match.group(1) else group
        share, value = _NUMBERS.parse(match.group(2)), _NUMBERS.parse(match.group(3))
        if value is not None:
            time_s = value * (unit_s(match.group(4)) or 1.0)
            found.append((group, _entry(group, match.group(6), time_s, int(match.group(5)[:15])), share))
    return found


def _entry(group: str, name: str, time_s: float, calls: int | None) -> ProfileEntry:
    category = category_word(name) if group == _GPU else categories.HOST
    unknown = "" if category == categories.HOST else NO_SHAPES
    return ProfileEntry(name or "(unnamed)", time_s, calls, category, not_modelled=unknown)


def _percent_notes(rows: Sequence[_Row], group: str) -> tuple[str, ...]:
    """Check the percentages of one group, which add up to 100 by themselves."""
    mine = [(share, entry.time_s) for kind, entry, share in rows if kind == group]
    if len(mine) < 2:
        return ()
    shares, times = zip(*mine, strict=True)
    return percent_notes(shares, times, f"Time(%) of {group}")


def _nothing(found: Sequence[StreamTable], place: str) -> InputFileError:
    """Return the error for a file without times."""
    metrics = any(_kind(table.headers) == "metrics" for table in found)
    return InputFileError(
        "holds metrics of kernels but no times." if metrics else "holds no table of nvprof's; was nothing profiled?",
        place=place,
        remedy="Run nvprof --csv without --metrics and --events.",
    )
