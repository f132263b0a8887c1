"""CSV of Nsight Compute: the details page (a row for each metric), its summary, and the raw page (a column for each).

Kernels become entries with the FLOP, the bytes and the readings that were collected. They have no operator, since the
profiler does not record shapes.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from perfmodel.diagnosis import counters
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import NO_SHAPES, event_kind
from perfmodel.formats.ncu.metrics import metric_name, unit_scale
from perfmodel.formats.text.numbers import LONGEST_TIME_S, MISSING, NumberFormat, number_format
from perfmodel.formats.text.stream import StreamTable, tables
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "ncu"
PRECEDENCE = 80
_LONG = ("Kernel Name", "Metric Name")
#: the column of the values: of one launch, or in a summary the mean of all launches with one grid and block
_VALUE, _MEAN = "Metric Value", "Average"
_SHAPE = ("Grid Size", "Block Size")
_METRIC = re.compile(r"(?:\w+\.)?[a-z0-9]+__[\w.]+")
_MESSAGE = re.compile(r"^==(ERROR|WARNING)==\s*(.*)$", re.MULTILINE)
#: blanks are those of one line: \s would run over all blank lines from each of them, which takes quadratic time
_PROGRESS = re.compile(rb"^(?:[ \t]*(?:\xef\xbb\xbf)?==(?:PROF|ERROR|WARNING)== |[ \t]+Section: )", re.MULTILINE)
#: readings that add up over the launches of a kernel; all others are averaged, weighted by the launches' times
_ADDED = re.compile(r".*\.sum|gpu__time_duration\.\w+|(?:sm|smsp)__cycles_elapsed\.(?:avg|max|sum)")
#: the details page prints a duration with two decimals, of 1 or more of its unit
_ROUNDED = 0.01
_NOTE = (
    "Nsight Compute runs each kernel alone, by default at base clocks and with cold caches, so its times differ from "
    "those in the program."
)


@dataclass
class _Launch:
    """One measured launch of a kernel.

    Attributes
    ----------
    shape : its grid and block.
    is_long : whether it is from a page with a row for each metric, in which readings are rounded.
    count : how many launches it stands for.
    """

    name: str
    shape: str
    device: str
    capability: str
    is_long: bool
    count: int = 1
    readings: dict[str, float] = field(default_factory=dict)


def sniff(head: bytes) -> bool:
    """Recognise the CSV of ncu by its header, and a failed capture by ncu's own messages."""
    text = head.decode("utf-8-sig", "replace")
    try:
        return bool(_PROGRESS.search(head)) or bool(tables(text, _is_header, place="", least=_least))
    except InputFileError:
        return True


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read the CSV of ``ncu --csv``, page details or raw, or its summary (``--print-summary per-kernel``).

    An entry is a kernel, or a kernel with one grid and block if it ran with several. It has its time, its number of
    launches, FLOP and DRAM bytes as far as counters give them (`perfmodel.diagnosis.counters`), and ``metrics``: every
    reading under ncu's own name in SI units (percentages 0..100), and what is derived from them (`counters.derived`,
    and ``flop_TYPE_ENGINE``). Launches of one entry are summed; readings that do not add up are averaged by time.
    Numbers may have English or European decimal marks; units are those of each row or column. A launch that several
    pages of one report list counts once, with the readings of all of them.

    Raises
    ------
    InputFileError
        When the file cannot be read, the capture failed, no kernel has a duration, or a row is incomplete.
    """
    place = os.fspath(path)
    text = read_text(path)
    pages = tables(text, _is_header, place=place, least=_least, blank_ends=False)
    skipped: Counter[str] = Counter()
    numbers = number_format((value for page in pages for value in _values(page)), place=place)
    launches, notes = _all_launches(pages, numbers, skipped, place)
    if not launches:
        raise _nothing(text, place)
    timed = [launch for launch in launches if counters.time_s(launch.readings) is not None]
    if not timed:
        raise InputFileError(
            "no kernel has a duration.",
            place=place,
            remedy="Collect it: ncu --metrics gpu__time_duration.sum,..., or a section set with SpeedOfLight.",
        )
    if len(timed) < len(launches):
        skipped["launch without a duration"] = _count(launches) - _count(timed)
    devices = sorted({launch.device for launch in timed if launch.device and not launch.device.isdigit()})
    return Profile.from_entries(
        _entries(timed),
        source=place,
        notes=(_NOTE, *notes, *_flop_notes(timed)),
        skipped=skipped,
        format=NAME,
        device=" and ".join(devices),
    )


def _is_long(headers: Sequence[str]) -> bool:
    """Whether a table has a row for each metric, as page details has, instead of a column."""
    return all(name in headers for name in _LONG) and (_VALUE in headers or _MEAN in headers)


def _value_header(headers: Sequence[str]) -> str:
    """Return the header of the values of a long table."""
    return _VALUE if _VALUE in headers else _MEAN


def _is_header(cells: Sequence[str]) -> bool:
    if _is_long(cells):
        return True
    return "Kernel Name" in cells and any(_METRIC.fullmatch(cell) for cell in cells)


def _least(headers: Sequence[str]) -> int:
    """Return how many cells a row needs; rows without a rule end after the value."""
    return headers.index(_value_header(headers)) + 1 if _is_long(headers) else len(headers)


def _values(table: StreamTable) -> Iterable[str]:
    """Yield the texts of all values of a table."""
    if _is_long(table.headers):
        at = [table.headers.index(_value_header(table.headers))]
    else:
        at = [index for index, header in enumerate(table.headers) if _METRIC.fullmatch(header)]
    return (cells[index] for _, cells in table.rows for index in at)


def _nothing(text: str, place: str) -> InputFileError:
    """Return the error for a file without a measured kernel, with ncu's own messages."""
    if re.search(r"^[ \t]+Section: ", text, re.MULTILINE):
        return InputFileError(
            "is the text output of Nsight Compute, not its CSV.",
            place=place,
            remedy="Run ncu --csv, or ncu --import FILE.ncu-rep --csv --page raw.",
        )
    messages = "; ".join(message.strip().rstrip(".")[:200] for _, message in _MESSAGE.findall(text)[:2])
    reason = f": ncu reported {messages!r}" if messages else "; the capture failed or is cut off"
    remedy = "Run ncu --csv again, and check that the program launches a kernel."
    if "ERR_NVGPUCTRPERM" in text:
        remedy = "Run ncu as root, or allow all users to read counters: https://developer.nvidia.com/ERR_NVGPUCTRPERM."
    return InputFileError(f"holds no measured kernel{reason}.", place=place, remedy=remedy)


