"""CSV of AMD's profilers: traces of kernels, copies and API calls, counters, and statistics by name.

rocprofv3, rocprofv2 and rocprof write one file for each kind of event. A file with the lines of several, as ``cat``
joins them, is one run: the trace of kernels and copies is the work of the GPU, and the trace of API calls tells what
launched it. Statistics hold sums, which count where there is no trace.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import NO_SHAPES, event_kind
from perfmodel.formats.nsys.timeline import device_notes
from perfmodel.formats.nsys.trace import Tables, gpu_trace
from perfmodel.formats.rocprof.reports import (
    COUNTED_ALONE,
    Report,
    different,
    kernel_name,
    positions,
    report_of,
    traces,
)
from perfmodel.formats.table.columns import words
from perfmodel.formats.text.double_counting import percent_notes
from perfmodel.formats.text.numbers import LONGEST_TIME_S, MISSING, NumberFormat, unit_s
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "rocprof"
PRECEDENCE = 60
_REMEDY = "Give *_kernel_trace.csv or *_kernel_stats.csv: rocprofv3 --kernel-trace --stats --output-format csv."
#: calls of the runtimes, and the ranges that a program marks; statistics of kernels have the same columns
_HOST_CALL = re.compile(r"(?:__)?hip[A-Z]\w*|hsa_\w+|(?:rccl|nccl|roctx)[A-Z]\w*")
#: kinds of events that a summary by domain has in place of names
_DOMAIN = re.compile(r"KERNEL_DISPATCH|MEMORY_(?:COPY|ALLOCATION)|SCRATCH_MEMORY|[A-Z_]+_API(?:_EXT)?")
_GPU_DOMAINS = ("KERNEL_DISPATCH", "MEMORY_COPY")
#: AMD's profilers print decimal points on every system, and no marks between thousands but in summaries for people
_NUMBERS = NumberFormat()


def sniff(head: bytes) -> bool:
    """Recognise the files of AMD's profilers by their headers."""
    text = head.decode("utf-8-sig", "replace")
    try:
        return bool(tables(text, _is_header, place="", blank_ends=False))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read a CSV file of rocprofv3, rocprofv2 or rocprof, or several of them joined.

    A trace gives entries by name and a time line; with a trace of API calls (``*_hip_api_trace.csv``) in the same file
    also what launched each kernel. Statistics (``*_kernel_stats.csv``, ``results.stats.csv``) give entries alone. Calls
    of the API run beside the GPU's work and are left out; without such work they are the entries, category "host".

    Raises
    ------
    InputFileError
        When the file cannot be read, holds no such times, or a row is incomplete.
    """
    place = os.fspath(path)
    found = different(tables(read_text(path), _is_header, place=place, blank_ends=False))
    reports = {report for table in found if table.rows and (report := report_of(table.headers))}
    timed = traces(found)
    sums = [table for table in found if report_of(table.headers) is Report.SUMS]
    notes: tuple[str, ...] = ()
    if timed.gpu:
        entries, line, _ = gpu_trace(Tables(timed.tables(), _NUMBERS, timed.skipped, place), options.by)
        alone = Report.COUNTERS in reports
        notes = (*device_notes(line), *((COUNTED_ALONE,) if alone else _missing(reports)))
        profile = Profile.from_entries(
            entries,
            source=place,
            notes=notes,
            skipped=timed.skipped,
            format=NAME,
            timeline=None if alone else line,
        )
    else:
        skipped = timed.skipped
        entries, notes = _sums(sums, skipped, place) if sums else (_calls(timed.api), ())
        profile = Profile.from_entries(entries, source=place, notes=notes, skipped=skipped, format=NAME)
    if not profile.total_time_s > 0:
        raise _nothing(reports, timed.skipped, place)
    return profile


def _is_header(cells: Sequence[str]) -> bool:
    return report_of(cells) is not None


def _missing(reports: set[Report]) -> tuple[str, ...]:
    """Return a note on the files of the same run that the time line lacks."""
    files = {Report.COPIES: "copies (*_memory_copy_trace.csv)", Report.CALLS: "API calls (*_hip_api_trace.csv)"}
    lacking = [what for report, what in files.items() if report not in reports]
    if not lacking:
        return ()
    return (f"The file has no {' and no '.join(lacking)}: cat the files of a run into one for its whole time line.",)


def _calls(rows: Sequence[tuple[int, list[str]]]) -> list[ProfileEntry]:
    """Return the calls of a trace of the API by name."""
    times: dict[str, list[float]] = {}
    for _, (_, duration, name, *_) in rows:
        times.setdefault(name, []).append(1e-9 * float(duration))
    entries = [ProfileEntry(name or "(unnamed)", math.fsum(t), len(t), EventKind.HOST) for name, t in times.items()]
    return sorted(entries, key=lambda entry: -entry.time_s)


def _sums(
    several: Sequence[StreamTable], skipped: Counter[str], place: str
) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Return the entries of statistics, the work of the GPU where there is any."""
    summary: dict[tuple[str, str], ProfileEntry] = {}
    entries: list[ProfileEntry] = []
    notes: list[str] = []
    for table in several:
        listed = _rows(table, skipped, place)
        if listed and all(_DOMAIN.fullmatch(entry.name) for _, entry in listed):
            notes.append("Left out: sums by domain, which hold those by name.")
            continue
        if len(several) == 1:
            notes.extend(_percent_notes(table, [entry for _, entry in listed]))
        # a summary of all domains repeats those of each; files of several processes have rows of one name
        summary.update({(entry.name, domain): entry for domain, entry in listed if domain})
        entries.extend(entry for domain, entry in listed if not domain)
    entries.extend(summary.values())
    gpu = [entry for entry in entries if entry.category != EventKind.HOST]
    host = [entry for entry in entries if entry.category == EventKind.HOST]
    if gpu and host:
        host_s = math.fsum(entry.time_s for entry in host)
        notes.append(f"Left out: API calls ({format_si(host_s, 's')}): they run on the CPU beside the kernels.")
    return gpu or host, tuple(notes)