def _all_launches(
    pages: Sequence[StreamTable], numbers: NumberFormat, skipped: Counter[str], place: str
) -> tuple[list[_Launch], tuple[str, ...]]:
    """Return the launches of all pages, each once, and a note on pages that repeat others."""
    # the raw page has all digits, so its readings count where the details page has them, too
    in_order = sorted(pages, key=lambda page: _is_long(page.headers))
    single = [page for page in in_order if "ID" in page.headers]
    every: dict[tuple[str, ...], list[_Launch]] = {}
    repeated = 0
    for page in single or in_order:
        for key, launch in _launches(page, numbers, skipped, place).items():
            same = next((one for one in every.get(key, ()) if _is_same(one, launch)), None)
            if same is None:
                every.setdefault(key, []).append(launch)
            else:
                repeated += launch.count
                same.readings = launch.readings | same.readings
    notes = []
    if repeated:
        notes.append(f"{repeated} launches are on several pages; each counts once.")
    if len(single) not in (0, len(in_order)):
        notes.append("Left out: a summary of kernels, whose launches are listed one by one.")
    return [launch for several in every.values() for launch in several], tuple(notes)


def _is_same(one: _Launch, other: _Launch) -> bool:
    """Whether two pages list the same launch under one number of process and launch.

    The details page rounds what the raw page has in full. Pages of one kind have equal readings if they were printed
    twice. Other readings are of another run, whose process may have the same number in its container.
    """
    if one.is_long == other.is_long:
        shared = one.readings.keys() & other.readings.keys()
        return all(one.readings[name] == other.readings[name] for name in shared)
    times = [time_s for launch in (one, other) if (time_s := counters.time_s(launch.readings)) is not None]
    return len(times) < 2 or math.isclose(*times, rel_tol=_ROUNDED)


def _launches(
    table: StreamTable, numbers: NumberFormat, skipped: Counter[str], place: str
) -> dict[tuple[str, ...], _Launch]:
    """Return the launches on a page of either kind, by what tells them apart."""
    at = {header: index for index, header in reversed(list(enumerate(table.headers)))}
    launches: dict[tuple[str, ...], _Launch] = {}
    units: Mapping[int, str] = {}
    wide = not _is_long(table.headers)
    metrics = [index for index, header in enumerate(table.headers) if _METRIC.fullmatch(header)]
    for number, (line, cells) in enumerate(table.rows):
        if wide and number == 0 and not cells[at["Kernel Name"]]:
            units = dict(enumerate(cells))
            continue
        cell = {header: cells[index] for header, index in at.items()}
        by = ("Process ID", "ID", "Kernel Name") if "ID" in cell else ("Process ID", "Device", "Kernel Name", *_SHAPE)
        key = tuple(cell.get(name, "") for name in by)
        # a raw page without IDs has one row for each launch
        one_row = wide and "ID" not in cell
        launch = launches.setdefault((*key, str(line)) if one_row else key, _launch(cell, is_long=not wide))
        where = f"{place}, line {line}"
        if wide:
            for index in metrics:
                _add(launch, table.headers[index], units.get(index, ""), cells[index], numbers, skipped, where)
        elif cell["Metric Name"]:
            unit = cell.get("Metric Unit", "")
            _add(launch, cell["Metric Name"], unit, cell[_value_header(table.headers)], numbers, skipped, where)
    return launches