def _rows(table: StreamTable, skipped: Counter[str], place: str) -> list[tuple[str, ProfileEntry]]:
    """Return the rows of a table of statistics, each with its domain."""
    at = positions(table.headers)
    time = "total" if "total" in at else "duration"
    header = table.headers[at[time]]
    scale = unit_s(words(header)[-1]) or 1e-9
    rows = []
    for line, cells in table.rows:
        cell = {key: cells[index] for key, index in at.items()}
        if cell[time].lower() in MISSING:
            skipped["row without a time"] += 1
            continue
        value = _NUMBERS.parse(cell[time])
        if value is None or not 0 <= value * scale <= LONGEST_TIME_S:
            found = f"{cell[time][:40]!r} in column {header!r}"
            raise InputFileError(f"{found} is not a time of 0 to 30 years.", place=f"{place}, line {line}")
        rows.append((cell.get("domain", ""), _entry(cell, value * scale)))
    return rows


def _entry(cell: dict[str, str], time_s: float) -> ProfileEntry:
    name, domain = kernel_name(cell["name"]) or "(unnamed)", cell.get("domain", "")
    on_gpu = domain in _GPU_DOMAINS if domain else not _HOST_CALL.fullmatch(name)
    kind = event_kind(name) if on_gpu else EventKind.HOST
    return ProfileEntry(name, time_s, _NUMBERS.count(cell["calls"]), kind, not_modelled=NO_SHAPES if on_gpu else "")


def _percent_notes(table: StreamTable, entries: Sequence[ProfileEntry]) -> tuple[str, ...]:
    """Check the percentages of a table of statistics, which add up to 100."""
    headers = [header.lower() for header in table.headers]
    if "percentage" not in headers:
        return ()
    at = headers.index("percentage")
    percents = [_NUMBERS.parse(cells[at]) for _, cells in table.rows]
    if len(percents) != len(entries):
        return ()
    return percent_notes(percents, [entry.time_s for entry in entries], table.headers[at])


def _nothing(reports: set[Report], skipped: Mapping[str, int], place: str) -> InputFileError:
    """Return the error for a file without times of kernels, copies or calls."""
    if Report.UNTIMED in reports:
        remedy = "Run rocprof --timestamp on, or rocprofv3 --kernel-trace --output-format csv."
        return InputFileError("lists kernels without their times.", place=place, remedy=remedy)
    what = " and ".join(sorted(report.value for report in reports))
    if not what:
        return InputFileError("has no rows.", place=place, remedy="Was anything run on the GPU?")
    left_out = "".join(f"; left out: {count} x {reason}" for reason, count in skipped.items())
    message = f"holds {what}, and no times of kernels, copies or calls{left_out}."
    return InputFileError(message, place=place, remedy=_REMEDY)