def _launch(cell: Mapping[str, str], *, is_long: bool) -> _Launch:
    shape = " x ".join(cell[name] for name in _SHAPE if cell.get(name))
    count = NumberFormat().count(cell.get("Invocations", "1")) or 1
    return _Launch(
        cell["Kernel Name"] or "(unnamed)", shape, cell.get("Device", ""), cell.get("CC", ""), is_long, count
    )


def _count(launches: Iterable[_Launch]) -> int:
    return sum(launch.count for launch in launches)


def _add(
    launch: _Launch, written: str, unit: str, text: str, numbers: NumberFormat, skipped: Counter[str], where: str
) -> None:
    """Add one reading to a launch, in SI units."""
    name = metric_name(written, unit)
    if text.lower() in MISSING:
        skipped["metric without a value"] += 1
        return
    value = numbers.parse(text)
    is_time = name.startswith("gpu__time_duration.")
    if value is None:
        # settings of a launch are words, and some readings are lists
        if is_time:
            raise InputFileError(f"the duration {text[:40]!r} is not a number.", place=where)
        skipped["metric that is not a number"] += 1
        return
    value *= unit_scale(unit)
    if is_time and not 0 <= launch.count * value <= LONGEST_TIME_S:
        times = f" of {launch.count} launches" if launch.count > 1 else ""
        raise InputFileError(f"the duration {text[:40]!r} {unit}{times} is negative or over 30 years.", place=where)
    launch.readings.setdefault(name, value)


def _entries(launches: Sequence[_Launch]) -> list[ProfileEntry]:
    """Return an entry for each kernel, or for each grid and block of a kernel with several."""
    shapes: dict[str, set[str]] = {}
    for launch in launches:
        shapes.setdefault(launch.name, set()).add(launch.shape)
    groups: dict[str, list[_Launch]] = {}
    for launch in launches:
        name = f"{launch.name} {launch.shape}" if len(shapes[launch.name]) > 1 else launch.name
        groups.setdefault(name, []).append(launch)
    return sorted((_entry(name, group) for name, group in groups.items()), key=lambda entry: -entry.time_s)


def _entry(name: str, launches: Sequence[_Launch]) -> ProfileEntry:
    """Return the launches of one kernel as an entry."""
    counts = [launch.count for launch in launches]
    times = [count * (counters.time_s(launch.readings) or 0.0) for count, launch in zip(counts, launches, strict=True)]
    flop = [counters.flop_by_engine(launch.readings, launch.capability) for launch in launches]
    dram = [counters.memory_bytes(launch.readings).get("hbm") for launch in launches]
    readings = _together(launches, times)
    engines = {
        f"flop_{engine}": math.fsum(count * counted[engine] for count, counted in zip(counts, flop, strict=True))
        for engine in flop[0]
        if all(engine in counted for counted in flop)
    }
    capability = launches[0].capability
    version = {"compute_capability": float(capability)} if re.fullmatch(r"\d+\.\d+", capability) else {}
    moved = [count * size for count, size in zip(counts, dram, strict=True) if size is not None]
    return ProfileEntry(
        name,
        math.fsum(times),
        sum(counts),
        event_kind(launches[0].name),
        flop=_flop(engines),
        bytes=math.fsum(moved) if len(moved) == len(dram) else None,
        metrics=MappingProxyType(readings | counters.derived(readings) | engines | version),
        not_modelled=NO_SHAPES,
    )


def _flop(engines: Mapping[str, float]) -> float | None:
    """Return the FLOP of all engines; None if nothing was counted, or only engines that were idle."""
    total = math.fsum(engines.values())
    whole = any(name.endswith("_tensor") for name in engines) and any(name.endswith("_vector") for name in engines)
    return total if total > 0 or whole else None


def _together(launches: Sequence[_Launch], times: Sequence[float]) -> dict[str, float]:
    """Return the readings that all launches have; sums are added, the others averaged by time."""
    names = [name for name in launches[0].readings if all(name in launch.readings for launch in launches)]
    counts = [launch.count for launch in launches]
    weights = times if math.fsum(times) > 0 else counts
    together = {}
    for name in names:
        values = [launch.readings[name] for launch in launches]
        if _ADDED.fullmatch(name):
            together[name] = math.fsum(count * value for count, value in zip(counts, values, strict=True))
        elif len(set(values)) == 1:
            together[name] = values[0]
        else:
            together[name] = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
    return together


def _flop_notes(launches: Sequence[_Launch]) -> tuple[str, ...]:
    """Return notes on FLOP that are missing or incomplete."""
    counted = [counters.flop_by_engine(launch.readings, launch.capability) for launch in launches]
    without = _count(launch for launch, counts in zip(launches, counted, strict=True) if not counts)
    notes = []
    if without:
        notes.append(
            f"{without} of {_count(launches)} launches have no FLOP counters (sm__sass_..., sm__ops_path_tensor_...)."
        )
    engines = {name.rpartition("_")[2] for counts in counted for name in counts}
    if engines and "tensor" not in engines:
        notes.append(
            "FLOP are those of vector instructions alone: tensor counters (sm__ops_path_tensor_src_*) are missing."
        )
    return tuple(notes)
